"""All brokers of a cluster restarted in turn while clients work: nobody is refused anything, and
who led before leads afterwards.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.raw_socket import RawClient
from harness.clients.steady import (
    PARTITIONS,
    Steady,
    SteadyAioKafka,
    SteadyConfluent,
    SteadyKafkaPython,
    faults,
)
from harness.processes.cluster import Cluster, until
from tidelog.wire.messages import k03_metadata as k03

pytestmark = pytest.mark.slow

CLIENTS = (SteadyConfluent, SteadyKafkaPython, SteadyAioKafka)


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, factor: int = 3) -> str:
    words = ("--partitions", str(PARTITIONS), "--replication-factor", str(factor))
    cluster.done("topic", "create", topic, *words, "-c", "min.insync.replicas=2")
    return topic


def partitions(cluster: Cluster, topic: str) -> dict[int, Any]:
    with RawClient(cluster.bootstrap.split(",")[0]) as raw:
        answer = raw.ask(k03.API, 9, k03.MetadataRequest(topics=None))
    (rows,) = [one.partitions for one in answer.topics if one.name == topic]
    return {row.partition_index: row for row in rows}


def leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    return {number: row.leader_id for number, row in partitions(cluster, topic).items()}


def numbers(cluster: Cluster, topic: str, partition: int) -> list[int]:
    address = cluster.bootstrap.split(",")[leaders(cluster, topic)[partition]]
    with RawClient(address) as raw:
        return [int(row.value) for row in fetch_all(raw, topic, partition=partition)]


def test_no_client_is_refused_a_record_while_all_brokers_are_restarted(trio: Cluster) -> None:
    running: list[Steady] = [
        client(trio.bootstrap, create(trio, f"t{at}")) for at, client in enumerate(CLIENTS)
    ]
    before = {client.topic: leaders(trio, client.topic) for client in running}
    pids = {trio.broker_pid(broker) for broker in range(3)}
    for client in running:
        client.start()
    until(lambda: all(numbers(trio, one.topic, 0) for one in running), "all of them write")
    done = trio.done("broker", "restart", "--rolling", "--json")
    assert [row["id"] for row in done.document["processes"]] == [0, 1, 2]
    assert done.err.count("is in sync again") == 3
    time.sleep(1)  # and go on afterwards
    assert not pids & {trio.broker_pid(broker) for broker in range(3)}
    found = {}
    for client in running:
        outcome = client.finish()
        logs = [numbers(trio, client.topic, partition) for partition in range(PARTITIONS)]
        found[client.name] = faults(outcome, logs)
    assert found == {client.name: [] for client in running}
    assert {client.topic: leaders(trio, client.topic) for client in running} == before


def test_a_broker_that_does_not_come_back_ends_the_roll(trio: Cluster) -> None:
    create(trio, "t")
    pid = trio.broker_pid(2)
    properties = trio.data / "broker-1/log0/meta.properties"
    properties.write_text(properties.read_text().replace("cluster.id=", "cluster.id=x"))
    refused = trio.command("broker", "restart", "--rolling", "--json")
    assert refused.code == 1
    assert [row["id"] for row in json.loads(refused.out)["processes"]] == [0]
    assert "the roll has stopped; still to be restarted: 1, 2" in refused.err
    assert trio.broker_pid(2) == pid


def test_leaders_go_back_by_themselves(tmp_path: Path) -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1"}
    with Cluster(tmp_path, brokers=3, settings=settings) as cluster:
        topic = create(cluster, "t")
        before = leaders(cluster, topic)
        assert set(before.values()) == {0, 1, 2}
        cluster.done("broker", "kill", "1")
        until(lambda: 1 not in leaders(cluster, topic).values(), "others lead what it led")
        cluster.done("broker", "start", "1")
        until(lambda: leaders(cluster, topic) == before, "it leads again what it led")
