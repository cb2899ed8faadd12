"""Named scenario 5.21 `disk_full_roll` under a replicated leader."""

import errno
from collections.abc import Sequence
from typing import NoReturn

import pytest

from harness.memory_disk import MemoryDirectory, MemoryFile
from harness.scenes import Scene
from harness.simulated_cluster import A, B, C
from tidelog.kernel.files import Bytes
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
    """A segment is full, and there is no room to begin the next: what comes is refused, reads go
    on, nobody is given up, and with room again the next record has the next offset."""
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
        assert scene.clients.fetch(A, 0).error_code == 0
        cluster.run(2_000)
        assert (scene.leader(), scene.isr(), scene.end(A)) == (A, set(ALL), 7)
    assert scene.clients.wrote(A, 1, size=2_000).offset == 7
    assert len(cluster.replica(A).log.segments) == 2
    scene.settle()
    assert cluster.view().leader_epoch == epoch
    scene.clients.check_all_is_there()
