"""A compacted topic of a real cluster: what is written, what a consumer makes of it, its files."""

import random
from contextlib import suppress
from pathlib import Path

from harness.clients.fetch_raw import VERSION as FETCH_VERSION
from harness.clients.fetch_raw import fetch_request, offset_at
from harness.clients.produce_raw import VERSION, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import Record, build_batch, check_crc, iterate_batches, iterate_records

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
    """A pass that ends meanwhile gives its files other names: then they are looked for again."""
    while True:
        with suppress(FileNotFoundError):
            return sum(path.stat().st_size for path in files(cluster, topic))


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
