"""The named scenarios of 5.21 that replication answers for."""

import pytest

from harness.clients.produce_raw import batch_of
from harness.disks.memory_disk import MemoryDisk
from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.ipc.layout import Fences, board_size_bytes
from tidelog.node.ipc.standing import Standing
from tidelog.wire.checkpoints import HIGH_WATERMARKS
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Origin, iterate_batches
from tidelog.wire.replication import Batch, Bytes, State

ALL = (A, B, C)


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n"])
def test_checkpoint_lost(content: bytes | None) -> None:
    """Without a high watermark everything is kept, and nothing is shown before it is known."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.checkpoint(B)
    cluster.kill(B)
    directory = cluster.disks[B].directory()
    if content is None:
        directory.unlink(HIGH_WATERMARKS)
    else:
        directory.replace(HIGH_WATERMARKS, content)
    scene.apart(A, B)
    scene.start(B)
    assert (scene.log(B), scene.high(B)) == ("0-4:0", 0)
    scene.together(A, B)
    scene.until_isr(*ALL)
    assert (scene.log(B), scene.high(B)) == ("0-4:0", 5)
    assert not any(kind == "truncated" for _, kind, _, _ in cluster.notes)


def _follower_far_behind(start: int) -> Scene:
    """B has 0-9; the leader's log goes to 59 and begins at `start`."""
    scene = Scene(*ALL, min_isr=1)
    scene.wrote(A, 10)
    scene.settle()
    scene.cluster.kill(B)
    scene.until_isr(A, C)
    for _ in range(5):
        scene.wrote(A, 10)
    scene.settle()
    scene.cluster.replica(A).log.advance_start(start)
    scene.start(B)
    scene.until_isr(*ALL)
    scene.settle()
    return scene


@pytest.mark.parametrize("start", [50, 20, 45])
def test_retention_passes_follower(start: int) -> None:
    """Who ends below the leader's first record starts anew there, also in the middle of a batch."""
    scene = _follower_far_behind(start)
    replica = scene.cluster.replica(B)
    assert (replica.log.start, replica.log.end) == (start, 60)
    assert scene.high(B) == 60
    assert (B, "started_anew") in [(who, kind) for who, kind, _, _ in scene.cluster.notes]
    scene.wrote(A)
    scene.settle()
    assert scene.end(B) == scene.end(C) == 61


def test_full_truncation_hw() -> None:
    """KAFKA-9491: after all was cut the high watermark is not below the log, and goes on."""
    scene = _follower_far_behind(50)
    scene.cluster.kill(A)
    scene.until_isr(B, C)
    assert scene.the_leader() in {B, C}
    leader = scene.the_leader()
    write = scene.wrote(leader)
    assert write.offset == 60
    scene.settle()
    assert scene.high(B) == scene.high(C) == 61


def test_topic_recreated() -> None:
    """Records of the topic that had the name before meet nobody's of the new one."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(B)
    scene.until_isr(A, C)
    old = cluster.image.names["t"].id
    cluster.delete("t")
    cluster.witness.truths.clear()
    cluster.create("t", A, B, C, min_insync_replicas="2")
    scene.wrote(A, 2)
    assert scene.clients.code_by_id(A, old) == ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(Rejected) as refused:  # its log has another owner
        cluster.lives[A].logs.create("t", 0, old, cluster.replica(A).log.settings)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    scene.start(B)
    scene.until_isr(*ALL)
    assert scene.clients.code_by_id(B, old) == ErrorCode.UNKNOWN_TOPIC_ID
    assert scene.log(A) == scene.log(B) == scene.log(C) == "0-1:0"
    scene.clients.writes = scene.clients.writes[1:]
    scene.clients.check_all_is_there()


def test_fenced_broker_not_in_isr() -> None:
    """KIP-841: who is fenced may hold all there is, and is not taken in."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    blind = Fences(memoryview(bytearray(board_size_bytes(0))))
    life = cluster.lives[B]
    life.standing = Standing(blind, B, life._on_lost)  # it cannot see that it was given up
    cluster.network.cut(B, 3_000)
    cluster.coordinator.tell(BrokerLost(B, Incarnation(life.incarnation)))
    scene.until_isr(A, C)
    write = scene.wrote(A)
    scene.settle()
    cluster.run(3_000)
    assert write.offset == 5
    assert scene.end(B) == 6  # it follows all the same
    assert scene.isr() == {A, C}
    assert not any(kind == "isr_proposed" for _, kind, _, _ in cluster.notes)


def test_preferred_leader_flap() -> None:
    """Fifty changes of the leader, with writes under way: nothing is lost, nothing is twice."""
    scene = Scene(*ALL)
    writes = []
    for turn in range(50):
        leader = ALL[turn % 2]
        writes += [scene.clients.write(leader), scene.clients.write(leader, acks=1)]
        scene.cluster.elect(ALL[(turn + 1) % 2], *ALL)
    scene.cluster.until(lambda: all(one.is_over for one in writes))
    scene.until_isr(*ALL)
    scene.wrote(scene.the_leader())
    scene.settle()
    scene.clients.check_all_is_there()
    assert sum(one.is_acked for one in writes if one.acks == -1) > 10
    offsets = [one.offset for one in writes if one.is_acked and one.acks == -1]
    assert len(set(offsets)) == len(offsets)


def test_shm_owner_killed() -> None:
    """The owner of a ring dies with a batch in it that nobody was told of: the others lose
    nothing, and its next life makes another ring."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    (name,) = [one for one in cluster.shelf.named if one[0] == A]
    memory = cluster.shelf.named[name]
    scene.lost = lambda sender, _to, one: sender == A and isinstance(one, Batch | Bytes)
    scene.clients.write(A, 3)
    cluster.run(1)
    cluster.kill(A)
    memory[600:] = bytes(len(memory) - 600)
    scene.lost = lambda _sender, _to, _one: False
    leader = scene.the_leader()
    scene.wrote(leader, 2)
    scene.start(A)
    scene.until_isr(*ALL)
    scene.wrote(leader)
    cluster.elect(A, B, C)
    scene.wrote(A)
    assert [one[1] for one in cluster.shelf.named if one[0] == A] == [2]
    scene.settle()
    scene.clients.check_all_is_there()


def test_hw_slice_race() -> None:
    """KAFKA-9835: what is read was chosen before the next batch came, and stays what it was."""
    scene = Scene(*ALL)
    scene.wrote(A, 5)
    scene.settle()
    replica = scene.cluster.replica(A)
    found = replica.log.read(0, 1 << 20, replica.high_watermark, min_one=True)
    scene.apart(A, B)
    scene.apart(A, C)
    scene.clients.write(A, 5)
    assert (scene.end(A), scene.high(A)) == (10, 5)
    assert found is not None
    content = found.file.read(found.position, found.size)
    assert [header.next_offset for header, _ in iterate_batches(content)] == [5]
    fetched = scene.clients.fetch(A, 0)
    assert fetched.high_watermark == 5


@pytest.mark.parametrize("reaches_b", [True, False])
def test_idempotent_retry_over_failover(*, reaches_b: bool) -> None:
    """The answer is lost and the leader dies: the same batch again is one batch in the log."""
    scene = Scene(*ALL)
    cluster, clients = scene.cluster, scene.clients
    for sequence in range(5):
        clients.wrote(A, 1, origin=Origin(7, 0, sequence))
    scene.wrote(A, 25)
    scene.settle()
    if not reaches_b:
        scene.apart(A, B)
        scene.apart(A, C)
    batch = batch_of(b"five", origin=Origin(7, 0, 5))
    first = clients.write_batch(A, bytearray(batch))
    cluster.until(lambda: scene.end(A) == 31 and scene.end(B) == (31 if reaches_b else 30))
    cluster.kill(A)
    cluster.until(lambda: first.is_over)
    assert first.code is None
    scene.together(A, B)
    scene.together(A, C)
    scene.until_isr(B, C)
    again = clients.write_batch(scene.the_leader(), bytearray(batch))
    cluster.until(lambda: again.is_over)
    assert (again.code, again.offset) == (0, 30)
    third = clients.write_batch(scene.the_leader(), bytearray(batch))
    cluster.until(lambda: third.is_over)
    assert (third.code, third.offset, scene.end(B)) == (0, 30, 31)
    scene.start(A)
    scene.until_isr(*ALL)
    clients.check_all_is_there()


def test_a_lost_word_about_the_high_watermark_is_said_again() -> None:
    """Nothing follows that would carry it: consumers of the follower wait for it all the same."""
    scene = Scene(*ALL)
    lost: list[object] = []

    def once(_sender: BrokerId, to: BrokerId, one: object) -> bool:
        if to == B and isinstance(one, State) and not lost:
            lost.append(one)
            return True
        return False

    scene.lost = once
    scene.wrote(A, 5)
    scene.cluster.run(100)
    assert lost
    assert (scene.high(B), scene.high(C)) == (0, 5)
    scene.cluster.run(1_000)
    assert scene.high(B) == 5
    scene.heard(State, A, B)
    scene.cluster.run(3_000)
    assert scene.heard(State, A, B) == []  # it was heard, and is not said for ever


class FullDisk(MemoryDisk):
    """Takes no more as long as it is full."""

    is_full = False

    @property
    def fail_append_after(self) -> int | None:
        return 0 if self.is_full else None

    @fail_append_after.setter
    def fail_append_after(self, _after: int | None) -> None: ...


def test_disk_full_on_a_follower() -> None:
    """It leaves the ISR, writes go on, and it comes back when there is room."""
    scene = Scene(*ALL, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(C)
    disk = FullDisk()
    disk.root = cluster.disks[C].root
    cluster.disks[C] = disk
    scene.start(C)
    scene.until_isr(*ALL)
    disk.is_full = True
    write = scene.clients.write(A, timeout_ms=30_000)
    scene.until_isr(A, B)
    cluster.until(lambda: write.is_over)
    assert write.is_acked
    assert scene.end(C) == 5
    assert cluster.lives[C].troubles
    disk.is_full = False
    scene.until_isr(*ALL)
    scene.clients.check_all_is_there()


def test_old_messages_after_a_reconnect() -> None:
    """What was on its way to an earlier life of a broker means nothing to its next one."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.apart(A, B)
    for _ in range(10):
        scene.clients.write(A)
    held = cluster.network.pipe(A, B).held
    assert len(held) >= 10
    old = [bytes(part) for part in held[-1]]
    cluster.kill(B)
    cluster.network.heal_link(A, B, lose=False)
    scene.start(B)
    scene.until_isr(*ALL)
    scene.wrote(A)
    scene.settle()
    before = (scene.log(B), scene.high(B))
    cluster.lives[B].received(old)
    cluster.lives[BrokerId(B)].received(old)
    assert (scene.log(B), scene.high(B)) == before
    scene.clients.check_all_is_there()
