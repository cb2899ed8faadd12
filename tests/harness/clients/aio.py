"""aiokafka as the tests drive it: each call is one event loop from start to end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

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

FETCH_BYTES_MAX = 16 << 20
"""Room for the largest record of the tests: the client's own default is 1 MiB a partition."""

AnswerT = TypeVar("AnswerT")


class AioKafka:
    """Drives aiokafka, whose record codec is its own."""

    name = "aiokafka"
    codecs = CODECS
    cannot = frozenset({Shape.NULL_HEADER, Shape.NOTHING})

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))

        async def create() -> None:
            async with self._admin() as admin:
                _refuse((await admin.create_topics([wanted])).topic_errors)

        asyncio.run(create())

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            async with self._admin() as admin:
                _refuse((await admin.delete_topics([topic])).topic_error_codes)

        asyncio.run(delete())

    def partitions(self, topic: str) -> int:
        async def count() -> int:
            async with self._admin() as admin:
                found = {row["topic"]: row for row in await admin.describe_topics()}
                return len(found[topic]["partitions"]) if topic in found else 0

        return asyncio.run(count())

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = 0,
        writing: Writing = USUAL,
    ) -> list[Position]:
        return asyncio.run(self._produce(topic, records, partition, writing))

    def produce_batches(
        self, topic: str, groups: Iterable[Iterable[Record]], *, codec: str = "none"
    ) -> None:
        """Each group as one batch to partition 0, whatever its size: no linger decides."""
        asyncio.run(self._produce_batches(topic, groups, codec))

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]:
        return asyncio.run(self._read(TopicPartition(topic, partition), start, count))

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)

        async def ask() -> tuple[int, int]:
            async with self._consumer(place) as consumer:
                low = (await consumer.beginning_offsets([place]))[place]
                high = (await consumer.end_offsets([place]))[place]
                return low, high

        return asyncio.run(ask())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)

        async def ask() -> int | None:
            async with self._consumer(place) as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else found.offset

        return asyncio.run(ask())

    async def _produce(
        self, topic: str, records: Iterable[Record], partition: int | None, writing: Writing
    ) -> list[Position]:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",  # its default is 1 where it is not idempotent
            compression_type=None if writing.codec == "none" else writing.codec,
            enable_idempotence=writing.idempotent,
            max_request_size=writing.request_bytes_max,
            linger_ms=writing.linger_ms,
        ) as producer:
            futures = []
            for record in records:
                sent = producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                futures.append(await _answered(sent))
                # The sender runs on this very loop: let it, also when the buffer has room.
                await asyncio.sleep(0)
            answers = await _answered(asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S))
        return [Position(answer.partition, answer.offset) for answer in answers]

    async def _produce_batches(
        self, topic: str, groups: Iterable[Iterable[Record]], codec: str
    ) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
        ) as producer:
            for group in groups:
                batch = producer.create_batch()
                for record in group:
                    room = batch.append(
                        key=record.key, value=record.value, timestamp=record.timestamp_ms
                    )
                    assert room is not None, "more than a batch takes"
                await (await producer.send_batch(batch, topic, partition=0))

    async def _read(self, place: TopicPartition, start: int, count: int) -> list[Stored]:
        found: list[Stored] = []
        async with self._consumer(place) as consumer, asyncio.timeout(DEADLINE_S):
            consumer.seek(place, start)
            while len(found) < count:
                left = count - len(found)
                polled = await _answered(consumer.getmany(timeout_ms=1_000, max_records=left))
                found += [_stored(message) for batch in polled.values() for message in batch]
        return found

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def _consumer(self, place: TopicPartition) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            fetch_max_bytes=2 * FETCH_BYTES_MAX,
        )
        await consumer.start()
        try:
            consumer.assign([place])
            yield consumer
        finally:
            await consumer.stop()


async def _answered(answer: Awaitable[AnswerT]) -> AnswerT:
    """Wait for an answer, and turn the client's exception into the code behind it."""
    try:
        return await answer
    except KafkaError as failure:
        code = getattr(failure, "errno", None)
        if code is None:
            raise
        raise Refused(code) from failure


def _refuse(rows: Iterable[tuple[Any, ...]]) -> None:
    """aiokafka's admin hands the broker's answer over without looking at the codes in it."""
    for _topic, code, *_detail in rows:
        if code:
            raise Refused(code)


def _stored(message: ConsumerRecord) -> Stored:
    record = Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
    )
    return Stored(message.partition, message.offset, record)
