"""Java's console tools against the broker, and against what the other clients read and wrote.

Each call is a JVM, so a test does much with one: all codecs go into one partition.
"""

from dataclasses import replace

import pytest

from harness.clients import raw
from harness.clients.confluent import Confluent
from harness.clients.everyone import MAKERS, present_readers, present_writers
from harness.clients.facts import (
    CODECS,
    Reader,
    Record,
    Running,
    Stored,
    Writing,
    fresh_topic,
    now_ms,
    stored,
)
from harness.clients.java import Java

pytestmark = pytest.mark.slow

TEXTS = [
    Record(b"plain"),
    Record(b"keyed", key=b"key"),
    Record(None, key=b"tombstone"),
    Record("läsbar ✓".encode(), key="schlüssel".encode()),
    Record(b"headers", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
    Record(b"compressible " * 500, key=b"long"),
]


def test_what_the_console_producer_writes_every_client_reads(cluster: Running) -> None:
    java = Java(cluster.bootstrap)
    topic = fresh_topic("java")
    Confluent(cluster.bootstrap).create_topic(topic)
    begun_ms = now_ms()
    for codec in CODECS:
        java.produce(topic, TEXTS, codec=codec)
    ended_ms = now_ms()

    kept = raw.batches(cluster.bootstrap, topic)
    assert {batch.codec for batch in kept} == set(CODECS)
    assert all(batch.producer_id >= 0 for batch in kept), "idempotence is Java's default"
    expected = stored(TEXTS * len(CODECS))
    clients: list[Reader | Java] = [*present_readers(cluster.bootstrap), java]
    for reader in clients:
        found = reader.read(topic, 0, start=0, count=len(expected))
        assert all(begun_ms <= row.record.timestamp_ms <= ended_ms for row in found)
        assert [_timeless(row) for row in found] == expected, f"read by {reader.name}"


def test_the_console_consumer_reads_what_every_client_wrote(cluster: Running) -> None:
    java = Java(cluster.bootstrap)
    topic = fresh_topic("java")
    Confluent(cluster.bootstrap).create_topic(topic)
    base_ms = now_ms() - 60_000
    records = [
        replace(record, timestamp_ms=base_ms + position)
        for position, record in enumerate(TEXTS)
        if record.headers == ()  # those in turn are beyond some clients
    ]
    expected = []
    for client in present_writers(cluster.bootstrap):
        for codec in MAKERS[client.name].codecs:
            client.produce(topic, records, writing=Writing(codec=codec, idempotent=False))
            expected += records

    found = java.read(topic, 0, start=0, count=len(expected))
    assert found == stored(expected)
    assert java.read(topic, 0, start=len(expected) - 3, count=3) == found[-3:]


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_the_console_consumer_reads_what_a_topic_compresses_with_a_level_of_its_own(
    cluster: Running, codec: str
) -> None:
    client = Confluent(cluster.bootstrap)
    topic = fresh_topic("java")
    level = {"compression.type": codec, f"compression.{codec}.level": "7"}
    client.create_topic(topic, configs=level)
    records = [
        Record(b"value %d " % n * 2_000, key=b"%d" % n, timestamp_ms=now_ms()) for n in range(20)
    ]
    client.produce(topic, records)
    assert {batch.codec for batch in raw.batches(cluster.bootstrap, topic)} == {codec}
    assert Java(cluster.bootstrap).read(topic, 0, start=0, count=20) == stored(records)


def test_the_console_tools_write_and_read_the_same_with_a_jvm_for_each_call(
    cluster: Running,
) -> None:
    topic = fresh_topic("java")
    Confluent(cluster.bootstrap).create_topic(topic)
    alone = Java(cluster.bootstrap, alone=True)
    alone.produce(topic, TEXTS, codec="zstd")
    found = alone.read(topic, 0, start=0, count=len(TEXTS))
    assert [_timeless(row) for row in found] == stored(TEXTS)
    assert Java(cluster.bootstrap).read(topic, 0, start=0, count=len(TEXTS)) == found


def test_the_performance_tool_sends_all_its_records(cluster: Running) -> None:
    java = Java(cluster.bootstrap, alone=True)
    look = Confluent(cluster.bootstrap)
    topic = fresh_topic("java")
    look.create_topic(topic, partitions=2)

    output = java.measure(
        topic, records=20_000, size=512, config=["acks=all", "compression.type=lz4"]
    )

    assert "20000 records sent" in output.splitlines()[-1]
    spans = [look.span(topic, partition) for partition in range(2)]
    assert sum(high - low for low, high in spans) == 20_000


def _timeless(row: Stored) -> Stored:
    return replace(row, record=replace(row.record, timestamp_ms=0))
