"""A process with members of one group, each in a thread: `join NAME KIND`, `leave NAME`, `end`.

A last word to the process is how long a session of its classic members is, in milliseconds. What
happens to them goes to a file, a line at a time, as the checks of `group_checks.py` read it.
"""

import asyncio
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError

from harness.clients.librdkafka import LIVING
from harness.processes.group_journal import COMMIT_EVERY_S, Journal, Place

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
    from kafka.errors import KafkaError as PythonError

SESSION_MS = 3_000
BEAT_MS = 500
POLLED_MS = 10_000  # who does not poll for so long is out
POLL_S = 0.1
LOOK_S, NAP_S = 0.1, 1.0
ASSIGNORS = {"classic": "range", "cooperative": "cooperative-sticky"}
"""Of confluent-kafka in the classic protocol."""


class OutForGoodError(Exception):
    """librdkafka is done for, where its group changed its protocol: it is to be started again."""


class Confluent:
    """By confluent-kafka, in either protocol."""

    def __init__(self, journal: Journal, address: str, group: str, topic: str, kind: str) -> None:
        self._journal = journal
        self._topic = topic
        classic = {
            "partition.assignment.strategy": ASSIGNORS.get(kind, ""),
            "session.timeout.ms": journal.session_ms,
            "heartbeat.interval.ms": BEAT_MS,
        }
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "client.id": journal.name,
                "group.id": group,
                "group.protocol": "consumer" if kind == "consumer" else "classic",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": max(POLLED_MS, journal.session_ms),
                "queued.max.messages.kbytes": 256,
                **LIVING,
                **(classic if kind in ASSIGNORS else {}),
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        try:
            self._run()
        except OutForGoodError:
            self._consumer.close()
            raise

    def _run(self) -> None:
        while not self._journal.leaving.is_set():
            message = self._consumer.poll(POLL_S)
            error = None if message is None else message.error()
            if error is not None and is_over(error):
                raise OutForGoodError
            if message is not None and error is None:
                self._read(message)
            if self._journal.is_due():
                self._commit(self._journal.to_commit())
        self._journal.tell("closing")
        self._consumer.close()

    def _read(self, message: confluent_kafka.Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._journal.read(partition, offset, message.value())

    def _assigned(self, _: object, places: list[confluent_kafka.TopicPartition]) -> None:
        self._journal.assigned(places)

    def _revoked(self, _: object, places: list[confluent_kafka.TopicPartition]) -> None:
        offsets = self._journal.to_commit(places)
        self._journal.gone("revoked", places)
        self._commit(offsets)

    def _lost(self, _: object, places: list[confluent_kafka.TopicPartition]) -> None:
        self._journal.gone("lost", places)

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        name = self._journal.name
        places = [
            confluent_kafka.TopicPartition(self._topic, partition, offset, name)
            for partition, offset in offsets.items()
        ]
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            self._journal.answered(offsets, error)
            if is_over(error.args[0]):
                raise OutForGoodError from error
            return
        assert done is not None
        for one in done:
            self._journal.answered({one.partition: offsets[one.partition]}, one.error)


def is_over(error: confluent_kafka.KafkaError) -> bool:
    return bool(error.fatal()) or error.code() == confluent_kafka.KafkaError._FATAL


class KafkaPython(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """By kafka-python, which keeps its place in partitions that it gives up and gets again,
    whoever read them meanwhile: it is told to go where the group is, as other clients do."""

    def __init__(self, journal: Journal, address: str, group: str, topic: str, _: str) -> None:
        self._journal = journal
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            client_id=journal.name,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[PythonRange],
            session_timeout_ms=journal.session_ms,
            heartbeat_interval_ms=BEAT_MS,
            max_poll_interval_ms=max(POLLED_MS, journal.session_ms),
        )
        self._consumer.subscribe([topic], listener=self)

    def run(self) -> None:
        while not self._journal.leaving.is_set():
            try:
                found = self._consumer.poll(timeout_ms=int(COMMIT_EVERY_S * 1000))
            except PythonError as error:
                self._journal.tell("poll", str(error))
                continue
            for place, records in found.items():
                for record in records:
                    self._journal.read(place.partition, record.offset, record.value)
            if self._journal.is_due():
                self._commit(self._journal.to_commit())
        self._journal.tell("closing")
        self._consumer.close(autocommit=False)

    async def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
        coordinator = self._consumer._coordinator
        committed = await coordinator.fetch_committed_offsets_async(assigned)
        for place in assigned:
            self._consumer.seek(place, committed[place].offset if place in committed else 0)
        self._journal.assigned(assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Place]) -> None:
        offsets = self._journal.to_commit(revoked)
        self._journal.gone("given up", revoked)
        if not offsets:
            return
        try:
            # Nothing here may block: it runs where the client's own requests do.
            await self._consumer.commit_async(self._said(offsets))
        except PythonError as error:
            self._journal.answered(offsets, error)
        else:
            self._journal.answered(offsets)

    async def on_partitions_lost(self, lost: Iterable[Place]) -> None:
        self._journal.gone("lost", lost)

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        try:
            self._consumer.commit(self._said(offsets))
        except PythonError as error:
            self._journal.answered(offsets, error)
        else:
            self._journal.answered(offsets)

    def _said(self, offsets: dict[int, int]) -> dict[Any, Any]:
        return {
            kafka.TopicPartition(self._topic, partition): kafka.OffsetAndMetadata(
                offset, self._journal.name, -1
            )
            for partition, offset in offsets.items()
        }


class Aio(AioListener):  # type: ignore[misc]  # it has no types
    """By aiokafka, in an event loop of its own."""

    def __init__(self, journal: Journal, address: str, group: str, topic: str, _: str) -> None:
        self._journal = journal
        self._address = address
        self._group = group
        self._topic = topic
        self._consumer: Any = None

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._address,
            client_id=self._journal.name,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[AioRange],
            session_timeout_ms=self._journal.session_ms,
            heartbeat_interval_ms=BEAT_MS,
            max_poll_interval_ms=max(POLLED_MS, self._journal.session_ms),
        )
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        while not self._journal.leaving.is_set():
            found = await self._consumer.getmany(timeout_ms=int(COMMIT_EVERY_S * 1000))
            for place, records in found.items():
                for record in records:
                    self._journal.read(place.partition, record.offset, record.value)
            if self._journal.is_due():
                await self._commit(self._journal.to_commit())
        self._journal.tell("closing")
        await self._consumer.stop()

    async def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
        self._journal.assigned(assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Place]) -> None:
        offsets = self._journal.to_commit(revoked)
        self._journal.gone("given up", revoked)
        await self._commit(offsets)

    async def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        places = {
            aiokafka.TopicPartition(self._topic, partition): (offset, self._journal.name)
            for partition, offset in offsets.items()
        }
        try:
            await self._consumer.commit(places)
        except AioError as error:
            self._journal.answered(offsets, error)
        else:
            self._journal.answered(offsets)


KINDS: Mapping[str, type[Confluent | KafkaPython | Aio]] = {
    "classic": Confluent,
    "cooperative": Confluent,
    "consumer": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
}


def live(journal: Journal, kind: str, address: str, group: str, topic: str) -> None:
    try:
        while not journal.leaving.is_set():
            journal.tell("began", kind)
            try:
                KINDS[kind](journal, address, group, topic, kind).run()
            except OutForGoodError:
                journal.starts_again()
    except Exception as error:
        journal.tell("failed", repr(error))
        raise
    journal.tell("closed")


def tell_of_naps(members: Mapping[str, tuple[Journal, threading.Thread]]) -> None:
    """If this process gets no processor for a good part of a session, its members may be out before
    they hear of it, as if they had been paused."""
    clock = threading.Event()
    while True:
        before = time.monotonic()
        clock.wait(LOOK_S)
        if time.monotonic() - before > NAP_S:
            for journal, _ in [*members.values()]:
                journal.tell("paused")


def main(
    address: str, group: str, topic: str, path: str, session_ms: str = str(SESSION_MS)
) -> None:
    file = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    members: dict[str, tuple[Journal, threading.Thread]] = {}
    threading.Thread(target=tell_of_naps, args=(members,), daemon=True).start()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "join":
            name, kind = words
            journal = Journal(file, name, int(session_ms))
            thread = threading.Thread(target=live, args=(journal, kind, address, group, topic))
            members[name] = (journal, thread)
            thread.start()
        elif command == "leave":
            members[words[0]][0].leaving.set()
        else:
            break
    for journal, _ in members.values():
        journal.leaving.set()
    for _, thread in members.values():
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
