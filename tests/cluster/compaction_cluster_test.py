"""Compaction in real processes: what is left, what survives a kill, what Kafka's tools say."""

import contextlib
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from harness.cluster import Cluster, until
from harness.fetch_raw import VERSION as FETCH_VERSION
from harness.fetch_raw import fetch_request, offset_at
from harness.produce_raw import VERSION, produce_request
from harness.raw import RawClient
from tidelog.tools.supervisor.leftovers import remove_run
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import Record, build_batch, check_crc, iterate_batches, iterate_records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BROKER = {"log.cleaner.backoff.ms": "100"}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "100000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "1000",
}


def write(client: RawClient, topic: str, rows: list[tuple[bytes, bytes | None]]) -> None:
    """In batches of a hundred."""
    for start in range(0, len(rows), 100):
        part = rows[start : start + 100]
        records = [
            Record(at, 1_700_000_000_000 + at, key, value) for at, (key, value) in enumerate(part)
        ]
        answer = client.ask(
            k00_produce.API, VERSION, produce_request(topic, build_batch(records), acks=-1)
        )
        assert answer.responses[0].partition_responses[0].error_code == 0


def rows_of(rng: random.Random, count: int) -> list[tuple[bytes, bytes | None]]:
    return [
        (b"key-%d" % rng.randrange(200), None if rng.random() < 0.1 else rng.randbytes(50))
        for _ in range(count)
    ]


def files(cluster: Cluster, topic: str, suffix: str = ".log") -> list[Path]:
    return sorted((cluster.data / "broker-0/log0" / f"{topic}-0").glob(f"*{suffix}"))


def size_of(cluster: Cluster, topic: str) -> int:
    return sum(path.stat().st_size for path in files(cluster, topic) if path.exists())


def values(cluster: Cluster, topic: str) -> dict[bytes, bytes]:
    """What a consumer that reads everything makes of it."""
    rows: list[tuple[bytes, bytes | None]] = []
    with RawClient(cluster.bootstrap) as client:
        offset, end = 0, offset_at(client, topic, -1)
        while offset < end:
            answer = client.ask(k01_fetch.API, FETCH_VERSION, fetch_request(topic, offset))
            content = memoryview(answer.responses[0].partitions[0].records)
            for header, batch in iterate_batches(content):
                assert check_crc(batch)
                offset = header.next_offset
                rows += [(row.key or b"", row.value) for row in iterate_records(batch)]
    return last(rows)


def last(rows: list[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for key, value in rows:
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found


def test_old_values_go_and_the_last_ones_stay(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        rows = rows_of(random.Random(1), 20_000)
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, rows)
        until(lambda: size_of(cluster, topic) < 300_000, "the log is compacted")
        assert values(cluster, topic) == last(rows)
        until(lambda: not files(cluster, topic, ".deleted"), "old files are removed")
        assert values(cluster, topic) == last(rows)
        checkpoint = cluster.data / "broker-0/log0/cleaner-offset-checkpoint"
        until(lambda: f"{topic} 0 " in checkpoint.read_text(), "the clean point is noted")


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_killed_again_and_again_while_it_compacts_loses_no_value(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rows: list[tuple[bytes, bytes | None]] = []
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        for _ in range(5):
            more = rows_of(rng, 10_000)
            with RawClient(cluster.bootstrap) as client:
                write(client, topic, more)
            rows += more
            wanted = rng.choice([".cleaned", ".swap", ".deleted"])
            until(partial(wait_for_file, cluster, topic, wanted), wanted)
            for pid in cluster.pids():
                with contextlib.suppress(ProcessLookupError):  # a worker ends with its broker
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not cluster.pids(), "all processes are dead")
            cluster.start()
            assert values(cluster, topic) == last(rows)
        until(lambda: size_of(cluster, topic) < 300_000, "the log is compacted in the end")
        assert values(cluster, topic) == last(rows)
        for run in cluster.runs[:-1]:
            remove_run(run.run_id)


def wait_for_file(cluster: Cluster, topic: str, suffix: str) -> bool:
    """One of that kind, or none because it is all over already."""
    return bool(files(cluster, topic, suffix)) or size_of(cluster, topic) < 300_000
