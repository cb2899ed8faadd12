"""Consumers of published clients that committed a position and come back: what are they told?

`told` is the offset of the first record, or the name of what was raised; silence ends the test.
"""

import asyncio
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError

from harness.clients.librdkafka import LIVING

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

WAIT_S = 30.0
Told = int | str
_DOWN = (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError._ALL_BROKERS_DOWN)
_RECONNECT_MS = 200


@dataclass(frozen=True, slots=True)
class Returning:
    """A group of one consumer."""

    bootstrap: str
    group: str
    reset: str = "none"
    """What to do where the log does not have the position: none, that is to raise, or earliest."""


class Client(Protocol):
    """A published client."""

    name: str

    def commits(self, who: Returning, topic: str, start: int, stop: int) -> None:
        """Read from `start` on, and commit that all below `stop` was read."""

    def returns(self, who: Returning, topic: str) -> Told:
        """Begin anew where the group committed."""


class Staying(Protocol):
    """A client that notices what becomes of a log it reads."""

    name: str

    def stays(self, who: Returning, topic: str, stop: int) -> "Stayed":
        """Read all below `stop`, and remain."""


class Stayed(Protocol):
    def goes_on(self) -> Told: ...

    def close(self) -> None: ...


# -- confluent-kafka ----------------------------------------------------------------------------


class ByConfluent:
    name = "confluent-kafka"

    def commits(self, who: Returning, topic: str, start: int, stop: int) -> None:
        with closing(_confluent(who)) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
            last = _confluent_reads(consumer, stop)
            (done,) = consumer.commit(message=last, asynchronous=False)
        assert done.offset == stop

    def returns(self, who: Returning, topic: str) -> Told:
        with closing(_confluent(who)) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0)])
            return _confluent_told(consumer)

    def returns_with_epoch(self, who: Returning, topic: str) -> Told:
        """It asks for the commit itself, and gives the client all of the answer."""
        with closing(_confluent(who)) as consumer:
            consumer.assign(consumer.committed([confluent_kafka.TopicPartition(topic, 0)], WAIT_S))
            return _confluent_told(consumer)

    def stays(self, who: Returning, topic: str, stop: int) -> "_StayedConfluent":
        consumer = _confluent(who)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        _confluent_reads(consumer, stop)
        return _StayedConfluent(consumer)


class _StayedConfluent:
    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer
        self.close = consumer.close

    def goes_on(self) -> Told:
        return _confluent_told(self._consumer)


def _confluent(who: Returning) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            **LIVING,
            "bootstrap.servers": who.bootstrap,
            "group.id": who.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error" if who.reset == "none" else who.reset,
            "reconnect.backoff.max.ms": _RECONNECT_MS,
        }
    )


def _confluent_reads(consumer: confluent_kafka.Consumer, stop: int) -> confluent_kafka.Message:
    last = consumer.poll(WAIT_S)
    while last is not None and not last.error() and (last.offset() or 0) < stop - 1:
        last = consumer.poll(WAIT_S)
    assert last is not None, "silence"
    assert last.error() is None, last.error()
    return last


def _confluent_told(consumer: confluent_kafka.Consumer) -> Told:
    """Not that it cannot connect: it goes on trying."""
    while True:
        found = consumer.poll(WAIT_S)
        assert found is not None, "silence"
        error = found.error()
        if error is None:
            offset = found.offset()
            assert offset is not None
            return offset
        if error.code() not in _DOWN:
            return str(error)


# -- kafka-python -------------------------------------------------------------------------------


class ByKafkaPython:
    name = "kafka-python"

    def commits(self, who: Returning, topic: str, start: int, stop: int) -> None:
        with closing(_kafka_python(who)) as consumer:
            _kafka_python_reads(consumer, topic, start, stop)
            consumer.commit()

    def returns(self, who: Returning, topic: str) -> Told:
        with closing(_kafka_python(who)) as consumer:
            consumer.assign([kafka.TopicPartition(topic, 0)])
            return _kafka_python_told(consumer)

    def stays(self, who: Returning, topic: str, stop: int) -> "_StayedKafkaPython":
        return _StayedKafkaPython(who, topic, stop)


class _StayedKafkaPython:
    """A program of its own: while nobody listens it drops a socket with each attempt to connect."""

    def __init__(self, who: Returning, topic: str, stop: int) -> None:
        words = (who.bootstrap, who.group, who.reset, topic, str(stop))
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._hears() == stop

    def goes_on(self) -> Told:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._hears()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _hears(self) -> Told:
        assert self._process.stdout is not None
        told: Told = json.loads(self._process.stdout.readline() or '"it has ended"')
        return told


def _program(bootstrap: str, group: str, reset: str, topic: str, stop: str) -> None:
    with closing(_kafka_python(Returning(bootstrap, group, reset))) as consumer:
        _kafka_python_reads(consumer, topic, 0, int(stop))
        print(stop, flush=True)  # noqa: T201 -- whoever started it reads this
        sys.stdin.readline()
        print(json.dumps(_kafka_python_told(consumer)), flush=True)  # noqa: T201 -- as above


def _kafka_python(who: Returning) -> Any:
    return kafka.KafkaConsumer(
        bootstrap_servers=who.bootstrap,
        group_id=who.group,
        enable_auto_commit=False,
        auto_offset_reset=who.reset,
        reconnect_backoff_max_ms=_RECONNECT_MS,
    )


def _kafka_python_reads(consumer: Any, topic: str, start: int, stop: int) -> None:
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, start)
    while (at := consumer.position(place)) < stop:
        consumer.poll(1_000, max_records=stop - at)


def _kafka_python_told(consumer: Any) -> Told:
    for _ in range(int(WAIT_S)):
        try:
            found = consumer.poll(1_000, max_records=1)
        except kafka.errors.KafkaError as error:
            return f"{type(error).__name__}: {error}"
        for rows in found.values():
            return int(rows[0].offset)
    raise AssertionError("silence")


# -- aiokafka -----------------------------------------------------------------------------------


class ByAiokafka:
    """It neither commits nor checks an epoch."""

    name = "aiokafka"

    def commits(self, who: Returning, topic: str, start: int, stop: int) -> None:
        place = AioPartition(topic, 0)

        async def done(consumer: AIOKafkaConsumer) -> None:
            consumer.seek(place, start)
            while (await consumer.getone()).offset < stop - 1:
                pass
            await consumer.commit({place: stop})

        _aio(who, place, done)

    def returns(self, who: Returning, topic: str) -> Told:
        async def done(consumer: AIOKafkaConsumer) -> Told:
            try:
                return int((await consumer.getone()).offset)
            except AioError as error:
                return type(error).__name__

        told: Told = _aio(who, AioPartition(topic, 0), done)
        return told


def _aio(who: Returning, place: AioPartition, done: Callable[[AIOKafkaConsumer], Any]) -> Any:
    async def run() -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=who.bootstrap,
            group_id=who.group,
            enable_auto_commit=False,
            auto_offset_reset=who.reset,
        )
        async with consumer:
            consumer.assign([place])
            return await asyncio.wait_for(done(consumer), WAIT_S)

    return asyncio.run(run())


if __name__ == "__main__":
    _program(*sys.argv[1:])
