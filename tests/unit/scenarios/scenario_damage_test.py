"""Named scenarios of 5.21 on damaged files: who has them leads no more, and gets them anew."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene, turn_a_byte
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.wire.errors import ErrorCode

ALL = (A, B, C)
KEY = ("t", Partition(0))


def _began_anew(scene: Scene) -> list[BrokerId]:
    return [
        who for who, kind, key, _ in scene.cluster.notes if (kind, key) == ("started_anew", KEY)
    ]


def _is_well(scene: Scene) -> None:
    """All in sync, all equal, nothing acknowledged lost and no election that might have."""
    scene.until_isr(*scene.cluster.view().replicas)
    scene.wrote(scene.the_leader())
    scene.settle()
    scene.clients.check_all_is_there()
    assert scene.cluster.view().lossy_elections == 0
    assert scene.cluster.witness.truth(KEY).lost == []


def test_corrupt_leader_batch_is_found_by_who_catches_up() -> None:
    """The follower gets no bad bytes; the leader resigns, and gets the batch from the next one."""
    scene = Scene(*ALL, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(C)
    scene.until_isr(A, B)
    scene.wrote(A, 5)
    scene.settle()
    turn_a_byte(cluster.disks[A])
    epoch = cluster.view().leader_epoch
    scene.start(C)
    cluster.until(lambda: scene.leader() == B)
    assert cluster.view().leader_epoch == epoch + 1
    assert cluster.lives[C].troubles == []
    _is_well(scene)
    assert _began_anew(scene) == [A]
    cluster.elect(A, B, C)
    assert scene.clients.fetch(A, 5).error_code == 0


@pytest.mark.parametrize("reader", [A, B])
def test_corrupt_leader_batch_is_found_by_who_reads_it(reader: BrokerId) -> None:
    """A fetch of 42 gives no bad bytes; the leader resigns, or the follower that consumers read
    from leaves the ISR, and gets the batch from another. (A was stopped and started since.)"""
    scene = Scene(*ALL)
    cluster, clients = scene.cluster, scene.clients
    for _ in range(60):
        scene.wrote(A)
    scene.settle()
    cluster.stop(reader)
    (segment,) = cluster.replica(C).log.segments
    turn_a_byte(cluster.disks[reader], back=segment.size - segment.locate(43) + 1)
    scene.start(reader)
    scene.until_isr(*ALL)
    cluster.elect(A, B, C)
    scene.settle()
    epoch = cluster.view().leader_epoch
    asked = clients.try_fetch(reader, 42)
    assert asked is None
    cluster.until(lambda: reader in _began_anew(scene))
    assert scene.leader() == (B if reader == A else A)
    assert cluster.view().leader_epoch == epoch + 1
    _is_well(scene)
    assert _began_anew(scene) == [reader]
    cluster.elect(reader, *ALL)
    assert clients.fetch(reader, 42).error_code == 0


def test_a_lone_leader_goes_on_with_what_can_be_read_until_another_has_it_all() -> None:
    scene = Scene(*ALL, min_isr=1, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.apart(A, B)
    scene.apart(A, C)
    scene.until_isr(A)
    scene.wrote(A, 5)
    turn_a_byte(cluster.disks[A])
    scene.together(A, C)
    cluster.run(5_000)
    assert (scene.leader(), scene.isr(), scene.end(C)) == (A, {A}, 5)
    write = scene.wrote(A)
    assert write.offset == 10
    turn_a_byte(cluster.disks[A])  # it is as it was, but for the byte that is a new one's
    assert scene.clients.fetch(A, 0).error_code == 0


def test_who_is_eligible_and_comes_back_with_a_damaged_log_is_not_elected() -> None:
    """The first to return of those who had all has a hole in what it had flushed."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.sync(B)
    for one in ALL:
        cluster.kill(one)
        cluster.run(10)
    assert set(cluster.view().elr) == {B, C}
    turn_a_byte(cluster.disks[B])
    scene.start(B)
    cluster.run(2_000)
    assert scene.leader() is None
    assert (cluster.view().elr, cluster.view().last_known) == ((C,), (B,))
    scene.start(A)
    cluster.run(2_000)
    assert scene.leader() is None  # it may lack something
    scene.start(C)
    assert scene.the_leader() == C
    _is_well(scene)
    assert _began_anew(scene) == [B]


@pytest.mark.parametrize("is_promised", [False, True])
def test_corrupt_tail_vs_crash_tail(*, is_promised: bool) -> None:
    """A bad last batch after a power loss: above what was flushed the tail is cut, below it the
    replica is out until it has everything anew."""
    scene = Scene(*ALL)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.sync(C)
    scene.wrote(A, 2)
    scene.settle()
    if is_promised:
        scene.sync(C)
    turn_a_byte(cluster.disks[C])
    cluster.lose_power(C)
    logs = cluster.start(C).logs
    assert (KEY in logs.offline) == is_promised
    cuts = [one.cut.offset for one in logs.recovered if one.cut is not None]
    assert cuts == ([] if is_promised else [5])
    _is_well(scene)
    assert _began_anew(scene) == ([C] if is_promised else [])


def test_a_damaged_log_without_a_leader_waits() -> None:
    """Who has it may be mended by hand: nobody who has less is elected by itself."""
    scene = Scene(A, B, min_isr=1, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    cluster.kill(B)
    scene.until_isr(A)
    scene.wrote(A, 5)
    scene.sync(A)
    cluster.kill(A)
    cluster.until(lambda: scene.leader() is None)
    turn_a_byte(cluster.disks[A])
    scene.start(B)
    scene.start(A)
    cluster.run(60_000)
    assert (scene.leader(), cluster.view().last_known) == (None, (A,))
    assert scene.clients.fetch(A, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert _began_anew(scene) == []
    cluster.kill(A)
    turn_a_byte(cluster.disks[A])  # mended
    scene.start(A)
    assert scene.the_leader() == A
    scene.until_isr(A, B)
    scene.settle()
    scene.clients.check_all_is_there()
