"""Changes that were safe one after the other reach a broker together, in one snapshot."""

import pytest

from harness.simulation.clients import Write
from harness.simulation.cluster import A, B
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId

COORDINATOR = BrokerId(3_000)


def _more_in_sync_wanted_and_fewer_there(*, by_snapshot: bool) -> tuple[Scene, Write]:
    """A leads and has a record that B lacks. While A hears nothing of the coordinator, the topic
    comes to ask for two in-sync replicas, and then B dies: A is in sync alone, B is eligible."""
    scene = Scene(A, B, min_isr=1)
    cluster = scene.cluster
    scene.wrote(A, 3)
    scene.settle()
    cluster.network.cut_from(COORDINATOR, A)
    scene.apart(A, B)
    write = scene.clients.write(A)
    cluster.run(5)
    assert not write.is_over
    cluster.begin_configure(cluster.lives[B], "t", "min.insync.replicas", "2")
    cluster.until(lambda: cluster.image.names["t"].configs["min.insync.replicas"] == "2")
    cluster.kill(B)
    cluster.until(lambda: scene.isr() == {A})
    assert cluster.view().elr == (B,)
    if by_snapshot:
        cluster.kill_coordinator()
    cluster.network.heal_link(A, COORDINATOR, lose=False)
    if by_snapshot:
        cluster.start_coordinator()
    cluster.run(1_000)
    return scene, write


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_smaller_in_sync_set_never_counts_under_the_minimum_of_before(
    *, by_snapshot: bool
) -> None:
    """A snapshot of a new coordinator holds both; else the records come one after the other."""
    scene, write = _more_in_sync_wanted_and_fewer_there(by_snapshot=by_snapshot)
    assert not write.is_acked
    assert (scene.high(A), scene.end(A)) == (3, 4)


def test_what_was_acknowledged_before_a_snapshot_is_there_after_the_next_election() -> None:
    scene, _ = _more_in_sync_wanted_and_fewer_there(by_snapshot=True)
    cluster = scene.cluster
    cluster.kill(A)
    scene.together(A, B)
    scene.start(B)
    cluster.until(lambda: cluster.leads(B))
    assert cluster.view().lossy_elections == 0
    scene.start(A)
    scene.until_isr(A, B)
    scene.settle()
    scene.clients.check_all_is_there()
