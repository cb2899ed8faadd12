"""A program that drives a Python client as `steady.py` says: one number after the other, in two
threads, until standard input ends. Standard output is one line of JSON with the outcome.
"""

import asyncio
import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from asyncio import Future
from collections import defaultdict
from typing import Any

import aiokafka
import confluent_kafka
import kafka

DEADLINE_S = 60.0
POLL_S = 0.05


class Threaded(ABC):
    """A client: its producer in one thread, its consumer in another."""

    name: str

    def __init__(self, call: dict[str, Any]) -> None:
        self.bootstrap: str = call["bootstrap"]
        self.topic: str = call["topic"]
        self.partitions: int = call["partitions"]
        self.every_s: float = call["every_ms"] / 1_000
        self.acked: list[int] = []
        self.refused: list[str] = []
        self.read: dict[int, list[int]] = defaultdict(list)
        self.ended = threading.Event()
        self.produced = threading.Event()
        """Every number has an outcome."""
        self._late = 0.0

    def run(self) -> None:
        threads = [threading.Thread(target=work) for work in (self.produce, self.consume)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._late = time.monotonic() + DEADLINE_S
        self.ended.set()
        for thread in threads:
            thread.join()

    def reads(self, partition: int, value: bytes | None) -> None:
        self.read[partition].append(int(value or b""))

    def has_read_all(self) -> bool:
        """Or has had its time."""
        if not self.produced.is_set():
            return False
        count = sum(map(len, self.read.values()))
        return count >= len(self.acked) or time.monotonic() > self._late

    @abstractmethod
    def produce(self) -> None: ...

    @abstractmethod
    def consume(self) -> None: ...


class SteadyConfluent(Threaded):
    name = "confluent-kafka"

    def _settings(self) -> dict[str, Any]:
        living = {"log_level": 0, "metadata.recovery.strategy": "none"}  # see librdkafka.py
        return {"bootstrap.servers": self.bootstrap, **living}

    def produce(self) -> None:
        producer = confluent_kafka.Producer({**self._settings(), "enable.idempotence": True})
        number = 0
        while not self.ended.is_set():
            producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % self.partitions,
                on_delivery=self._told,
            )
            number += 1
            producer.poll(self.every_s)
        assert producer.flush(DEADLINE_S) == 0
        self.produced.set()

    def _told(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is None:
            self.acked.append(int(message.value() or b""))
        else:
            self.refused.append(str(error))

    def consume(self) -> None:
        settings = {**self._settings(), "group.id": "steady", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings)
        places = [confluent_kafka.TopicPartition(self.topic, n, 0) for n in range(self.partitions)]
        consumer.assign(places)
        while not self.has_read_all():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self.reads(message.partition() or 0, message.value())
        consumer.close()


class SteadyKafkaPython(Threaded):
    name = "kafka-python"

    def produce(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap.split(","), acks="all")
        futures = []
        number = 0
        while not self.ended.is_set():
            value = b"%d" % number
            futures.append(producer.send(self.topic, value, partition=number % self.partitions))
            number += 1
            time.sleep(self.every_s)
        producer.flush(DEADLINE_S)
        for number, future in enumerate(futures):
            if future.succeeded():
                self.acked.append(number)
            else:
                self.refused.append(repr(future.exception))
        producer.close()
        self.produced.set()

    def consume(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","), enable_auto_commit=False
        )
        places = [kafka.TopicPartition(self.topic, n) for n in range(self.partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        while not self.has_read_all():
            for place, records in consumer.poll(timeout_ms=int(POLL_S * 1_000)).items():
                for record in records:
                    self.reads(place.partition, record.value)
        consumer.close()


class SteadyAioKafka(Threaded):
    name = "aiokafka"

    def produce(self) -> None:
        asyncio.run(self._produce())

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _produce(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True
        )
        await producer.start()
        futures: list[Future[Any]] = []
        number = 0
        while not self.ended.is_set():
            value = b"%d" % number
            futures.append(
                await producer.send(self.topic, value, partition=number % self.partitions)
            )
            number += 1
            await asyncio.sleep(self.every_s)
        await asyncio.wait_for(producer.flush(), DEADLINE_S)
        for number, future in enumerate(futures):
            failure = future.exception()
            if failure is None:
                self.acked.append(number)
            else:
                self.refused.append(repr(failure))
        await producer.stop()
        self.produced.set()

    async def _consume(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False
        )
        await consumer.start()
        places = [aiokafka.TopicPartition(self.topic, n) for n in range(self.partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        while not self.has_read_all():
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
            for place, records in found.items():
                for record in records:
                    self.reads(place.partition, record.value)
        await consumer.stop()


CLIENTS: tuple[type[Threaded], ...] = (SteadyConfluent, SteadyKafkaPython, SteadyAioKafka)


def main() -> None:
    (kind,) = [one for one in CLIENTS if one.name == sys.argv[1]]
    client = kind(json.loads(sys.stdin.readline()))
    client.run()
    outcome = {"acked": client.acked, "refused": client.refused, "read": client.read}
    sys.stdout.write(json.dumps({"outcome": outcome}) + "\n")


if __name__ == "__main__":
    main()
