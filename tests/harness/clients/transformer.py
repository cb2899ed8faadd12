"""A process that reads numbers in a group and writes each to every output, exactly once.

By confluent-kafka. It goes on until its input ends, and ends with an error where only another in
its place can go on.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

POLL_S: Final = 0.05
CALL_S: Final = 30.0


class Transformer:
    """One transaction for each batch of inputs: their outputs, and how far the inputs were read."""

    def __init__(self, bootstrap: str, source: str, outputs: str, name: str, batch: str) -> None:
        self.ended = threading.Event()
        self._source = source
        self._outputs = dict(pair.split(":") for pair in outputs.split(","))
        self._batch = int(batch)
        self._name = name
        self._count = 0
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "client.id": name}
        common["metadata.recovery.strategy"] = "none"  # see librdkafka.py
        self._producer = Producer(
            {
                **common,
                "transactional.id": name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": source,
                # Who is started in its place takes its partitions at once.
                "group.instance.id": name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def run(self) -> None:
        self._again(self._producer.init_transactions)
        self._consumer.subscribe([self._source])
        while not self.ended.is_set():
            messages = self._consumer.consume(self._batch, POLL_S)
            taken = [message for message in messages if message.error() is None]
            if taken:
                self._transform(taken)
        self._consumer.close()

    def _transform(self, messages: list[Message]) -> None:
        try:
            self._write(messages)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if not error.txn_requires_abort():
                raise  # fenced, or worse
            self._again(self._producer.abort_transaction)
            self._go_back()

    def _write(self, messages: list[Message]) -> None:
        self._count += 1
        tag = f"{self._name}/{os.getpid()}/{self._count}".encode()
        offsets: dict[int, int] = {}
        self._producer.begin_transaction()
        for message in messages:
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            offsets[partition] = offset + 1
            for topic, partitions in self._outputs.items():
                self._write_one(topic, value, tag, int(value) % int(partitions))
        places = [TopicPartition(self._source, one, at) for one, at in offsets.items()]
        group = self._consumer.consumer_group_metadata()
        self._again(self._producer.send_offsets_to_transaction, places, group)
        self._again(self._producer.commit_transaction)

    def _write_one(self, topic: str, value: bytes, tag: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, tag, partition=partition)
            except BufferError:
                self._producer.poll(POLL_S)
            else:
                return

    def _again(self, call: Callable[..., object], *arguments: object) -> None:
        """Until it is done: what may be tried again has changed nothing so far."""
        while True:
            try:
                call(*arguments, CALL_S)
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                if not error.retriable() or self.ended.is_set():
                    raise
            else:
                return

    def _go_back(self) -> None:
        """To what is committed: the inputs of a transaction that was aborted come again."""
        for place in self._consumer.committed(self._consumer.assignment(), CALL_S):
            place.offset = max(0, place.offset)
            self._consumer.seek(place)


def main(*words: str) -> None:
    transformer = Transformer(*words)

    def listen() -> None:
        sys.stdin.read()
        transformer.ended.set()

    threading.Thread(target=listen, daemon=True).start()
    transformer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
