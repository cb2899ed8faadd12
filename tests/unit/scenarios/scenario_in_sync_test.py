"""Named scenarios 5.5, 5.6, 5.11, 5.12 and 5.19: who is in sync, and what that decides."""

import pytest

from harness.simulation.clients import Write
from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId
from tidelog.wire.errors import ErrorCode
from tidelog.wire.replication import Ack, Batch, Bytes, Message

COORDINATOR = BrokerId(3_000)


def _leader_with_a_late_high_watermark() -> Scene:
    """A acknowledged 0-4 with A and B in sync; C has 0 alone. A is dead; B, whose high watermark is
    1, leads epoch 1; what it sends to C is lost."""
    scene = Scene(A, B, C, lag_ms=1_000)
    scene.wrote(A)
    scene.settle()
    scene.apart(A, C)
    scene.until_isr(A, B)
    scene.wrote(A, 4)
    assert (scene.end(B), scene.high(B), scene.end(C)) == (5, 1, 1)
    scene.lost = lambda sender, to, one: (sender, to) == (B, C) and isinstance(one, Bytes | Batch)
    scene.cluster.kill(A)
    scene.cluster.until(lambda: scene.cluster.leads(B))
    leader = scene.cluster.replica(B).leader
    assert leader is not None
    assert (leader.epoch, leader.end, leader.epoch_start) == (1, 5, 5)
    assert (scene.high(B), scene.isr()) == (1, {B})
    return scene


def test_isr_expand_before_leso() -> None:
    """5.5, KAFKA-7128: to have reached the high watermark is not enough in a new epoch."""
    scene = _leader_with_a_late_high_watermark()
    cluster = scene.cluster
    cluster.run(3_000)
    leader = cluster.replica(B).leader
    assert leader is not None
    assert leader.ends[C] == scene.high(B) == 1  # it has vouched for all below the high watermark
    assert scene.isr() == {B}
    assert not any(kind == "isr_proposed" for one, kind, _, _ in cluster.notes if one == B)
    scene.lost = lambda _sender, _to, _one: False
    scene.until_isr(B, C)
    assert scene.end(C) == 5
    cluster.kill(B)
    cluster.until(lambda: cluster.leads(C))
    leader = cluster.replica(C).leader
    assert leader is not None
    assert (leader.epoch, scene.log(C)) == (2, "0-4:0")


def test_lagging_hw_after_election() -> None:
    """5.6: a consumer that read to the end sees no step back."""
    scene = _leader_with_a_late_high_watermark()
    assert scene.clients.latest(B) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    fetched = scene.clients.fetch(B, 5)
    assert fetched.error_code in {ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE}
    assert not fetched.records
    scene.lost = lambda _sender, _to, _one: False
    scene.until_isr(B, C)
    scene.settle()
    assert scene.clients.latest(B) == (ErrorCode.NONE, 5)


def test_stale_alter_partition() -> None:
    """5.11, KIP-903: a proposal for a life that is over adds nobody."""
    scene = Scene(A, B, min_isr=1, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.apart(A, B)
    scene.until_isr(A)
    cluster.network.cut_from(A, COORDINATOR)
    cluster.isr_outcomes.clear()
    scene.together(A, B)
    leader = cluster.replica(A).leader
    assert leader is not None
    cluster.until(lambda: leader.proposing)
    epoch = cluster.view().partition_epoch
    old = cluster.image.brokers[B].epoch
    cluster.kill(B)
    cluster.disks[B].root.names.clear()
    scene.lost = lambda sender, _to, _one: sender == B  # its new life says nothing to A yet
    scene.start(B)
    assert cluster.image.brokers[B].epoch > old
    cluster.network.heal_link(A, COORDINATOR, lose=False)
    cluster.until(lambda: bool(cluster.isr_outcomes))
    assert cluster.isr_outcomes == [ErrorCode.INELIGIBLE_REPLICA]
    assert (scene.isr(), cluster.view().partition_epoch) == ({A}, epoch)
    scene.lost = lambda _sender, _to, _one: False
    scene.until_isr(A, B)
    assert scene.end(B) == 5


def test_a_reborn_follower_counts_for_nothing_before_it_has_spoken() -> None:
    """5.11's other half: what an earlier life vouched for says nothing of the next one."""
    scene = Scene(A, B, C, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(B)
    cluster.disks[B].root.names.clear()
    scene.until_isr(A, C)
    cluster.start(B)

    def loses_bytes(sender: BrokerId, to: BrokerId, one: Message) -> bool:
        bytes_to_it = (sender, to) == (A, B) and isinstance(one, Bytes | Batch)
        return bytes_to_it or (sender == B and isinstance(one, Ack))

    scene.lost = loses_bytes
    cluster.run(3_000)
    assert (scene.end(B), scene.isr()) == (0, {A, C})
    scene.lost = lambda _sender, _to, _one: False
    scene.until_isr(A, B, C)
    assert scene.end(B) == 5


def test_paused_leader_returns() -> None:
    """5.12: a stopped leader wakes up, deposed; what it held alone is cut, and was never acked."""
    scene = Scene(A, B, C)
    cluster = scene.cluster
    cluster.elect(A, B, C, epoch=5)
    scene.wrote(A, 50)
    scene.settle()
    scene.apart(A, C)
    unacked = [scene.clients.write(A) for _ in range(2)]
    cluster.until(lambda: scene.end(B) == 52)
    scene.apart(A, B)
    unacked.append(scene.clients.write(A))
    alone = scene.clients.write(A, acks=1)
    assert (scene.high(A), scene.end(A)) == (50, 54)
    cluster.pause(A)
    cluster.until(lambda: cluster.leads(B))
    leader = cluster.replica(B).leader
    assert leader is not None
    assert (leader.epoch, leader.end) == (6, 52)
    assert not any(one.is_acked for one in unacked)
    scene.together(A, B)
    scene.together(A, C)
    write = scene.wrote(B)
    assert write.offset == 52
    late = scene.clients.write(A)  # a client that has not heard of it
    cluster.resume(A)
    cluster.until(lambda: late.is_over)
    assert not late.is_acked
    scene.until_isr(A, B, C)
    assert scene.log(A) == scene.log(B) == scene.log(C) == "0-51:5 52-52:6"
    cuts = [(who, what) for who, kind, _, what in cluster.notes if kind == "truncated"]
    assert (A, {"from": 54, "to": 52, "last_epoch": 5, "leader_epoch": 6, "committed": 0}) in cuts
    assert alone.is_acked  # acks=1 promises no more than the leader's own log


def _every_10_ms(scene: Scene, until_ms: int, *, timeout_ms: int) -> list[Write]:
    writes = []
    start = scene.cluster.now
    while (scene.cluster.now - start) // 1_000_000 < until_ms:
        writes.append(scene.clients.write(A, timeout_ms=timeout_ms))
        scene.cluster.run(10)
    return writes


def test_isr_shrink_expand() -> None:
    """5.19: a frozen follower holds acks=all up for lag.time.max, no longer."""
    scene = Scene(A, B, C)
    cluster = scene.cluster
    scene.wrote(A, 100)
    scene.settle()
    epoch, start = cluster.view().partition_epoch, cluster.now
    answered: list[int] = []
    scene.apart(A, C)
    writes: list[Write] = []
    while scene.isr() == {A, B, C}:
        number = len(writes)
        over = lambda _, number=number: answered.append(number)  # noqa: E731 -- one name for each
        writes.append(scene.clients.write(A, timeout_ms=30_000, on_over=over))
        cluster.run(10)
        if scene.isr() == {A, B, C}:
            assert (scene.high(A), answered) == (100, [])
    assert 10_000 < (cluster.now - start) / 1_000_000 <= 15_000
    assert scene.isr() == {A, B}
    scene.settle()
    assert scene.high(A) == scene.end(A) == 100 + len(writes)
    assert all(one.is_acked for one in writes)
    assert answered == sorted(answered)
    scene.together(A, C)
    scene.until_isr(A, B, C)
    assert scene.end(C) >= scene.high(A)
    assert cluster.view().partition_epoch == epoch + 2


def test_isr_shrink_below_min_isr() -> None:
    """5.19: with both followers frozen the leader answers, and promises nothing."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 100)
    scene.settle()
    scene.apart(A, B)
    scene.apart(A, C)
    writes = _every_10_ms(scene, 1_500, timeout_ms=5_000)
    scene.until_isr(A)
    scene.settle()
    assert scene.high(A) == 100
    refused = scene.clients.write(A)
    cluster.until(lambda: refused.is_over)
    assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.until(lambda: all(one.is_over for one in writes))
    codes = {one.code for one in writes}
    assert codes <= {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
    assert scene.high(A) == 100  # frozen, also by itself


def test_isr_shrink_is_for_good_while_a_follower_is_silent() -> None:
    """5.19: it holds all there is, and may join again when it is heard of, not before."""
    scene = Scene(A, B, C, lag_ms=1_000)
    scene.wrote(A, 100)
    scene.settle()
    epoch = scene.cluster.view().partition_epoch
    scene.apart(A, C)
    scene.cluster.run(10_000)
    assert scene.isr() == {A, B}
    assert scene.cluster.view().partition_epoch == epoch + 1
    scene.together(A, C)
    scene.until_isr(A, B, C)


@pytest.mark.parametrize("delay_ms", [200.0, 700.0])
def test_isr_shrink_spares_who_is_slow_and_keeps_up(delay_ms: float) -> None:
    """5.19: who has, each time, what the leader had when it asked last, stays in sync."""
    scene = Scene(A, B, C, lag_ms=2_000)
    scene.cluster.network.slow(C, A, delay_ms)
    _every_10_ms(scene, 6_000, timeout_ms=30_000)
    assert scene.isr() == {A, B, C}
    assert not any(kind == "isr_proposed" for _, kind, _, _ in scene.cluster.notes)


@pytest.mark.parametrize("how", ["ack", "record"])
def test_a_broker_that_learns_in_mid_answer_that_it_was_given_up(how: str) -> None:
    """An answer sees the fence word first: what follows in that turn finds no leader."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    epoch = cluster.image.brokers[A].epoch

    def fence(_write: Write) -> None:
        cluster.fences.fence(A, epoch)

    scene.apart(A, C)
    writes = [scene.clients.write(A, on_over=fence) for _ in range(2)]
    if how == "ack":
        scene.settle()
        scene.together(A, C)
    cluster.until(lambda: all(one.is_over for one in writes))
    assert writes[0].is_acked
    assert not writes[1].is_acked
    cluster.run(2_000)
