"""Proposals for the ISR that are lost, late or refused: none stops the high watermark for good."""

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.coordinator.controller import isr_changes
from tidelog.kernel.ids import BrokerId
from tidelog.node.replica.leader import Leader

COORDINATOR = BrokerId(3_000)


def _proposals(scene: Scene, leader: BrokerId) -> list[object]:
    """The in-sync sets that this leader proposed."""
    return [
        what["isr"]
        for one, kind, _, what in scene.cluster.notes
        if (one, kind) == (leader, "isr_proposed")
    ]


def _leader(scene: Scene, broker: BrokerId) -> Leader:
    leader = scene.cluster.replica(broker).leader
    assert leader is not None
    return leader


def _write_on(scene: Scene, *, every_ms: float, for_ms: float) -> None:
    """Keep the leader A under load, so that followers acknowledge all the time."""
    cluster = scene.cluster
    ends = cluster.now + for_ms * 1_000_000

    def again() -> None:
        if cluster.now < ends and A in cluster.lives:
            scene.clients.write(A)
            cluster.timeline.after(every_ms, again)

    cluster.timeline.after(every_ms, again)


def _proposed_and_lost() -> Scene:
    """A leads with {A, C} in sync and proposed to add B; the coordinator died before it heard."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.kill(B)
    scene.until_isr(A, C)
    scene.wrote(A, 3)
    cluster.network.cut_from(A, COORDINATOR)
    cluster.start(B)
    cluster.until(lambda: _leader(scene, A).proposing)
    cluster.kill_coordinator()
    return scene


def test_an_addition_lost_with_the_coordinator_stops_nothing_when_the_follower_dies_too() -> None:
    """The added replica counts for the high watermark until it is known that nobody added it."""
    scene = _proposed_and_lost()
    cluster = scene.cluster
    assert _leader(scene, A).in_doubt
    cluster.kill(B)
    cluster.network.heal_link(A, COORDINATOR, lose=True)
    cluster.start_coordinator()
    write = scene.clients.write(A, timeout_ms=2_000)
    cluster.until(lambda: write.is_over)
    assert write.is_acked
    assert scene.isr() == {A, C}
    assert not _leader(scene, A).in_doubt


def test_an_addition_lost_with_the_coordinator_is_proposed_again() -> None:
    scene = _proposed_and_lost()
    scene.cluster.network.heal_link(A, COORDINATOR, lose=True)
    scene.cluster.start_coordinator()
    scene.until_isr(A, B, C)
    scene.wrote(A)


def test_while_no_coordinator_comes_an_addition_that_was_never_sent_stops_nothing() -> None:
    """The follower dies and nobody can fence it, but nobody can have added it either."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    cluster.kill(B)
    scene.until_isr(A, C)
    scene.apart(A, B)
    scene.start(B)
    scene.settle()
    cluster.kill_coordinator()
    scene.together(A, B)
    cluster.until(lambda: _leader(scene, A).proposing)
    cluster.kill(B)
    write = scene.clients.write(A, timeout_ms=4_000)
    cluster.until(lambda: write.is_over)
    assert write.is_acked


@pytest.mark.parametrize(("at_ms", "down_ms"), [(1, 5), (31, 40), (77, 20)])
def test_a_stop_under_load_and_the_death_of_the_coordinator_leave_all_writable(
    at_ms: float, down_ms: float
) -> None:
    scene = Scene(A, B, C)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.run(at_ms)
    _write_on(scene, every_ms=0.5, for_ms=300)
    cluster.run(5)
    cluster.network.slow(COORDINATOR, C, 30.0)  # so the coordinator waits before it fences B
    cluster.begin_stop(B)
    cluster.run(8)
    cluster.kill_coordinator()
    cluster.until(lambda: B not in cluster.lives)
    cluster.run(down_ms)
    cluster.start_coordinator()
    cluster.network.slow(COORDINATOR, C, 0.0)
    cluster.run(500)
    write = scene.clients.write(A, timeout_ms=2_000)
    cluster.until(lambda: write.is_over)
    assert write.is_acked


def test_a_broker_that_is_stopping_is_not_proposed() -> None:
    """It still follows and acknowledges, but the controller would refuse it each time."""
    scene = Scene(A, B, C)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.notes.clear()
    cluster.network.slow(COORDINATOR, C, 200.0)  # so the coordinator waits before it fences B
    _write_on(scene, every_ms=0.5, for_ms=200)
    cluster.run(5)
    cluster.begin_stop(B)
    cluster.run(300)
    assert scene.isr() == {A, C}
    assert _proposals(scene, A) == []


def test_a_refused_proposal_is_not_repeated_with_every_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ten times a second: what the controller refused, it refuses until something changes."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    cluster.kill(B)
    scene.until_isr(A, C)
    with monkeypatch.context() as patch:
        patch.setattr(isr_changes, "_is_eligible", lambda _image, member, _epoch: member != B)
        scene.start(B)
        cluster.notes.clear()
        _write_on(scene, every_ms=0.5, for_ms=500)
        cluster.run(500)
    assert 3 <= len(_proposals(scene, A)) <= 7
    scene.until_isr(A, B, C)


def test_nothing_is_committed_before_enough_are_written_down_to_be_in_sync() -> None:
    """A is in sync alone, C is eligible, B is only proposed: if A dies now, C is elected, and has
    nothing of what A and B have since."""
    scene = Scene(A, B, C, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.kill(B)
    scene.until_isr(A, C)
    cluster.kill(C)
    scene.until_isr(A)
    assert cluster.view().elr == (C,)
    scene.clients.write(A, acks=1)
    cluster.network.cut_from(A, COORDINATOR)
    cluster.start(B)
    cluster.until(lambda: _leader(scene, A).proposing)
    scene.clients.write(A, acks=1)
    cluster.run(500)
    assert (scene.end(B), scene.high(A)) == (5, 3)


def test_a_follower_of_a_life_that_the_leader_has_not_heard_of_is_not_proposed() -> None:
    """The leader's image still shows the life before; the controller would refuse it."""
    scene = Scene(A, B, min_isr=1, lag_ms=1_000)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.apart(A, B)
    scene.until_isr(A)
    cluster.network.cut_from(COORDINATOR, A)
    cluster.kill(B)
    scene.start(B)
    cluster.notes.clear()
    scene.together(A, B)
    cluster.run(1_500)
    assert _leader(scene, A).ends[B] == 3
    assert _proposals(scene, A) == []
    cluster.network.heal_link(A, COORDINATOR, lose=False)
    scene.until_isr(A, B)
