"""Published clients in transactions, each in the same few words."""

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as AioError
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as Place

from harness.clients.facts import DEADLINE_S
from harness.clients.librdkafka import LIVING

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPlace
    from kafka.errors import InvalidProducerEpochError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

CLOSE_S: Final = 5
TIMEOUT_MS: Final = 60_000
_MS: Final = 1_000


class Fenced(Exception):  # noqa: N818 -- named by what has happened
    """Another producer has taken the transactional id."""


class Transactional(Protocol):
    """A producer with a transactional id that has begun its life: its id is its own."""

    def begin(self) -> None: ...

    def produce(self, topic: str, value: bytes) -> None:
        """To partition 0; it is there when this returns."""
        ...

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Of partition 0, for a group without members."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


Maker = Callable[[str, str, int], Transactional]
"""Takes bootstrap, transactional id, and the time-out of a transaction."""
ReadCommitted = Callable[[str, str, int], list[bytes]]
"""The first so many values of a topic's partition 0 that a reader of committed records gets."""


class ConfluentProducer:
    """confluent-kafka, whose core is librdkafka."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                **LIVING,
            }
        )
        with _confluent():
            self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, value: bytes) -> None:
        """What fails is raised here or by the commit. Its report to a callback would be lost: a
        fatal error is raised in the middle of it.
        """
        with _confluent():
            self._producer.produce(topic, value, partition=0)
            assert self._producer.flush(DEADLINE_S) == 0

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        consumer = Consumer(_group(self._bootstrap, group))
        try:
            metadata = consumer.consumer_group_metadata()
            with _confluent():
                self._producer.send_offsets_to_transaction(
                    [Place(topic, 0, offset)], metadata, DEADLINE_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with _confluent():
            self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        with _confluent():
            self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        """It goes with the last who knows of it."""


def _group(bootstrap: str, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "group.id": group, **LIVING}


@contextmanager
def _confluent() -> Iterator[None]:
    fenced = {ConfluentError._FENCED, 47, 90}
    try:
        yield
    except KafkaException as failure:
        if failure.args[0].code() in fenced:
            raise Fenced from failure
        raise


def confluent_reads(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """What confluent-kafka gives a reader of committed records."""
    settings = {"isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer(_group(bootstrap, "never-joined") | settings)
    try:
        consumer.assign([Place(topic, 0, 0)])
        messages = consumer.consume(count, DEADLINE_S)
        return [message.value() or b"" for message in messages if message.error() is None]
    finally:
        consumer.close()


class PythonProducer:
    """kafka-python, all of it Python."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def produce(self, topic: str, value: bytes) -> None:
        self._call(lambda: self._producer.send(topic, value, partition=0).get(DEADLINE_S))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {PythonPlace(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=CLOSE_S)

    @staticmethod
    def _call(call: Callable[[], object]) -> None:
        try:
            call()
        except (ProducerFencedError, InvalidProducerEpochError) as failure:
            raise Fenced from failure


def python_reads(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """What kafka-python gives a reader of committed records."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=DEADLINE_S * _MS,
    )
    try:
        consumer.assign([PythonPlace(topic, 0)])
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


class AioProducer:
    """aiokafka, in an event loop of its own."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._runner = asyncio.Runner()
        self._producer: Any = None

        async def start() -> None:
            self._producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
            )
            await self._producer.start()

        self._run(start)

    def _run(self, call: Callable[[], Any]) -> None:
        async def run() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await call()

        try:
            self._runner.run(run())
        except ProducerFenced as failure:
            raise Fenced from failure

    def begin(self) -> None:
        self._run(self._producer.begin_transaction)

    def produce(self, topic: str, value: bytes) -> None:
        self._run(lambda: self._producer.send_and_wait(topic, value, partition=0))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {TopicPartition(topic, 0): offset}
        self._run(lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction)

    def close(self) -> None:
        try:
            self._run(self._producer.stop)
        except (AioError, Fenced):
            pass  # it was fenced: that is what a test was about
        finally:
            self._runner.close()


def aio_reads(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """What aiokafka gives a reader of committed records."""

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            async with asyncio.timeout(DEADLINE_S):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


MAKERS: Final[Mapping[str, Maker]] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python": PythonProducer,
    "aiokafka": AioProducer,
}
READS: Final[Mapping[str, ReadCommitted]] = {
    "confluent-kafka": confluent_reads,
    "kafka-python": python_reads,
    "aiokafka": aio_reads,
}


class Producers:
    """Producers of one client's making; all of them are closed in the end."""

    def __init__(self, bootstrap: str, client: str) -> None:
        self._bootstrap = bootstrap
        self._make = MAKERS[client]
        self._made: list[Transactional] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._made:
            producer.close()

    def make(self, name: str, timeout_ms: int = TIMEOUT_MS) -> Transactional:
        producer = self._make(self._bootstrap, name, timeout_ms)
        self._made.append(producer)
        return producer
