"""`tidelog metrics` of a real cluster, held against `tidelog disk` and against what was done."""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.golden import told as told_by

pytestmark = pytest.mark.slow

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("metrics"), brokers=2) as cluster:
        cluster.done("topic", "create", "safe", "-p", "2", "-r", "2", "-c", "flush.policy=commit")
        cluster.done("topic", "create", "kernel", "-r", "2")
        for place in (("safe", "--partition", "1"), ("kernel",)):
            cluster.done("produce", *place, text="one record\n" * 10)
        # What is told of a flush is not there before: no two looks would be alike.
        until(lambda: _is_flushed(cluster), "the board tells once a second")
        yield cluster


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def printed(cluster: Cluster) -> Samples:
    return parsed(cluster.done("metrics").out)


def told(samples: Samples, name: str, **labels: object) -> float | None:
    key = frozenset((label, str(value)) for label, value in labels.items())
    return samples.get((f"tidelog_{name}", key))


def test_every_figure_of_disk_is_there(running: Cluster) -> None:
    before = running.done("disk", "--json").document
    samples = printed(running)
    assert {one["id"] for one in before["brokers"]} == {0, 1}
    for broker in before["brokers"]:
        assert told(samples, "broker_up", broker=broker["id"]) == 1
        assert {row["topic"] for row in broker["partitions"]} == {"safe", "kernel"}
        _is_age(told(samples, "broker_last_flush_age_seconds", broker=broker["id"]))
        for row in broker["partitions"]:
            _same(row, samples, broker["id"])
    for name, value in before["kernel"]["vm"].items():
        assert told(samples, "machine_vm_setting", setting=name) == value


def _is_flushed(cluster: Cluster) -> bool:
    brokers = cluster.done("disk", "--json").document["brokers"]
    return all(one["last_flush"] is not None for one in brokers)


def _same(row: Any, samples: Samples, broker: int) -> None:
    place = {"broker": broker, "topic": row["topic"], "partition": row["partition"]}
    for name in ("size_bytes", "cached_bytes", "unflushed_bytes", "durable_offset"):
        assert told(samples, f"log_{name}", **place) == row[name], (name, place)
    assert told(samples, "log_dirty_bytes", **place) is not None
    policy = row["flush_policy"]
    assert told(samples, "log_flush_policy_info", **place, policy=policy) == 1
    oldest = told(samples, "log_oldest_unflushed_age_seconds", **place)
    assert (oldest is None) == (row["oldest_unflushed_ms"] is None)
    took = told(samples, "log_last_flush_duration_seconds", **place)
    last = row["last_flush"]
    assert took == (None if last is None else pytest.approx(last["took_ms"] / 1_000))


def _is_age(value: float | None) -> None:
    assert value is not None
    assert value >= 0


def test_the_boards_counters_and_the_metadata_are_there(running: Cluster) -> None:
    until(lambda: (_sum(running, "broker_produced_batches_total") or 0) >= 2, "the board tells")
    samples = printed(running)
    assert told(samples, "topics") == 2
    assert told(samples, "partitions") == 3
    assert told(samples, "under_replicated_partitions") == 0
    assert told(samples, "offline_partitions") == 0
    assert told(samples, "transactions_open") == 0
    assert _sum(running, "broker_leaders") == 3
    assert _sum(running, "broker_replicas") == 6
    for topic, partition in (("safe", 0), ("safe", 1), ("kernel", 0)):
        place = {"topic": topic, "partition": partition}
        assert told(samples, "partition_leader", **place) in {0.0, 1.0}
        assert told(samples, "partition_in_sync_replicas", **place) == 2


def _sum(cluster: Cluster, name: str) -> float:
    return sum(value for (one, _), value in printed(cluster).items() if one == f"tidelog_{name}")


def test_it_serves_what_it_prints_on_loopback_until_it_is_told_to_end(running: Cluster) -> None:
    with running.open("metrics", "--port", "0", "--json") as serving:
        assert serving.stdout is not None
        url = json.loads(serving.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        host, port = url.removeprefix("http://").removesuffix("/metrics").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=30)
        client.request("GET", "/metrics")
        answer = client.getresponse()
        assert (answer.getheader("Content-Type") or "").startswith("text/plain")
        served = parsed(answer.read().decode())
        client.close()
        serving.kill()
    assert told(served, "topics") == 2
    assert served.keys() == printed(running).keys()


def test_json_needs_no_library_and_says_the_same(running: Cluster) -> None:
    document = running.done("metrics", "--json").document
    names = {row["name"] for row in document["metrics"]}
    assert names == {name for name, _ in printed(running)}


def test_texts(running: Cluster, golden: Golden) -> None:
    words = (["metrics"], ["metrics", "--json"], ["metrics", "--cluster", "other"])
    text = told_by(running, *words, ["metrics", "--port", "66000"])
    # Which broker leads, and how much there is, are not the same each time.
    text = re.sub(r"(?m)^(tidelog_\w+(?:\{.*\})?) \S+(?: s)?$", r"\1 N", text)
    text = re.sub(r'"value": [^}]+\}', '"value": N}', text)
    golden("cli_metrics", text)


def test_a_cluster_that_is_down_tells_of_its_files(running: Cluster) -> None:
    before = printed(running)
    running.stop()
    samples = printed(running)
    running.start()
    for broker in (0, 1):
        assert told(samples, "broker_up", broker=broker) == 0
        assert told(samples, "broker_leaders", broker=broker) is None
        place = {"broker": broker, "topic": "kernel", "partition": 0}
        assert told(samples, "log_size_bytes", **place) == told(before, "log_size_bytes", **place)
