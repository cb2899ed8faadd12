"""A broker killed under idempotent producers and started again: each record is there once."""

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.clients.confluent import Confluent
from harness.clients.everyone import WRITERS, writer
from harness.clients.facts import (
    DEADLINE_S,
    Position,
    Record,
    Writing,
    fresh_topic,
    now_ms,
)
from harness.cluster import Cluster

PACED = [name for name in WRITERS if name != "kafkajs"]
"""kafkajs takes its records as a list, so none can come while the broker is away."""

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", PACED)]

CRASHES = 3
RECORDS_A_LEG = 400
"""Handed over between one crash and the next."""


class Feed:
    """Hands records over at a pace until told to end; each says its place in the order."""

    def __init__(self) -> None:
        self.handed = 0
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def __iter__(self) -> Iterator[Record]:
        while not self._ended.is_set():
            yield Record(b"%d" % self.handed, timestamp_ms=now_ms())
            self.handed += 1
            if self.handed % 4 == 0:
                time.sleep(0.004)

    def wait_for(self, handed: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.handed < handed:
            assert time.monotonic() < deadline, f"{self.handed} of {handed} handed over"
            time.sleep(0.01)


@pytest.fixture
def client_garbage() -> Iterator[None]:
    """kafka-python leaves sockets of refused connections to the collector: let it find them here,
    where the mark below forgives them."""
    yield
    gc.collect()


@pytest.mark.usefixtures("client_garbage")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_kill_neither_loses_nor_doubles_nor_swaps_records(
    fresh_cluster: Cluster, name: str
) -> None:
    client = writer(name, fresh_cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)
    feed = Feed()

    with ThreadPoolExecutor(1) as pool:
        produced = pool.submit(client.produce, topic, feed, writing=Writing(linger_ms=2))
        try:
            for crash in range(1, CRASHES + 1):
                feed.wait_for(crash * RECORDS_A_LEG)
                fresh_cluster.done("broker", "kill", "0")
                fresh_cluster.done("broker", "start", "0")
            feed.wait_for((CRASHES + 1) * RECORDS_A_LEG)
        finally:
            feed.end()
        positions = produced.result(DEADLINE_S)

    look = Confluent(fresh_cluster.bootstrap)
    assert positions == [Position(0, offset) for offset in range(feed.handed)]
    assert look.span(topic, 0) == (0, feed.handed)
    found = look.read(topic, 0, start=0, count=feed.handed)
    assert [row.record.value for row in found] == [b"%d" % n for n in range(feed.handed)]
