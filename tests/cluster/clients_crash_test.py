"""Idempotent producers whose answers are lost or whose broker dies: each record is there once."""

import time
from collections.abc import Callable

import pytest

from harness.clients import raw
from harness.clients.confluent import Confluent
from harness.clients.everyone import WRITERS, writer
from harness.clients.facts import (
    DEADLINE_S,
    Position,
    Record,
    Refused,
    Running,
    Writing,
    fresh_topic,
    now_ms,
)
from harness.clients.feed import Aside, Feed, value_of
from harness.clients.relay import Relay
from harness.processes.cluster import Cluster

PACED = [name for name in WRITERS if name != "kafkajs"]
"""kafkajs takes its records as a list, so none can come while the broker is away."""

pytestmark = pytest.mark.slow

CRASHES = 3
LOSSES = 4
RECORDS_A_LEG = 200
"""Handed over between one fault and the next."""


@pytest.mark.parametrize("name", PACED)
def test_a_kill_neither_loses_nor_doubles_nor_swaps_records(
    fresh_cluster: Cluster, name: str
) -> None:
    client = writer(name, fresh_cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)
    feed = Feed(pause_s=0.004)

    produced = Aside(lambda: client.produce(topic, feed, writing=Writing(linger_ms=2)))
    try:
        for crash in range(1, CRASHES + 1):
            _wait_until_stored(fresh_cluster.bootstrap, topic, crash * RECORDS_A_LEG)
            fresh_cluster.done("broker", "kill", "0")
            fresh_cluster.done("broker", "start", "0")
        feed.wait_for((CRASHES + 1) * RECORDS_A_LEG)
    finally:
        feed.end()
    positions = produced.result()

    _assert_each_once(fresh_cluster.bootstrap, topic, feed.handed, positions)


@pytest.mark.parametrize("name", PACED)
def test_a_batch_whose_answer_was_lost_is_not_appended_again(cluster: Running, name: str) -> None:
    topic = fresh_topic()
    Confluent(cluster.bootstrap).create_topic(topic)
    feed = Feed(pause_s=0.004)

    with Relay(cluster.bootstrap) as relay:
        client = writer(name, relay.bootstrap)
        produced = Aside(lambda: client.produce(topic, feed, writing=Writing(linger_ms=2)))
        try:
            for loss in range(1, LOSSES + 1):
                _wait_until_stored(cluster.bootstrap, topic, loss * RECORDS_A_LEG)
                relay.lose_next_answer()
                _wait_until(lambda: relay.lost, loss, "answers lost")
            feed.wait_for((LOSSES + 1) * RECORDS_A_LEG)
        finally:
            feed.end()
        positions = produced.result()

    _assert_each_once(cluster.bootstrap, topic, feed.handed, positions)


@pytest.mark.parametrize("name", PACED)
def test_a_broker_knows_after_a_kill_whose_answer_was_lost_before(
    fresh_cluster: Cluster, name: str
) -> None:
    topic = fresh_topic()
    Confluent(fresh_cluster.bootstrap).create_topic(topic)
    feed = Feed(pause_s=0.004)

    with Relay(fresh_cluster.bootstrap) as relay:
        client = writer(name, relay.bootstrap)
        produced = Aside(lambda: client.produce(topic, feed, writing=Writing(linger_ms=2)))
        try:
            _wait_until_stored(fresh_cluster.bootstrap, topic, RECORDS_A_LEG)
            relay.lose_next_answer(hold=True)
            _wait_until(lambda: relay.lost, 1, "answers lost")
            fresh_cluster.done("broker", "kill", "0")
            fresh_cluster.done("broker", "start", "0")
            relay.release()
            _wait_until_stored(fresh_cluster.bootstrap, topic, 3 * RECORDS_A_LEG)
        finally:
            feed.end()
        positions = produced.result()

    _assert_each_once(fresh_cluster.bootstrap, topic, feed.handed, positions)


def test_kafkajs_sends_a_batch_again_and_it_is_there_once(cluster: Running) -> None:
    topic = fresh_topic()
    Confluent(cluster.bootstrap).create_topic(topic)
    records = [Record(value_of(place), timestamp_ms=now_ms()) for place in range(50)]

    with Relay(cluster.bootstrap) as relay:
        client = writer("kafkajs", relay.bootstrap)
        relay.lose_next_answer()
        positions = client.produce(topic, records)
        assert relay.lost == 1

    _assert_each_once(cluster.bootstrap, topic, len(records), positions)


def _assert_each_once(bootstrap: str, topic: str, count: int, positions: list[Position]) -> None:
    look = Confluent(bootstrap)
    assert look.span(topic, 0) == (0, count)
    found = look.read(topic, 0, start=0, count=count)
    assert [row.record.value for row in found] == [value_of(place) for place in range(count)]
    assert positions == [Position(0, offset) for offset in range(count)]


def _wait_until_stored(bootstrap: str, topic: str, records: int) -> None:
    """Only then does the fault hit a producer at work, not one that is still connecting."""

    def count() -> int:
        try:
            return sum(batch.records for batch in raw.batches(bootstrap, topic))
        except Refused:
            return 0  # a broker that has just started may not lead yet

    _wait_until(count, records, "records stored")


def _wait_until(count: Callable[[], int], wanted: int, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (now := count()) < wanted:
        assert time.monotonic() < deadline, f"{now} of {wanted} {what}"
        time.sleep(0.01)
