"""What a simulated client sees of a broker that stands still or dies: what a socket would show; and
what the witness makes of an election."""

from harness.simulation.clients import METADATA, Asked, Clients
from harness.simulation.cluster import HANG_KNOWN_MS, A, B, C, SimulatedCluster
from tidelog.kernel.ids import Partition
from tidelog.wire.messages import k03_metadata as k03


def ask(cluster: SimulatedCluster) -> Asked:
    request = k03.MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return Asked(cluster.lives[A], k03.API, METADATA, request, lambda: None)


def test_a_request_to_a_broker_that_stands_still_ends_when_the_broker_is_killed() -> None:
    cluster = SimulatedCluster()
    cluster.pause(A)
    asked = ask(cluster)
    assert not asked.is_over
    cluster.kill(A)
    cluster.run(1)
    assert (asked.is_over, asked.answer) == (True, None)


def test_a_request_to_a_broker_that_stands_still_is_answered_when_it_goes_on() -> None:
    cluster = SimulatedCluster()
    cluster.pause(A)
    asked = ask(cluster)
    cluster.resume(A)
    assert asked.answer is not None


def test_a_request_to_a_broker_that_is_given_up_ends_once() -> None:
    cluster = SimulatedCluster()
    cluster.pause(A)
    ends: list[None] = []
    asked = ask(cluster)
    asked._done = lambda: ends.append(None)
    cluster.run(HANG_KNOWN_MS + 1)
    assert asked.is_over
    cluster.resume(A)
    assert (ends, asked.answer) == ([None], None)


def test_a_lossy_election_of_a_replica_that_never_held_a_record_loses_all_there_is() -> None:
    cluster = SimulatedCluster()
    cluster.create("t", A, B, C)
    cluster.until(lambda: cluster.leads(A))
    clients = Clients(cluster)
    write = clients.write(A)
    cluster.until(lambda: write.is_acked)
    key = ("t", Partition(0))
    cluster.witness.truth(key).copies.pop(C, None)
    assert len(cluster.witness.lossy_election(key, C)) == 1
