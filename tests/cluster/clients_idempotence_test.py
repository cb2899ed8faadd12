"""Idempotent producers number their batches, and the numbers are kept with them."""

import pytest

from harness.clients import raw
from harness.clients.everyone import WRITERS, writer
from harness.clients.facts import (
    Record,
    Running,
    Writing,
    fresh_topic,
    now_ms,
)

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", WRITERS)]


def test_batches_carry_a_producer_id_and_follow_one_another(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)
    records = [Record(b"x" * 1_000, timestamp_ms=now_ms()) for _ in range(200)]

    client.produce(topic, records, writing=Writing(linger_ms=0))

    kept = raw.batches(cluster.bootstrap, topic)
    assert {batch.producer_id for batch in kept} != {raw.NO_PRODUCER}
    assert len({batch.producer_id for batch in kept}) == 1
    assert [batch.base_sequence for batch in kept] == [batch.base_offset for batch in kept]
    assert sum(batch.records for batch in kept) == 200


def test_two_producers_have_two_ids(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)

    for _ in range(2):
        client.produce(topic, [Record(b"x", timestamp_ms=now_ms())])

    first, second = raw.batches(cluster.bootstrap, topic)
    assert first.producer_id != second.producer_id
    assert first.base_sequence == second.base_sequence == 0


def test_without_idempotence_batches_carry_no_producer_id(cluster: Running, name: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)

    client.produce(
        topic, [Record(b"x", timestamp_ms=now_ms())] * 3, writing=Writing(idempotent=False)
    )

    kept = raw.batches(cluster.bootstrap, topic)
    assert {batch.producer_id for batch in kept} == {raw.NO_PRODUCER}
    assert sum(batch.records for batch in kept) == 3
