"""confluent-kafka (librdkafka) as the tests drive it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.clients.facts import (
    CODECS,
    DEADLINE_S,
    OFFSET_OUT_OF_RANGE,
    USUAL,
    Position,
    Record,
    Refused,
    Shape,
    Stored,
    Writing,
)

PARTITIONERS = {"murmur2": "murmur2_random", "own": "consistent_random"}


class Confluent:
    """Drives confluent-kafka; the same configuration works for every librdkafka binding."""

    name = "confluent-kafka"
    codecs = CODECS
    cannot: frozenset[Shape] = frozenset()

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: dict[str, Any] = {"bootstrap.servers": bootstrap}

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        admin = AdminClient(self._bootstrap)
        with refusals():
            admin.create_topics([wanted], request_timeout=DEADLINE_S)[topic].result(DEADLINE_S)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient(self._bootstrap)
        with refusals():
            admin.delete_topics([topic], request_timeout=DEADLINE_S)[topic].result(DEADLINE_S)

    def partitions(self, topic: str) -> int:
        """Ask for all topics, because asking for one by name may create it."""
        topics = AdminClient(self._bootstrap).list_topics(timeout=DEADLINE_S).topics
        return len(topics[topic].partitions) if topic in topics else 0

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = 0,
        writing: Writing = USUAL,
    ) -> list[Position]:
        producer = Producer(self._bootstrap | _producer_config(writing))
        reports: list[Message] = []
        for record in records:
            _send(producer, topic, record, partition, reports)
            producer.poll(0)
        left = producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records without an answer"
        return [_position(report) for report in reports]

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            return list(_messages(consumer, count))

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer, refusals():
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=DEADLINE_S, cached=False
            )
            return int(low), int(high)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer, refusals():
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            (found,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
            # librdkafka answers "no such record" with its code for the end of the partition.
            return int(found.offset) if found.offset >= 0 else None

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            self._bootstrap
            | {
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the client's exception into the code the broker answered with."""
    try:
        yield
    except KafkaException as failure:
        raise Refused(failure.args[0].code()) from failure


def _producer_config(writing: Writing) -> dict[str, Any]:
    return {
        "compression.type": writing.codec,
        "enable.idempotence": writing.idempotent,
        "message.max.bytes": writing.request_bytes_max,
        "linger.ms": writing.linger_ms,
        "partitioner": PARTITIONERS[writing.partitioner],
    }


def _send(
    producer: Producer,
    topic: str,
    record: Record,
    partition: int | None,
    reports: list[Message],
) -> None:
    chosen: dict[str, Any] = {} if partition is None else {"partition": partition}
    producer.produce(
        topic,
        value=record.value,
        key=record.key,
        headers=list(record.headers),
        timestamp=record.timestamp_ms,
        on_delivery=_keeper(reports),
        **chosen,
    )


def _keeper(reports: list[Message]) -> Callable[[KafkaError | None, Message], None]:
    return lambda _error, message: reports.append(message)


def _position(report: Message) -> Position:
    _check(report.error())
    partition, offset = report.partition(), report.offset()
    assert partition is not None
    assert offset is not None
    return Position(partition, offset)


def _check(failure: KafkaError | None) -> None:
    if failure is None:
        return
    if failure.code() == KafkaError._AUTO_OFFSET_RESET and "out of range" in str(failure):
        raise Refused(OFFSET_OUT_OF_RANGE)
    raise Refused(failure.code())


def _messages(consumer: Consumer, count: int) -> Iterator[Stored]:
    deadline = time.monotonic() + DEADLINE_S
    left = count
    while left:
        assert time.monotonic() < deadline, f"{left} of {count} records did not come"
        for message in consumer.consume(left, timeout=1.0):
            _check(message.error())
            yield _stored(message)
            left -= 1


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The client's type says text may come; what a consumer gives is bytes."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _stored(message: Message) -> Stored:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    record = Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(_headers(message)),
        timestamp_ms=message.timestamp()[1],
    )
    return Stored(partition, offset, record)
