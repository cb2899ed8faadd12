"""Three brokers and the controller, in real processes: elections, and what every broker knows."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20
from tidelog.wire.messages import k37_create_partitions as k37
from tidelog.wire.messages import k43_elect_leaders as k43

pytestmark = pytest.mark.slow

PARTITIONS = 60


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def clients(three: Cluster) -> Iterator[list[RawClient]]:
    """One of each broker."""
    opened = [RawClient(address) for address in three.bootstrap.split(",")]
    yield opened
    for client in opened:
        client.close()


def create(client: RawClient, name: str, *replicas: list[int]) -> int:
    topic = k19.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            k19.CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in enumerate(replicas)
        ],
        configs=[],
    )
    request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    return int(client.ask(k19.API, 7, request).topics[0].error_code)


def partitions(client: RawClient, name: str) -> list[k03.MetadataResponsePartition]:
    """As this broker knows them; none where it knows no such topic."""
    asked = [k03.MetadataRequestTopic(name=name)]
    request = k03.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    rows = client.ask(k03.API, 12, request).topics[0].partitions
    return sorted(rows, key=lambda row: row.partition_index)


def leaders(client: RawClient, name: str) -> list[int]:
    return [row.leader_id for row in partitions(client, name)]


def test_every_broker_knows_what_any_of_them_answered(
    three: Cluster, clients: list[RawClient]
) -> None:
    for number, asked in enumerate(clients * 5):
        name = f"t{number}"
        with three.known_when_answered():
            assert create(asked, name, *[[0, 1, 2]] * 8) == 0
        assert [len(partitions(one, name)) for one in clients] == [8, 8, 8]
        grown = k37.CreatePartitionsTopic(name=name, count=9, assignments=None)
        growth = k37.CreatePartitionsRequest(topics=[grown], timeout_ms=5_000)
        with three.known_when_answered():
            assert asked.ask(k37.API, 3, growth).results[0].error_code == 0
        assert [len(partitions(one, name)) for one in clients] == [9, 9, 9]
        gone = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)], timeout_ms=5_000)
        with three.known_when_answered():
            assert asked.ask(k20.API, 6, gone).responses[0].error_code == 0
        assert [len(partitions(one, name)) for one in clients] == [0, 0, 0]


def test_an_election_is_known_everywhere_when_it_is_answered(
    three: Cluster, clients: list[RawClient]
) -> None:
    assert create(clients[0], "t", *[[0, 1, 2]] * 8) == 0
    three.done("broker", "restart", "0")
    three.done("wait", "isr", "t")
    assert set(leaders(clients[1], "t")) == {1}
    request = k43.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5_000)
    with RawClient(three.bootstrap.split(",")[0]) as back:
        with three.known_when_answered():
            answer = clients[2].ask(k43.API, 2, request)
        (topic,) = answer.replica_election_results
        assert [row.error_code for row in topic.partition_result] == [0] * 8
        known = [leaders(one, "t") for one in (back, clients[1], clients[2])]
    assert known == [[0] * 8] * 3


def test_partitions_of_a_killed_leader_are_led_by_who_is_in_sync(
    three: Cluster, clients: list[RawClient]
) -> None:
    assert create(clients[0], "t", *[[0, 1, 2]] * PARTITIONS) == 0
    os.kill(three.broker_pid(0), signal.SIGKILL)
    until(lambda: set(leaders(clients[1], "t")) == {1}, "all are led again")
    until(lambda: set(leaders(clients[2], "t")) == {1}, "the other one knows, too")
    for client in clients[1:]:
        rows = partitions(client, "t")
        assert {tuple(row.isr_nodes) for row in rows} == {(1, 2)}
        assert {row.leader_epoch for row in rows} == {1}
    three.done("broker", "start", "0")
    three.done("wait", "isr", "t")
    assert set(leaders(clients[1], "t")) == {1}, "who comes back takes nothing away"


def test_a_broker_that_stops_leads_nothing_when_it_ends(
    three: Cluster, clients: list[RawClient]
) -> None:
    assert create(clients[0], "t", *[[1, 2, 0], [2, 0, 1]] * (PARTITIONS // 2)) == 0
    three.done("broker", "stop", "1")
    decided = open_folder(three.data).image.names["t"].partitions
    assert [one.leader for one in decided] == [2] * PARTITIONS
    three.until_heard()
    assert leaders(clients[0], "t") == [2] * PARTITIONS
    assert leaders(clients[2], "t") == [2] * PARTITIONS
    assert "lossy_election" not in three.logs()


def test_the_data_path_goes_on_while_the_coordinator_is_away(
    three: Cluster, clients: list[RawClient]
) -> None:
    assert create(clients[0], "t", [0, 1, 2]) == 0
    before = three.status()["controller"]
    os.kill(before["pid"], signal.SIGSTOP)
    for _ in range(20):
        answer = clients[0].ask(k00.API, 9, produce_request("t", batch_of(b"x")))
        assert answer.responses[0].partition_responses[0].error_code == 0
    with contextlib.suppress(ProcessLookupError):  # the supervisor, who was faster
        os.kill(before["pid"], signal.SIGKILL)
    until(lambda: three.status()["controller"]["pid"] not in {None, before["pid"]}, "another leads")
    three.done("wait", "ready")
    assert three.status()["controller"]["epoch"] == before["epoch"] + 1
    # A broker that has not found the new one within a while says so, or that it does not know.
    made = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    until(lambda: create(clients[1], "u", [2, 1, 0]) in made, "the new one decides")
    assert [leaders(one, "t") for one in clients] == [[0]] * 3
    assert partitions(clients[0], "t")[0].leader_epoch == 0, "nobody was fenced"


def test_a_partition_whose_replicas_are_gone_waits_for_the_last_one_in_sync(
    three: Cluster, clients: list[RawClient]
) -> None:
    assert create(clients[2], "t", [0, 1]) == 0
    three.done("broker", "kill", "1")
    until(lambda: partitions(clients[2], "t")[0].isr_nodes == [0], "1 is out")
    three.done("broker", "kill", "0")
    until(lambda: leaders(clients[2], "t") == [-1], "nobody leads")
    three.done("broker", "start", "1")
    assert leaders(clients[2], "t") == [-1], "it may lack what 0 committed alone"
    three.done("broker", "start", "0")
    until(lambda: leaders(clients[2], "t") == [0], "the last one in sync is back")


def test_leaders_are_elected_by_command(tmp_path: Path, golden: Golden) -> None:
    with Cluster(tmp_path, brokers=3) as cluster:
        text = script(
            cluster,
            "topic create orders --assignment 0:1:2,0:2:1",
            "leader elect",
            "leader elect --json",
            "broker kill 0",
            "leader elect orders",
            "broker start 0",
            "wait isr orders",
            "leader elect orders:1",
            "leader elect orders --json",
            "leader elect --unclean orders",
            "leader elect --unclean orders --yes",
            "leader elect --unclean --preferred",
            "leader elect order",
            "leader elect orders:7",
            "leader elect orders:x",
        )
    golden("cli_leader_elect", text)
