"""A broker taken out of a cluster under load, and what is left of it: nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from harness.clients.fetch_raw import fetch_all
from harness.clients.raw_socket import RawClient
from harness.clients.steady import (
    ACKED_MIN,
    PARTITIONS,
    SteadyConfluent,
    SteadyKafkaPython,
    faults,
)
from harness.processes.cluster import Cluster, until
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Links
from tidelog.tools.log_files.data_folder import open_folder

OFFSETS = "__consumer_offsets"
pytestmark = pytest.mark.slow


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, factor: int, partitions: int = PARTITIONS) -> str:
    words = ("--partitions", str(partitions), "--replication-factor", str(factor))
    cluster.done("topic", "create", topic, *words)
    return topic


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.status()["bootstrap"], "log_level": 0})


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    rows = admin(cluster).list_topics(topic, timeout=20).topics[topic].partitions
    return [list(rows[number].replicas) for number in sorted(rows)]


def numbers(cluster: Cluster, topic: str, partition: int) -> list[int]:
    found = admin(cluster).list_topics(topic, timeout=20)
    leader = found.brokers[found.topics[topic].partitions[partition].leader]
    with RawClient(f"{leader.host}:{leader.port}") as raw:
        return [int(row.value) for row in fetch_all(raw, topic, partition=partition)]


def written(cluster: Cluster, topic: str) -> int:
    return sum(len(numbers(cluster, topic, partition)) for partition in range(PARTITIONS))


def writes_on(cluster: Cluster, topic: str) -> None:
    enough = max(written(cluster, topic), ACKED_MIN) + ACKED_MIN
    until(lambda: written(cluster, topic) > enough, "it is written on")


def ids(cluster: Cluster) -> list[int]:
    return [row["id"] for row in cluster.status()["processes"] if row["role"] == "broker"]


def cut(board: Board, ms: int) -> None:
    """Both other brokers from broker 1."""
    for one in (0, 2):
        board.links.set(BrokerId(one), BrokerId(1), ms)


def test_a_broker_is_removed_under_load_and_the_rest_start_again(trio: Cluster) -> None:
    running = [
        SteadyConfluent(trio.bootstrap, create(trio, "a", 2)),
        SteadyKafkaPython(trio.bootstrap, create(trio, "b", 2)),
    ]
    create(trio, "alone", 1, 6)
    for client in running:
        client.start()
    until(lambda: all(numbers(trio, one.topic, 0) for one in running), "both write")
    document = json.loads(trio.done("broker", "remove", "1", "--json").out)
    assert (document["broker"], document["brokers"]) == (1, [0, 2])
    trio.until_heard()
    assert document["moved"] == 2 + 2 + 2 + 50  # those that keep offsets, too
    for client in running:
        writes_on(trio, client.topic)
        outcome = client.finish()
        logs = [numbers(trio, client.topic, partition) for partition in range(PARTITIONS)]
        assert faults(outcome, logs) == [], client.name
        assert all(set(some) == {0, 2} for some in replicas(trio, client.topic))
    assert {one for (one,) in replicas(trio, "alone")} == {0, 2}
    assert ids(trio) == [0, 2]
    assert not (trio.data / "broker-1").exists()
    assert sorted(admin(trio).list_topics(timeout=20).brokers) == [0, 2]
    assert {len(some) for some in replicas(trio, OFFSETS)} == {2}
    assert json.loads(trio.done("broker", "add", "--json").out)["raised"] == 50
    trio.until_heard()
    assert all(set(some) == {0, 2, 3} for some in replicas(trio, OFFSETS))
    assert ids(trio) == [0, 2, 3]
    trio.stop()
    assert sorted(open_folder(trio.data).image.brokers) == [0, 2, 3]
    trio.start()
    assert ids(trio) == [0, 2, 3]
    trio.done("broker", "restart", "--rolling")


def test_a_removal_that_was_killed_goes_on_when_it_is_asked_again(trio: Cluster) -> None:
    create(trio, "t", 2, 40)
    board = Board.open(board_name(trio.runs[-1].run_id))
    cut(board, Links.CUT)  # nothing that broker 1 shall get arrives
    with trio.open("broker", "remove", "2") as removal:
        until(
            lambda: any(len(some) > 2 for some in replicas(trio, "t")),
            "replicas are on their way",
        )
        removal.kill()
    cut(board, 0)
    board.close()
    trio.done("broker", "remove", "2")
    assert ids(trio) == [0, 1]
    trio.until_heard()
    assert all(set(some) == {0, 1} for some in replicas(trio, "t"))


def test_a_broker_that_was_stopped_and_forgotten_by_a_killed_removal_goes(trio: Cluster) -> None:
    trio.done("broker", "stop", "2")
    admin_words = ("broker", "remove", "2", "--json")
    assert trio.done(*admin_words).document["moved"] == 0
    assert ids(trio) == [0, 1]


def test_what_cannot_be_removed_stays_and_says_why(trio: Cluster) -> None:
    create(trio, "t", 3, 1)
    refused = trio.command("broker", "remove", "2")
    assert refused.code == 1
    assert "t-0 has 3 replicas, and 2 brokers would be left" in refused.err
    assert trio.command("broker", "remove", "7").code == 3
    trio.done("topic", "delete", "t", "--yes")
    trio.done("broker", "kill", "1")
    refused = trio.command("broker", "remove", "2")
    assert (refused.code, "broker 1 is killed" in refused.err) == (1, True)
    trio.done("broker", "remove", "1")
    trio.done("broker", "remove", "2")
    refused = trio.command("broker", "remove", "0")
    assert (refused.code, "the last one" in refused.err) == (1, True)
    assert ids(trio) == [0]
