"""Compaction of real processes beside logs that cannot be compacted, or only in part."""

import json
import os
import random
import signal
from pathlib import Path

import pytest

from harness.clients.compacted_topic import (
    BROKER,
    TOPIC,
    files,
    last,
    rows_of,
    size_of,
    values,
    write,
)
from harness.clients.produce_raw import produce
from harness.clients.raw_socket import RawClient
from harness.logs.odd_batches import PRODUCED, UNREADABLE, raw_batch, record
from harness.processes.cluster import Cluster, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LONG_MAX = str(2**63 - 1)
PLAIN = {**TOPIC, "cleanup.policy": "delete"}
FOR_GOOD = {**TOPIC, "delete.retention.ms": LONG_MAX}
SMALL_BYTES = 60_000
WORKER = b"tidelog.node.runtime.cleaner_worker"


def lines(cluster: Cluster, event: str, topic: str = "") -> list[dict[str, object]]:
    """What the broker has logged of it."""
    text = (cluster.data / "logs/broker-0.log").read_text()
    found = [json.loads(line) for line in text.splitlines() if f'"event": "{event}"' in line]
    return [one for one in found if one["partition"] == f"{topic}-0" or not topic]


def fill(cluster: Cluster, topic: str, seed: int = 1) -> list[tuple[bytes, bytes | None]]:
    rows = rows_of(random.Random(seed), 3_000)
    with RawClient(cluster.bootstrap) as client:
        write(client, topic, rows)
    return rows


def until_compacted(cluster: Cluster, topic: str) -> None:
    before = len(lines(cluster, "compacted", topic))
    until(lambda: len(lines(cluster, "compacted", topic)) > before, f"{topic} is compacted")


def compacted(cluster: Cluster) -> set[str]:
    return {str(line["partition"]).removesuffix("-0") for line in lines(cluster, "compacted")}


def test_odd_batches_and_settings_stop_no_compaction(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=BROKER) as cluster:
        good = cluster.create_topic("good", configs=TOPIC)
        forever = cluster.create_topic("forever", configs=FOR_GOOD)
        stamped = cluster.create_topic("stamped", configs=TOPIC)
        noisy = [
            cluster.create_topic(f"noisy-{at}", configs=PLAIN) for at, _ in enumerate(PRODUCED)
        ]
        odd = raw_batch(record(0, b"odd", None, stamp=-(2**63)), count=1)
        with RawClient(cluster.bootstrap) as client:
            for topic, kind in zip(noisy, PRODUCED, strict=True):
                assert produce(client, topic, UNREADABLE[kind]).error_code == 0
            assert produce(client, stamped, odd).error_code == 0
        for topic in (*noisy, forever, stamped):
            fill(cluster, topic)
        for topic in noisy:
            cluster.done("topic", "alter", topic, "--config", "cleanup.policy=compact")
        rows = []
        for seed in range(3):
            rows += fill(cluster, good, seed)
            until_compacted(cluster, good)
        odd_ones = {*noisy, forever, stamped}
        until(lambda: odd_ones <= compacted(cluster), "the odd ones are compacted as well")
        assert values(cluster, good) == last(rows)
        assert not lines(cluster, "compaction_failed")
        assert cluster.status()["not_compacted"] == 0


def test_a_damaged_log_is_told_of_until_it_is_gone_and_the_others_go_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=BROKER) as cluster:
        good = cluster.create_topic("good", configs=TOPIC)
        bad = cluster.create_topic("bad", configs=PLAIN)
        fill(cluster, bad)
        rot(files(cluster, bad)[0])
        cluster.done("topic", "alter", bad, "--config", "cleanup.policy=compact")
        until(lambda: cluster.status()["not_compacted"] == 1, "its compaction fails")
        rows = []
        for seed in range(2):
            rows += fill(cluster, good, seed)
            until_compacted(cluster, good)
        assert values(cluster, good) == last(rows)
        told = cluster.command("why", "partition", "bad:0").out
        assert "bad-0 is not compacted on broker 0 since" in told
        assert "its segment from offset 0 on is damaged" in told
        assert "tidelog log verify bad:0 --broker 0" in told
        assert "it does not compact 1 partition" in cluster.command("why", "broker", "0").out
        assert "compaction fails for 1 replica: tidelog why broker ID" in cluster.done("status").out
        sample = 'tidelog_broker_not_compacted_partitions{broker="0"}'
        assert f"{sample} 1" in cluster.done("metrics").out
        assert len(lines(cluster, "compaction_failed", bad)) == 1
        cluster.done("topic", "delete", bad, "--yes")
        until(lambda: cluster.status()["not_compacted"] == 0, "it is gone")
        assert f"{sample} 0" in cluster.done("metrics").out


def rot(segment: Path) -> None:
    """One byte of the first batch's records."""
    with segment.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))


def test_a_log_whose_worker_is_killed_makes_room_for_the_next(tmp_path: Path) -> None:
    """At a byte a second a pass takes days, so whoever is compacted is found at it."""
    slow = {**BROKER, "log.cleaner.io.max.bytes.per.second": "1"}
    with Cluster(tmp_path, settings=slow) as cluster:
        topics = {cluster.create_topic(name, configs=TOPIC) for name in ("one", "two")}
        for topic in sorted(topics):
            fill(cluster, topic)
        until(lambda: len(compacted_by(cluster)) == 1, "one log is compacted")
        ((pid, first),) = compacted_by(cluster)
        os.kill(pid, signal.SIGKILL)
        (second,) = topics - {first}
        until(lambda: second in {topic for _, topic in compacted_by(cluster)}, "the other one is")
        (failed,) = lines(cluster, "compaction_failed")
        assert failed["partition"] == f"{first}-0"
        assert failed["cause"] == "worker_died"
        assert failed["reason"] == "the worker process died (signal 9)"
        assert size_of(cluster, first) > SMALL_BYTES


def compacted_by(cluster: Cluster) -> list[tuple[int, str]]:
    """Each worker process, with the topic whose directory it has open."""
    found = []
    for pid in cluster.pids():
        try:
            if WORKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            places = [entry.readlink().name for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue  # it has just ended
        found += [(pid, topic) for topic in ("one", "two") if f"{topic}-0" in places]
    return found
