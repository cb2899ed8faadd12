"""Commands about brokers, on real ones: a cluster that grows, and one that is restarted in turn."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.tools.supervisor.ask import Link
from tidelog.wire.messages import k03_metadata

pytestmark = pytest.mark.slow


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=2) as running:
        yield running


def test_a_broker_that_was_just_killed_by_hand_can_be_started_at_once(two: Cluster) -> None:
    link = Link.to(two.data)
    pid = two.broker_pid(1)
    for _ in range(20):
        os.kill(pid, signal.SIGKILL)
        started = link.ask("start", role="broker", id=1)["pid"]
        assert started != pid
        pid = started
    link.close()


def metadata(cluster: Cluster) -> Any:
    with RawClient(cluster.bootstrap) as raw:
        return raw.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))


def leaders(cluster: Cluster) -> set[int]:
    return {row.leader_id for topic in metadata(cluster).topics for row in topic.partitions}


def test_an_added_broker_takes_clients_and_is_given_partitions_of_new_topics(two: Cluster) -> None:
    two.create_topic(partitions=4)
    assert leaders(two) == {0, 1}
    two.done("broker", "add")
    two.until_heard()
    assert [row.node_id for row in metadata(two).brokers] == [0, 1, 2]
    two.create_topic(partitions=6)
    assert leaders(two) == {0, 1, 2}
    with RawClient(two.status()["bootstrap"].rpartition(",")[2]) as raw:
        told = raw.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))
    assert {row.node_id for row in told.brokers} == {0, 1, 2}


def test_brokers_are_restarted_in_turn_and_lead_again(two: Cluster) -> None:
    two.create_topic(partitions=4)
    before = [two.broker_pid(broker) for broker in (0, 1)]
    done = two.done("broker", "restart", "--rolling", "--json").document
    assert [(row["id"], row["did"]) for row in done["processes"]] == [
        (0, "restart"),
        (1, "restart"),
    ]
    two.until_heard()
    after = [two.broker_pid(broker) for broker in (0, 1)]
    assert not set(before) & set(after)
    assert leaders(two) == {0, 1}


def test_no_broker_is_restarted_while_a_partition_lacks_one(two: Cluster) -> None:
    two.create_topic("t", partitions=2)
    two.done("broker", "kill", "1")
    two.until_heard()
    pid = two.broker_pid(0)
    refused = two.command("broker", "restart", "--rolling", "--timeout", "0.1")
    assert refused.code == 4
    assert "has no leader" in refused.err
    assert two.broker_pid(0) == pid
