"""Named scenarios of 5.21 on disks that fail, are full or slow, under replicated partitions."""

import errno
from collections.abc import Sequence
from typing import NoReturn

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryFile
from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.files import Bytes
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import s
from tidelog.wire.errors import ErrorCode

ALL = (A, B, C)


def _full(*_of: object, **_how: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "disk is full")


def _without_room(step: str, scene: Scene, full: pytest.MonkeyPatch) -> None:
    """On A's disk, for this step of a roll."""
    own, disk = scene.cluster.replica(A).log.directory, scene.cluster.disks[A]
    opens, appends, replaces = MemoryDirectory.open, MemoryFile.append, MemoryDirectory.replace

    def opened(of: MemoryDirectory, name: str) -> MemoryFile:
        return _full() if of is own and not of.exists(name) else opens(of, name)

    def appended(of: MemoryFile, parts: Sequence[Bytes]) -> int:
        return _full() if of._disk is disk and not of.size else appends(of, parts)

    def replaced(of: MemoryDirectory, name: str, content: bytes, *, durable: bool = True) -> None:
        return _full() if of is own else replaces(of, name, content, durable=durable)

    owner, name, instead = {
        "the new file": (MemoryDirectory, "open", opened),
        "its first batch": (MemoryFile, "append", appended),
        "the snapshot": (MemoryDirectory, "replace", replaced),
    }[step]
    full.setattr(owner, name, instead)


@pytest.mark.parametrize("step", ["the new file", "its first batch", "the snapshot"])
def test_disk_full_roll(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is full, and there is no room to begin the next: what comes is refused, and another
    leads, who has room. Nobody is given up: with room again the first one has what it missed."""
    scene = Scene(*ALL, segment_bytes="16384")
    cluster = scene.cluster
    for _ in range(7):
        scene.clients.wrote(A, 1, size=2_000)
    scene.settle()
    epoch = cluster.view().leader_epoch
    with monkeypatch.context() as full:
        _without_room(step, scene, full)
        refused = scene.clients.write(A, 1, size=2_000)
        cluster.until(lambda: refused.is_over)
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.lives[A].troubles
        cluster.until(lambda: scene.the_leader() == B)
        assert scene.clients.wrote(B, 1, size=2_000).offset == 7
        assert scene.clients.fetch(B, 0).error_code == 0
        cluster.run(4_000)
        assert (scene.leader(), scene.isr(), scene.end(A)) == (B, {B, C}, 7)
    scene.until_isr(*ALL)
    assert len(cluster.replica(A).log.segments) == 2
    scene.settle()
    assert cluster.view().leader_epoch == epoch + 1
    scene.clients.check_all_is_there()


def _is_well(scene: Scene) -> None:
    """Its disk is mended and it is started again: all in sync, and nothing acknowledged is lost."""
    cluster = scene.cluster
    assert A not in cluster.lives, "its last directory is at its end"
    cluster.disks[A].failing.clear()
    scene.start(A)
    scene.until_isr(*ALL)
    scene.wrote(scene.the_leader())
    scene.settle()
    scene.clients.check_all_is_there()
    assert cluster.view().lossy_elections == 0
    assert cluster.witness.truth(("t", Partition(0))).lost == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_fsync_eio_leader(code: int) -> None:
    """Leadership moves, nothing is acknowledged over the error, and nothing is tried again: the
    kernel would say next time that all is well. So too where a flush finds the disk full."""
    scene = Scene(*ALL, flush_policy="commit")
    cluster, disk = scene.cluster, scene.cluster.disks[A]
    scene.wrote(A)
    scene.settle()
    epoch, flushed = cluster.view().leader_epoch, cluster.replica(A).log.recovery_point
    disk.failing["sync"] = code
    disk.calls.clear()
    write = scene.clients.write(A)
    cluster.until(lambda: scene.leader() == B)
    assert not write.is_acked
    assert sum(operation == "sync" for operation, _ in disk.calls) == 1
    assert (scene.isr(), cluster.view().leader_epoch) == ({B, C}, epoch + 1)
    assert flushed == 1
    assert scene.wrote(scene.the_leader()).offset in {1, 2}, (
        "behind what nobody answered for, or instead"
    )
    disk.failing.clear()  # "OK", says the kernel
    cluster.run(15_000)
    assert scene.isr() == {B, C}
    _is_well(scene)


def test_write_eio_leader() -> None:
    """It is refused, and the directory is at its end: others lead."""
    scene = Scene(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.cluster.disks[A].failing["append"] = errno.EIO
    refused = scene.clients.write(A)
    scene.cluster.until(lambda: refused.is_over)
    assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    scene.cluster.until(lambda: scene.leader() == B)
    assert scene.isr() == {B, C}
    scene.wrote(scene.the_leader())
    _is_well(scene)


def test_a_follower_without_room_leaves_and_comes_back() -> None:
    scene = Scene(*ALL, lag_ms=1_000)
    scene.wrote(A)
    scene.settle()
    disk = scene.cluster.disks[C]
    disk.failing["append"] = errno.ENOSPC
    write = scene.clients.write(A)
    scene.cluster.until(lambda: write.is_over)
    assert write.is_acked
    assert scene.isr() == {A, B}
    disk.failing.clear()
    scene.until_isr(*ALL)
    scene.settle()
    assert scene.end(C) == 2
    scene.clients.check_all_is_there()


def test_a_follower_whose_disk_is_slow_leaves_in_time_and_comes_back() -> None:
    """Under `commit` it answers for what it flushed. Until it is out nothing is acknowledged; then
    no more waits for it."""
    scene = Scene(*ALL, lag_ms=1_000, flush_policy="commit")
    scene.settle()
    scene.cluster.lives[C].storage.hold()
    began = scene.cluster.now
    write = scene.clients.write(A)
    scene.settle()
    assert not write.is_over
    scene.cluster.until(lambda: write.is_over)
    assert write.is_acked
    assert scene.isr() == {A, B}
    assert scene.cluster.now - began <= s(1.5)
    scene.cluster.lives[C].storage.let_go()
    scene.until_isr(*ALL)
    scene.wrote(A)
    scene.settle()
    scene.clients.check_all_is_there()


def test_a_leader_whose_disk_is_slow_answers_for_nothing_early() -> None:
    """It leads on: both others have the record on their disks, and it says so when it has, too."""
    scene = Scene(*ALL, lag_ms=1_000, flush_policy="commit")
    scene.wrote(A)
    scene.settle()
    scene.cluster.lives[A].storage.hold()
    write = scene.clients.write(A)
    scene.cluster.run(5_000)
    assert (scene.high(A), scene.leader()) == (1, A)
    assert not write.is_acked
    assert scene.clients.fetch(A, 1).records in {None, b""}
    scene.cluster.lives[A].storage.let_go()
    scene.settle()
    assert scene.high(A) == 2
    scene.clients.check_all_is_there()
