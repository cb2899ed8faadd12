"""Replicas copy the gaps that compaction left, also when their topic is no longer compacted."""

import pytest

from harness.clients.produce_raw import batch_of
from harness.simulation.cluster import A, B
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import Offset
from tidelog.wire.records import place_batch


def compacted(*bases: int) -> Scene:
    """Broker A leads a log of which compaction left batches of two records at these offsets."""
    scene = Scene(A, min_isr=1, cleanup_policy="compact")
    cluster = scene.cluster
    cluster.witness.unwatched.add("t")
    cluster.witness.is_strict = False
    replica = cluster.replica(A)
    for base in bases:
        view = memoryview(batch_of(b"one", b"two"))
        place_batch(view, 0, base_offset=base, leader_epoch=0)
        replica.log.append_as_follower(cluster.now, 0, view, 0)
    assert replica.leader is not None
    replica.leader.appended(cluster.now, Offset(replica.log.end), replica.vouched)
    return scene


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
@pytest.mark.parametrize("last", [8, 3_000_000_000])
def test_a_new_replica_gets_in_sync_across_the_gaps(policy: str, last: int) -> None:
    scene = compacted(0, last)
    cluster = scene.cluster
    cluster.configure("t", "cleanup.policy", policy)
    cluster.reassign(A, B)
    cluster.run(30_000)
    assert scene.isr() == {A, B}
    assert scene.end(B) == last + 2


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("power", [False, True])
def test_a_replica_that_received_gaps_keeps_its_log_over_a_restart(
    policy: str, *, power: bool
) -> None:
    scene = compacted(0, 8, 20)
    cluster = scene.cluster
    cluster.configure("t", "cleanup.policy", policy)
    cluster.reassign(A, B)
    cluster.run(30_000)
    cluster.lives[B].flush()
    cluster.kill(A)
    if power:
        cluster.lose_power(B)
    else:
        cluster.kill(B)
    cluster.start(B)
    cluster.run(3_000)
    assert cluster.lives[B].troubles == []
    assert scene.end(B) == 22
