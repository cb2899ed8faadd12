"""The partition a client chooses is the one its records lie in, and keys choose alike."""

import pytest

from harness.clients.confluent import Confluent
from harness.clients.everyone import READERS, WRITERS, reader, writer
from harness.clients.facts import Position, Record, Running, Writing, fresh_topic, now_ms, stored
from harness.clients.murmur import partition_of

pytestmark = pytest.mark.slow

PARTITIONS = 5


@pytest.mark.parametrize("name", WRITERS)
def test_records_lie_in_the_partition_that_was_named(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic, partitions=3)
    records = [Record(b"%d" % number, timestamp_ms=now_ms()) for number in range(4)]

    positions = client.produce(topic, records, partition=2)

    look = Confluent(cluster.bootstrap)
    assert positions == [Position(2, offset) for offset in range(4)]
    assert [look.span(topic, partition) for partition in range(3)] == [(0, 0), (0, 0), (0, 4)]
    assert look.read(topic, 2, start=0, count=4) == stored(records, partition=2)


@pytest.mark.parametrize("name", WRITERS)
def test_a_key_chooses_the_same_partition_with_every_client(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic, partitions=PARTITIONS)
    keys = [f"key-{number}".encode() for number in range(40)]
    records = [Record(b"v", key=key, timestamp_ms=now_ms()) for key in keys]

    client.produce(topic, records, partition=None)

    expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for key in keys:
        expected[partition_of(key, PARTITIONS)].append(key)
    look = Confluent(cluster.bootstrap)
    for partition, its_keys in expected.items():
        assert look.span(topic, partition) == (0, len(its_keys))
        found = look.read(topic, partition, start=0, count=len(its_keys))
        assert [row.record.key for row in found] == its_keys


@pytest.mark.parametrize("name", WRITERS)
def test_records_without_key_go_to_some_partition_and_none_is_lost(
    cluster: Running, name: str
) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic, partitions=3)
    values = {b"%d" % number for number in range(50)}

    client.produce(
        topic, [Record(value, timestamp_ms=now_ms()) for value in values], partition=None
    )

    look = Confluent(cluster.bootstrap)
    counts = [look.span(topic, partition)[1] for partition in range(3)]
    found = [
        row.record
        for partition, count in enumerate(counts)
        for row in look.read(topic, partition, start=0, count=count)
    ]
    assert len(found) == 50
    assert {record.value for record in found} == values
    assert {record.key for record in found} == {None}


@pytest.mark.parametrize("name", READERS)
def test_each_partition_is_read_by_itself(cluster: Running, name: str) -> None:
    client = reader(name, cluster.bootstrap)
    look = Confluent(cluster.bootstrap)
    topic = fresh_topic()
    look.create_topic(topic, partitions=3)
    records = {
        partition: [Record(b"%d" % partition, timestamp_ms=now_ms())] * (partition + 1)
        for partition in range(3)
    }
    for partition, its_records in records.items():
        look.produce(topic, its_records, partition=partition, writing=Writing(idempotent=False))

    for partition, its_records in records.items():
        assert client.span(topic, partition) == (0, len(its_records))
        found = client.read(topic, partition, start=0, count=len(its_records))
        assert found == stored(its_records, partition=partition)
