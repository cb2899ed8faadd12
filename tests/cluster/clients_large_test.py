"""Large records: what fits by default, what is refused, what a topic may raise."""

import random

import pytest

from harness.clients import raw
from harness.clients.confluent import Confluent
from harness.clients.everyone import WRITERS, present_readers, writer
from harness.clients.facts import (
    MESSAGE_TOO_LARGE,
    Position,
    Record,
    Refused,
    Running,
    Writing,
    fresh_topic,
    now_ms,
    stored,
)

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", WRITERS)]

KIB = 1 << 10
MIB = 1 << 20
ROOMY = Writing(request_bytes_max=32 * MIB)
"""The client lets through what the broker shall judge."""


def _noise(size: int) -> Record:
    """Bytes that no codec makes smaller."""
    return Record(random.Random(size).randbytes(size), key=b"large", timestamp_ms=now_ms())


def test_900_kib_pass_with_the_defaults(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)
    records = [_noise(900 * KIB), Record(b"small, after it", timestamp_ms=now_ms())]

    positions = client.produce(topic, records)

    assert positions == [Position(0, 0), Position(0, 1)]
    for reader in present_readers(cluster.bootstrap):
        found = reader.read(topic, 0, start=0, count=2)
        assert found == stored(records), f"read by {reader.name}"


def test_more_than_a_mib_is_refused_and_leaves_nothing(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)

    with pytest.raises(Refused) as refused:
        client.produce(topic, [_noise(MIB + 2 * KIB)], writing=ROOMY)

    assert refused.value.code == MESSAGE_TOO_LARGE
    assert raw.batches(cluster.bootstrap, topic) == []
    after = Record(b"the partition goes on", timestamp_ms=now_ms())
    assert Confluent(cluster.bootstrap).produce(topic, [after]) == [Position(0, 0)]


def test_8_mib_pass_where_the_topic_allows_them(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic, configs={"max.message.bytes": str(9 * MIB)})
    records = [_noise(8 * MIB), Record(b"small, after it", timestamp_ms=now_ms())]

    positions = client.produce(topic, records, writing=ROOMY)

    assert positions == [Position(0, 0), Position(0, 1)]
    for reader in present_readers(cluster.bootstrap):
        found = reader.read(topic, 0, start=0, count=2)
        assert found == stored(records), f"read by {reader.name}"
