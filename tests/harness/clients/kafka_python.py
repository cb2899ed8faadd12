"""kafka-python as the tests drive it."""

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from harness.clients.facts import (
    CODECS,
    DEADLINE_S,
    USUAL,
    Position,
    Record,
    Refused,
    Shape,
    Stored,
    Writing,
)

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.errors import KafkaError

CLOSE_S = 5
"""Everything is answered by then; after a failure it would wait for ever."""

FETCH_BYTES_MAX = 16 << 20
"""Room for the largest record of the tests: the client's own default is 1 MiB a partition."""


class KafkaPython:
    """Drives kafka-python, which has no C below it."""

    name = "kafka-python"
    codecs = CODECS
    cannot = frozenset({Shape.NULL_HEADER, Shape.NOTHING})

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(configs or {}),
        }
        with self._admin() as admin, refusals():
            admin.create_topics({topic: wanted}, wait_for_metadata=True)

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin, refusals():
            admin.delete_topics([topic])

    def partitions(self, topic: str) -> int:
        with self._admin() as admin:
            found = {row["name"]: row for row in admin.describe_topics()}
            return len(found[topic]["partitions"]) if topic in found else 0

    def describe(self, topic: str, partition: int) -> dict[str, Any]:
        """What its admin client learns of the cluster and of one partition."""
        place = TopicPartition(topic, partition)
        with self._admin() as admin, refusals():
            (described,) = admin.describe_topics([topic])
            (broker,) = admin.describe_log_dirs({topic: [partition]})
            return {
                "cluster": admin.describe_cluster()["cluster_id"],
                "partitions": [row["partition_index"] for row in described["partitions"]],
                "broker": broker["broker"],
                "log_dirs": broker["log_dirs"],
                "producers": admin.describe_producers([place]),
                "reassignments": admin.list_partition_reassignments(),
            }

    def reassign(self, topic: str, partition: int, replicas: list[int] | None) -> bool:
        """To these, or to what there was before; whether that was taken."""
        place = TopicPartition(topic, partition)
        with self._admin() as admin, refusals():
            return bool(admin.alter_partition_reassignments({place: replicas})[place] is None)

    def reassigned(self, topic: str, partition: int) -> dict[str, list[int]] | None:
        """Replicas, and who of them comes and goes; None where nothing is under way."""
        place = TopicPartition(topic, partition)
        with self._admin() as admin, refusals():
            found: dict[Any, dict[str, list[int]]] = admin.list_partition_reassignments()
            return found.get(place)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The start of the partition then."""
        place = TopicPartition(topic, partition)
        with self._admin() as admin, refusals():
            return int(admin.delete_records({place: before})[place]["low_watermark"])

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = 0,
        writing: Writing = USUAL,
    ) -> list[Position]:
        with self._producer(writing) as producer:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            with refusals():
                answers = [future.get(timeout=DEADLINE_S) for future in futures]
        return [Position(answer.partition, answer.offset) for answer in answers]

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]:
        with self._consumer() as consumer, refusals():
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            return list(_messages(consumer, count))

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            low = consumer.beginning_offsets([place])[place]
            high = consumer.end_offsets([place])[place]
            return low, high

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else found.offset

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            yield admin

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            fetch_max_bytes=2 * FETCH_BYTES_MAX,
        )
        with closing(consumer):
            yield consumer

    @contextmanager
    def _producer(self, writing: Writing) -> Iterator[Any]:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if writing.codec == "none" else writing.codec,
            enable_idempotence=writing.idempotent,
            max_request_size=writing.request_bytes_max,
            linger_ms=writing.linger_ms,
        )
        try:
            yield producer
        finally:
            producer.close(timeout=CLOSE_S)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the client's exception into the code the broker answered with."""
    try:
        yield
    except KafkaError as failure:
        code = getattr(failure, "errno", None)
        if code is None:
            raise
        raise Refused(code) from failure


def _messages(consumer: KafkaConsumer, count: int) -> Iterator[Stored]:
    deadline = time.monotonic() + DEADLINE_S
    left = count
    while left:
        patience_s = deadline - time.monotonic()
        assert patience_s > 0, f"{left} of {count} records did not come"
        polled = consumer.poll(timeout_ms=int(patience_s * 1_000), max_records=left)
        for message in (message for batch in polled.values() for message in batch):
            yield _stored(message)
            left -= 1


def _stored(message: ConsumerRecord) -> Stored:
    record = Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
    )
    return Stored(message.partition, message.offset, record)
