"""Brokers that were away, or led for a while, find their place again."""

from harness.simulation.clients import Clients, shown
from harness.simulation.cluster import A, B, C, SimulatedCluster
from tidelog.wire.checkpoints import RECOVERY_POINTS


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_the_next_one() -> None:
    cluster = SimulatedCluster()
    clients = Clients(cluster)
    cluster.create("t", A, B, C, min_insync_replicas="1")
    clients.wrote(A, 3)
    cluster.pause(A)
    cluster.until(lambda: cluster.leads(B))  # in epoch 1, and nobody writes
    cluster.pause(B)
    cluster.until(lambda: cluster.leads(C))
    clients.wrote(C, 2)
    cluster.resume(B)
    cluster.resume(A)
    cluster.until(lambda: set(cluster.view().isr) == {A, B, C})
    clients.wrote(C)
    assert [shown(cluster.replica(one).log) for one in (A, B, C)] == ["0-2:0 3-5:2"] * 3


def test_a_log_that_lost_its_first_segment_is_filled_again_from_the_front() -> None:
    cluster = SimulatedCluster()
    clients = Clients(cluster)
    cluster.create("t", A, B, C, min_insync_replicas="2", segment_bytes="4096")
    for _ in range(10):
        clients.wrote(A, 3, size=500)
    directory = cluster.replica(B).log.directory
    first, second = sorted(name for name in directory.names() if name.endswith(".log"))[:2]
    cluster.lives[B].flush()
    cluster.lose_power(B)
    directory = cluster.disks[B].directory().directory("t-0")
    directory.unlink(first)
    cluster.disks[B].directory().unlink(RECOVERY_POINTS)
    cluster.start(B)
    (log,) = cluster.lives[B].logs
    assert log.start == int(second.removesuffix(".log")) > 0
    cluster.until(lambda: set(cluster.view().isr) == {A, B, C})
    clients.wrote(A)
    cluster.run(50)
    assert cluster.replica(B).log.start == 0
    clients.check_all_is_there()
