"""The coordinator killed under load, in real processes: what it answered is there, and brokers
serve on meanwhile."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.clients.creations import Creations, create, topics
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k22_init_producer_id as k22

pytestmark = pytest.mark.slow

KILLS = 4
CREATIONS_A_LEG = 30
MAY_BE_ANSWERED = {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}


def producer_id(client: RawClient) -> int:
    request = k22.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = client.ask(k22.API, 4, request)
    return int(answer.producer_id) if answer.error_code == 0 else -1


@pytest.fixture
def creations(fresh_cluster: Cluster) -> Iterator[Creations]:
    going = Creations(fresh_cluster.bootstrap)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(going.run)
        try:
            yield going
        finally:
            going.ended.set()
    run.result()


def test_every_answered_creation_outlives_the_coordinator(
    fresh_cluster: Cluster, creations: Creations
) -> None:
    for _ in range(KILLS):
        creations.wait_for(creations.good() + CREATIONS_A_LEG)
        fresh_cluster.done("coordinator", "kill")
    creations.wait_for(creations.good() + CREATIONS_A_LEG)
    creations.finish()
    fresh_cluster.stop()
    fresh_cluster.start()
    with RawClient(fresh_cluster.bootstrap) as client:
        there = topics(client)
    promised = {name for name, code in creations.answered.items() if code is ErrorCode.NONE}
    assert promised - creations.deleted - creations.maybe_deleted <= set(there)
    assert not creations.deleted & set(there)
    assert set(creations.answered.values()) <= MAY_BE_ANSWERED
    assert len({topic.topic_id for topic in there.values()}) == len(there)


def test_clients_are_served_while_the_coordinator_hangs(fresh_cluster: Cluster) -> None:
    topic = fresh_cluster.create_topic(partitions=2)
    pid = fresh_cluster.process("coordinator")["pid"]
    with RawClient(fresh_cluster.bootstrap) as client:
        fresh_cluster.done("coordinator", "pause")
        assert [one.leader_id for one in topics(client)[topic].partitions] == [0, 0]
        assert create(client, "unheard") in {
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.NONE,
        }
        until(
            lambda: fresh_cluster.process("coordinator")["pid"] not in {None, pid},
            "a coordinator that hangs is replaced",
        )
        # The broker may not have found it yet, or have asked the one that is gone.
        made = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        until(lambda: create(client, "heard") in made, "a new one decides")
        assert "heard" in topics(client)


def test_producer_ids_are_never_given_twice(fresh_cluster: Cluster) -> None:
    seen: list[int] = []
    with RawClient(fresh_cluster.bootstrap) as client:
        for _ in range(3):
            seen += [producer_id(client) for _ in range(600)]
            fresh_cluster.done("wait", "ready")  # a coordinator to kill
            fresh_cluster.done("coordinator", "kill")
    given = [one for one in seen if one >= 0]
    assert len(set(given)) == len(given)
    assert len(given) > 600


def test_a_damaged_metadata_log_is_a_sentence_not_a_crash(fresh_cluster: Cluster) -> None:
    for _ in range(3):
        fresh_cluster.create_topic()
    fresh_cluster.stop()
    (segment,) = (fresh_cluster.data / "coordinator/__cluster_metadata-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[90] ^= 1
    segment.write_bytes(content)
    up = fresh_cluster.command("up", "--detach", "--base-port", "0", "--brokers", "1")
    assert up.code == 1, up
    assert "the metadata log is damaged" in up.err
    assert "--data" in up.err


def test_a_topic_made_by_one_broker_is_known_to_all(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=3) as cluster:
        addresses = cluster.bootstrap.split(",")
        for number in range(9):
            with RawClient(addresses[number % 3]) as one, RawClient(addresses[-1]) as other:
                with cluster.known_when_answered():
                    assert create(one, f"t{number}", 3) is ErrorCode.NONE
                leaders = [row.leader_id for row in topics(other)[f"t{number}"].partitions]
                assert sorted(leaders) == [0, 1, 2]


def test_a_dead_broker_leads_nothing_until_it_is_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=2) as cluster:
        topic = cluster.create_topic(partitions=2)
        with RawClient(cluster.bootstrap.split(",")[0]) as client:

            def leaders() -> set[int]:
                return {row.leader_id for row in topics(client)[topic].partitions}

            assert leaders() == {0, 1}
            cluster.done("broker", "kill", "1")
            until(lambda: leaders() == {0, -1}, "its partition has no leader")
            cluster.done("broker", "start", "1")
            until(lambda: leaders() == {0, 1}, "it leads again")
            epochs = {row.leader_epoch for row in topics(client)[topic].partitions}
            assert epochs == {0, 2}


def test_a_hung_broker_leads_nothing_until_it_moves_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=2) as cluster:
        topic = cluster.create_topic(partitions=2)
        with RawClient(cluster.bootstrap.split(",")[0]) as client:

            def leaders() -> set[int]:
                return {row.leader_id for row in topics(client)[topic].partitions}

            cluster.done("broker", "pause", "1")
            until(lambda: leaders() == {0, -1}, "its partition has no leader")
            cluster.done("broker", "resume", "1")
            until(lambda: leaders() == {0, 1}, "it leads again")


def test_a_restarted_cluster_knows_what_it_knew(fresh_cluster: Cluster) -> None:
    topic = fresh_cluster.create_topic(partitions=3)
    with RawClient(fresh_cluster.bootstrap) as client:
        before = topics(client)[topic].topic_id
    fresh_cluster.stop()
    fresh_cluster.start()
    with RawClient(fresh_cluster.bootstrap) as client:
        after = topics(client)[topic]
    assert after.topic_id == before
    assert [row.leader_epoch for row in after.partitions] == [2, 2, 2]
