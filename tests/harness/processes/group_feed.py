"""What the members of random runs read: numbers, in their order, in each partition of a topic."""

import threading
from typing import Final

import confluent_kafka

from harness.clients.librdkafka import LIVING

TOPIC: Final = "tides"
PARTITIONS: Final = 24


class Feed:
    """Numbers the records of each partition, so that whoever reads one knows its offset."""

    EVERY_S = 0.01

    def __init__(self, bootstrap: str) -> None:
        self.failed: list[str] = []
        self.sent = [0] * PARTITIONS
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the producer hangs"

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 100_000,
                **LIVING,
            }
        )
        turn = 0
        while not self._stop.wait(self.EVERY_S):
            at = turn % PARTITIONS
            value = b"%d" % self.sent[at]
            producer.produce(TOPIC, value, str(at), partition=at, on_delivery=self._told)
            self.sent[at] += 1
            turn += 1
            producer.poll(0)
        if producer.flush(110):
            self.failed.append("records were neither acknowledged nor refused")

    def _told(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))
