"""`tidelog disk` of a real cluster, running and down: what is flushed under which policy."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden, told

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("disk")) as cluster:
        cluster.create_topic("kernel")
        cluster.done("topic", "create", "safe", "-c", "flush.policy=commit")
        for topic in ("kernel", "safe"):
            cluster.done("produce", topic, text="one record\n")
        yield cluster


def partition(cluster: Cluster, topic: str) -> Any:
    (broker,) = cluster.done("disk", topic, "--json").document["brokers"]
    (row,) = broker["partitions"]
    return row


def last_flush(cluster: Cluster) -> Any:
    (broker,) = cluster.done("disk", "--json").document["brokers"]
    return broker["last_flush"]


def test_under_os_what_is_acknowledged_is_unflushed(running: Cluster) -> None:
    row = partition(running, "kernel")
    assert row["flush_policy"] == "os"
    assert row["unflushed_bytes"] == row["size_bytes"] > 0
    assert row["durable_offset"] == 0
    assert row["oldest_unflushed_ms"] >= 0
    assert row["cached_bytes"] == row["size_bytes"]


def test_under_commit_nothing_acknowledged_is_unflushed(running: Cluster) -> None:
    row = partition(running, "safe")
    assert row["flush_policy"] == "commit"
    assert row["size_bytes"] > 0
    assert row["unflushed_bytes"] == 0
    assert row["durable_offset"] == 1
    assert row["oldest_unflushed_ms"] is None


def test_the_last_flush_and_its_duration_are_shown(running: Cluster) -> None:
    until(lambda: last_flush(running) is not None, "the board tells once a second")
    flush = last_flush(running)
    assert flush["took_ms"] > 0
    assert flush["age_ms"] >= 0


def test_each_partition_has_a_last_flush_of_its_own(running: Cluster) -> None:
    assert partition(running, "kernel")["last_flush"] is None, "nobody asked the disk yet"
    flush = partition(running, "safe")["last_flush"]
    assert flush["took_ms"] > 0
    assert flush["age_ms"] >= 0


def test_it_is_shown_again_every_second(running: Cluster) -> None:
    with running.open("disk", "kernel", "--watch", "--json") as watching:
        assert watching.stdout is not None
        rows = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.kill()
    assert [row["brokers"][0]["partitions"][0]["topic"] for row in rows] == ["kernel"] * 2


def test_texts(running: Cluster, golden: Golden) -> None:
    until(lambda: last_flush(running) is not None, "the board tells once a second")
    text = told(
        running,
        ["disk"],
        ["disk", "safe:0", "--segments"],
        ["disk", "safe", "--segments", "--json"],
        ["disk", "saf"],
        ["disk", "safe:1"],
        ["disk", "safe:x"],
        ["disk", "--broker", "3"],
        ["disk", "--cluster", "other"],
    )
    # What the kernel does meanwhile is its own affair.
    text = re.sub(r'"((?:dirty|cached|writeback)_bytes|dirty_\w+)": \d+', r'"\1": N', text)
    text = re.sub(r'"(age_ms|took_ms)": [\d.]+', r'"\1": MS', text)
    text = re.sub(r"\b\d+(\.\d+)? ([KMG]i)?B\b", "SIZE", text)
    text = re.sub(r"(above|older than|every) \S.*", r"\1 LIMIT", text)
    text = re.sub(r"(N s|[\d.]+ min)\b", "AGE", text)
    golden("cli_disk", text)


def test_a_cluster_that_is_down_shows_what_its_ledgers_say(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("kernel")
        cluster.done("produce", "kernel", text="one record\n")
        before = partition(cluster, "kernel")
        cluster.stop()
        document = cluster.done("disk", "--json").document
        cluster.start()
    (broker,) = document["brokers"]
    assert (broker["state"], broker["flush_policy"]) == ("stopped", "os")
    (after,) = broker["partitions"]
    assert after["unflushed_bytes"] == before["unflushed_bytes"] > 0
    assert after["durable_offset"] == 0
