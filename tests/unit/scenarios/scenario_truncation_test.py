"""Named scenarios 5.1 to 5.4: where a log is cut, and by whose word."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import batch, new_log, produce
from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import NO_EPOCH, Epoch, Offset, Partition
from tidelog.node.replica.follower import cut_to
from tidelog.node.replica.sending import epoch_end
from tidelog.wire.errors import ErrorCode
from tidelog.wire.replication import Ack, Attach, Batch, EpochEnd, Head, Refused, encode


def test_hw_truncation_loss() -> None:
    """5.1, KIP-101: a restarted follower keeps what is above its own high watermark."""
    scene = Scene(B, A, min_isr=1)
    scene.wrote(B)
    scene.settle()
    scene.wrote(B)  # acknowledged, and A is not told so
    assert (scene.log(A), scene.high(A)) == ("0-1:0", 1)
    scene.checkpoint(A)
    cluster = scene.cluster
    cluster.supervisor_is_silent = True
    cluster.kill(A)
    scene.apart(A, B)
    scene.start(A)
    assert (scene.log(A), scene.high(A)) == ("0-1:0", 1)  # nothing is cut at a restart
    cluster.kill(B)
    cluster.elect(A, epoch=1)
    assert (scene.end(A), scene.epochs(A), scene.high(A)) == (2, {0: 0, 1: 2}, 2)
    scene.wrote(A)
    scene.together(A, B)
    cluster.start(B)
    scene.until_isr(A, B)
    assert scene.heard(EpochEnd, A, B) == []  # end(0) is 2: nothing diverges
    assert scene.log(A) == scene.log(B) == "0-1:0 2-2:1"


def test_hw_truncation_divergence_by_the_epoch_rule() -> None:
    """5.2, KIP-101: both lose power, and the one that synced less leads: it is lost, and equal."""
    scene = Scene(A, B, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A)
    scene.sync(B)
    lost = scene.wrote(A)
    scene.settle()
    scene.sync(A)
    assert (scene.high(A), scene.high(B)) == (2, 2)
    cluster.supervisor_is_silent = True
    cluster.witness.is_strict = False  # an election that nobody should allow
    cluster.lose_power(A)
    cluster.lose_power(B)
    scene.start(B)
    assert scene.log(B) == "0-0:0"
    (gone,) = cluster.witness.lossy_election(lost.key, B)
    assert (gone.base, gone.crc) == (1, lost.crc)
    cluster.elect(B, epoch=1)
    scene.wrote(B)
    assert (scene.log(B), scene.high(B)) == ("0-0:0 1-1:1", 2)
    scene.heard(EpochEnd, B, A)
    cluster.start(A)
    scene.until_isr(A, B)
    (answer,) = scene.heard(EpochEnd, B, A)
    assert isinstance(answer, EpochEnd)
    assert (answer.epoch, answer.end) == (0, 1)
    assert scene.log(A) == scene.log(B) == "0-0:0 1-1:1"


def test_fast_failover_divergence() -> None:
    """5.3, KIP-279: two elections before a follower is back; the leader has never heard of the
    epoch that the follower asks for."""
    scene = Scene(A, B, min_isr=1)
    cluster = scene.cluster
    cluster.witness.is_strict = False
    scene.wrote(A, 10)
    cluster.supervisor_is_silent = True
    scene.apart(A, B)
    scene.wrote(A, 10, acks=1)
    cluster.kill(A)
    cluster.elect(B, epoch=1)
    scene.wrote(B, 5)
    assert scene.log(B) == "0-9:0 10-14:1"
    cluster.kill(B)
    scene.start(A)
    cluster.witness.lossy_election(("t", Partition(0)), A)
    cluster.elect(A, epoch=2)
    scene.wrote(A, 2)
    assert (scene.log(A), scene.epochs(A)) == ("0-19:0 20-21:2", {0: 0, 2: 20})
    scene.together(A, B)
    cluster.start(B)
    scene.until_isr(A, B)
    (answer,) = scene.heard(EpochEnd, A, B)
    assert isinstance(answer, EpochEnd)
    assert (answer.epoch, answer.end) == (0, 20)
    assert scene.log(A) == scene.log(B) == "0-19:0 20-21:2"


@pytest.mark.parametrize(
    ("follower", "leader", "answer", "cut"),
    [
        ([(1, 4)], [(1, 2), (3, 0)], (1, 2), 2),
        ([(1, 2), (2, 2)], [(1, 2), (3, 0)], (1, 2), 2),
        ([(1, 1), (2, 3)], [(1, 2), (3, 0)], (1, 2), 1),
        ([(2, 4)], [(1, 1), (3, 2)], (1, 1), 0),
    ],
)
def test_fast_failover_divergence_variants(
    follower: list[tuple[int, int]],
    leader: list[tuple[int, int]],
    answer: tuple[int, int],
    cut: int,
) -> None:
    """5.3's table; logs as runs of (epoch, records)."""
    logs = []
    for runs in (follower, leader):
        log = new_log(MemoryDisk().directory())
        for epoch, count in runs:
            log.begin_epoch(epoch)
            for _ in range(count):
                produce(log, batch(), epoch=epoch)
        logs.append(log)
    theirs, ours = logs
    said = epoch_end(ours, theirs.epochs.latest)
    assert said == answer
    assert cut_to(theirs, *said) == cut


def test_an_empty_log_is_told_that_it_agrees() -> None:
    log = new_log(MemoryDisk().directory())
    produce(log, batch(3), epoch=4)
    assert epoch_end(log, NO_EPOCH) == (NO_EPOCH, 3)


def test_stale_epoch_fetch_counts_for_hw() -> None:
    """5.4, KIP-320: who still follows in an old epoch vouches for nothing."""
    scene = Scene(A, B, C, min_isr=1, partitions=2)  # B leads the other one: C has a stream to it
    cluster = scene.cluster
    scene.wrote(A)
    scene.settle()
    scene.apart(A, B)
    scene.clients.write(A)
    cluster.until(lambda: scene.end(C) == 2)
    cluster.supervisor_is_silent = True
    cluster.kill(A)
    cluster.network.cut(C, 3_000)  # C does not hear of the election
    cluster.elect(B, C, epoch=1)
    write = scene.clients.write(B, timeout_ms=60_000)
    scene.settle()
    assert (scene.log(B), scene.high(B), scene.log(C)) == ("0-0:0 1-1:1", 1, "0-1:0")

    scene.said.clear()
    topic = cluster.image.names["t"].id
    stream = cluster.lives[B].machine._sending._streams[C].address.stream
    head = Head(C, cluster.lives[C].incarnation, cluster.lives[B].incarnation, stream)
    asked = Attach(99, topic, Partition(0), Epoch(0), Epoch(0), Offset(2), Offset(0))
    vouched = Ack(99, Offset(2), Offset(0))
    cluster.lives[B].received(
        [bytes(one) for one in encode(head, [(asked, None), (vouched, None)])]
    )
    scene.settle()
    assert Refused(99, ErrorCode.FENCED_LEADER_EPOCH) in scene.heard(Refused, B, C)
    assert (scene.high(B), write.is_over) == (1, False)

    cluster.network.heal_link(C, 3_000)
    cluster.until(lambda: write.is_over)
    assert write.is_acked
    said = [one for f, t, one in scene.said if (f, t) == (B, C) and isinstance(one, EpochEnd)]
    assert [(one.epoch, one.end) for one in said] == [(0, 1)]
    assert any(isinstance(one, Batch) for _, _, one in scene.said)
    assert (scene.log(C), scene.high(B)) == ("0-0:0 1-1:1", 2)
    assert scene.clients.fetch(B, 0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert scene.clients.fetch(B, 0, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
