"""Brokers that were away, or led for a while, find their place again."""

from harness.simulated_clients import Clients, shown
from harness.simulated_cluster import A, B, C, SimulatedCluster


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
