"""Each client consumes the partitions it was told to, from where it was told to."""

import threading

import pytest

from harness.clients import raw
from harness.clients.aio import AioKafka
from harness.clients.confluent import Confluent
from harness.clients.everyone import READERS, reader
from harness.clients.facts import (
    OFFSET_OUT_OF_RANGE,
    Record,
    Refused,
    Running,
    Stored,
    Writing,
    fresh_topic,
    now_ms,
    stored,
)
from harness.clients.feed import Aside

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", READERS)]

PLAIN = Writing(idempotent=False)
"""The log is filled without producer ids: librdkafka waits half a second for each."""


def _numbered(count: int, *, start: int = 0) -> list[Record]:
    base_ms = now_ms()
    return [Record(b"%d" % n, timestamp_ms=base_ms + n) for n in range(start, start + count)]


def test_reading_may_start_inside_a_compressed_batch(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    look = AioKafka(cluster.bootstrap)
    topic = fresh_topic()
    look.create_topic(topic)
    records = _numbered(100)
    look.produce_batches(topic, [records], codec="lz4")
    assert [batch.codec for batch in raw.batches(cluster.bootstrap, topic)] == ["lz4"]

    for start in (0, 1, 57, 99):
        found = client.read(topic, 0, start=start, count=100 - start)
        assert found == stored(records[start:], start=start)


def test_reading_goes_on_over_many_batches_in_order(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    look = AioKafka(cluster.bootstrap)
    topic = fresh_topic()
    look.create_topic(topic)
    records = _numbered(60)
    look.produce_batches(topic, [records[start : start + 10] for start in range(0, 60, 10)])
    assert len(raw.batches(cluster.bootstrap, topic)) == 6

    assert client.span(topic, 0) == (0, 60)
    assert client.read(topic, 0, start=15, count=45) == stored(records[15:], start=15)


def test_a_consumer_at_the_end_gets_what_comes_next(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    look = Confluent(cluster.bootstrap)
    topic = fresh_topic()
    look.create_topic(topic)
    look.produce(topic, _numbered(5), writing=PLAIN)
    late = _numbered(3, start=5)

    begun = threading.Event()

    def wait_at_the_end() -> list[Stored]:
        begun.set()
        return client.read(topic, 0, start=5, count=3)

    found = Aside(wait_at_the_end)
    assert begun.wait(10)
    for record in late:
        look.produce(topic, [record], writing=PLAIN)

    assert found.result() == stored(late, start=5)


def test_an_offset_that_is_not_there_is_out_of_range(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    look = Confluent(cluster.bootstrap)
    topic = fresh_topic()
    look.create_topic(topic)
    look.produce(topic, _numbered(5), writing=PLAIN)

    with pytest.raises(Refused) as refused:
        client.read(topic, 0, start=6, count=1)

    assert refused.value.code == OFFSET_OUT_OF_RANGE
