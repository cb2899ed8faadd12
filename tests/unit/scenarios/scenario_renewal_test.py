"""A replica with a damaged log begins anew: no election counts on it before it has caught up."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.node.replica.leader import Leader
from tidelog.wire.replication import Batch, Bytes, Message

COORDINATOR = BrokerId(3_000)


def _rots(scene: Scene, broker: BrokerId, *, usable: bool = True) -> None:
    """A read of this broker's log finds a wrong checksum; or nothing of it can be used any more."""
    life = scene.cluster.lives[broker]
    rot = CorruptError(file="00000000000000000000.log", position=0, reason="a wrong checksum")
    if not usable:
        scene.cluster.replica(broker).log.offline = rot
    life.turn(lambda: life._on_storage_failure(("t", Partition(0)), rot))


def _copies_slowly(scene: Scene) -> None:
    """What A sends to B takes long: as with a large log, B stays empty for a while."""

    def lost(sender: BrokerId, to: BrokerId, one: Message) -> bool:
        return (sender, to) == (A, B) and isinstance(one, Bytes | Batch)

    scene.lost = lost


def _leader(scene: Scene, broker: BrokerId) -> Leader:
    leader = scene.cluster.replica(broker).leader
    assert leader is not None
    return leader


def _emptied(scene: Scene) -> bool:
    return scene.end(B) == 0


def _trusted_and_short(scene: Scene) -> bool:
    return scene.cluster.view().trusts(B) and scene.end(B) < scene.high(A)


def _proposed_then_rotten(*, usable: bool = True) -> Scene:
    """A proposes B for the ISR, and B finds its log damaged before the coordinator hears of it."""
    scene = Scene(A, B, min_isr=1, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 5)
    scene.settle()
    scene.apart(A, B)
    scene.until_isr(A)
    scene.wrote(A, 5)
    cluster.network.cut_from(A, COORDINATOR)
    scene.together(A, B)
    cluster.until(lambda: _leader(scene, A).proposing)
    _rots(scene, B, usable=usable)
    _copies_slowly(scene)
    return scene


@pytest.mark.parametrize("usable", [True, False])
def test_a_proposal_of_before_the_damage_does_not_add_the_emptied_replica(*, usable: bool) -> None:
    scene = _proposed_then_rotten(usable=usable)
    cluster = scene.cluster
    cluster.until(lambda: _emptied(scene))
    cluster.network.heal_link(A, COORDINATOR, lose=False)
    cluster.run(700)
    assert scene.isr() == {A}
    scene.lost = lambda *_: False
    scene.until_isr(A, B)
    assert scene.end(B) == 10


def test_a_proposal_that_is_taken_before_the_damage_is_heard_keeps_the_log() -> None:
    """While the cluster counts on the replica it gives up nothing."""
    scene = _proposed_then_rotten()
    cluster = scene.cluster
    cluster.network.cut_from(B, COORDINATOR)
    cluster.network.heal_link(A, COORDINATOR, lose=False)
    cluster.until(lambda: scene.isr() == {A, B})
    cluster.run(1_500)
    assert scene.end(B) == 10
    cluster.network.heal_link(B, COORDINATOR, lose=False)
    cluster.until(lambda: _emptied(scene))
    assert scene.isr() == {A}
    scene.lost = lambda *_: False
    scene.until_isr(A, B)


@pytest.mark.parametrize("later_ms", [0, 300, 600, 900])
def test_an_in_sync_replica_with_a_damaged_log_leaves_before_it_begins_anew(later_ms: int) -> None:
    """Its leader still remembers that it had everything, and would propose it at once."""
    scene = Scene(A, B, C)
    cluster = scene.cluster
    scene.wrote(A, 5)
    cluster.run(later_ms)
    _rots(scene, B)
    _copies_slowly(scene)
    cluster.until(lambda: _emptied(scene), within_ms=3_000)
    for _ in range(300):
        cluster.run(1)
        assert not _trusted_and_short(scene)
    scene.lost = lambda *_: False
    scene.until_isr(A, B, C)
    assert scene.end(B) == 5
