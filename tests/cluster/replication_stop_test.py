"""A broker that is asked to stop hands over what it alone has acknowledged."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from harness.clients.librdkafka import LIVING
from harness.processes.cluster import Cluster, until

TOPIC = "handed-over"
PARTITIONS = 3


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        cluster.done("topic", "create", TOPIC, *words)
        yield cluster


class Load:
    """A producer that waits for its leader alone, and remembers what that said."""

    def __init__(self, bootstrap: str) -> None:
        self.acked = set[int]()
        self.failed = list[str]()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0, **LIVING}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def go_on(self) -> None:
        """Until more records went in."""
        enough = len(self.acked) + 500
        until(lambda: len(self.acked) >= enough, "records go in")

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                TOPIC,
                str(number).encode(),
                partition=number % PARTITIONS,
                on_delivery=partial(self._told, number),
            )
            number += 1
            self._producer.poll(0 if len(self._producer) < 1_000 else 0.01)
        assert self._producer.flush(30) == 0

    def _told(self, number: int, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is None:
            self.acked.add(number)
        else:
            self.failed.append(str(error))


def numbers_in(bootstrap: str) -> set[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none, it assigns itself",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
    found, ended = set[int](), set[int]()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(10)
            assert message is not None
            error = message.error()
            if error is None:
                found.add(int(message.value() or b""))
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def test_stops_one_after_the_other_lose_nothing_that_a_leader_alone_acknowledged(
    trio: Cluster,
) -> None:
    load = Load(trio.bootstrap)
    try:
        for broker in range(3):
            load.go_on()
            trio.done("broker", "stop", str(broker))
            trio.done("broker", "start", str(broker))
            trio.done("wait", "isr", TOPIC)
    finally:
        load.finish()
    assert load.failed == []
    # What a leader alone acknowledged is shown once its followers have it, too.
    until(lambda: load.acked <= numbers_in(trio.bootstrap), "all that was acknowledged is there")
