"""A process with members of one group, each in a thread: `join NAME KIND`, `leave NAME`, `end`.

What happens to them goes to a file, a line at a time, as the checks of `group_checks.py` read it.
"""

import asyncio
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import confluent_kafka
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError

with warnings.catch_warnings():
    # It loads its message schemas by a call that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
    from kafka.errors import KafkaError as PythonError

SESSION_MS = 3_000
BEAT_MS = 500
POLLED_MS = 10_000
"""Who does not poll for so long is out."""
COMMIT_EVERY_S = 0.5
POLL_S = 0.1


class Place(Protocol):
    """A partition, whichever client names it."""

    @property
    def partition(self) -> int: ...


class Journal:
    """What befell one member, and how far it read each partition that it has."""

    def __init__(self, file: int, name: str) -> None:
        self._file = file
        self.name = name
        self._runs: dict[int, list[int]] = {}
        """From where to where, of what is not written down yet."""
        self._next: dict[int, int] = {}
        """What a commit would say."""
        self._due = time.monotonic()
        self.leaving = threading.Event()

    def tell(self, kind: str, what: object = None) -> None:
        line = json.dumps([time.monotonic(), self.name, kind, what])
        os.write(self._file, line.encode() + b"\n")

    def assigned(self, places: Iterable[Place]) -> None:
        self.tell("assigned", [one.partition for one in places])

    def gone(self, kind: str, places: Iterable[Place]) -> None:
        """From here on it neither reads these nor commits them."""
        self._tell_runs()
        partitions = [one.partition for one in places]
        for partition in partitions:
            self._next.pop(partition, None)
        self.tell(kind, partitions)

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        if value != b"%d" % offset:
            self.tell("failed", f"at {offset} of {partition} is {value!r}")
        run = self._runs.setdefault(partition, [offset, offset])
        if run[1] != offset:
            self._tell_run(partition)
            run = self._runs[partition] = [offset, offset]
        run[1] = self._next[partition] = offset + 1

    def to_commit(self, among: Iterable[Place] | None = None) -> dict[int, int]:
        """What was processed and not committed; told before it is asked for."""
        wanted = set(self._next) if among is None else {one.partition for one in among}
        found = {one: self._next.pop(one) for one in sorted(wanted & set(self._next))}
        if found:
            self._tell_runs()
            self.tell("commit", found)
        self._due = time.monotonic() + COMMIT_EVERY_S
        return found

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def answered(self, offsets: Mapping[int, int], error: object = None) -> None:
        if error is None:
            self.tell("committed", offsets)
        else:
            self.tell("refused", [offsets, str(error)])

    def _tell_runs(self) -> None:
        for partition in list(self._runs):
            self._tell_run(partition)

    def _tell_run(self, partition: int) -> None:
        self.tell("read", [partition, *self._runs.pop(partition)])


class Confluent:
    """By confluent-kafka, in either protocol."""

    def __init__(self, journal: Journal, address: str, group: str, topic: str, kind: str) -> None:
        self._journal = journal
        self._topic = topic
        classic = {
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": BEAT_MS,
        }
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "client.id": journal.name,
                "group.id": group,
                "group.protocol": kind,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": POLLED_MS,
                "queued.max.messages.kbytes": 256,
                "log_level": 0,
                **(classic if kind == "classic" else {}),
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        while not self._journal.leaving.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self._journal.read(partition, offset, message.value())
            if self._journal.is_due():
                self._commit(self._journal.to_commit())
        self._journal.tell("closing")
        self._consumer.close()

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
            return
        assert done is not None
        for one in done:
            self._journal.answered({one.partition: offsets[one.partition]}, one.error)


class KafkaPython(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """By kafka-python."""

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
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=BEAT_MS,
            max_poll_interval_ms=POLLED_MS,
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

    def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
        self._journal.assigned(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Place]) -> None:
        offsets = self._journal.to_commit(revoked)
        self._journal.gone("given up", revoked)
        self._commit(offsets)

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        places = {
            kafka.TopicPartition(self._topic, partition): kafka.OffsetAndMetadata(
                offset, self._journal.name, -1
            )
            for partition, offset in offsets.items()
        }
        try:
            self._consumer.commit(places)
        except PythonError as error:
            self._journal.answered(offsets, error)
        else:
            self._journal.answered(offsets)


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
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=BEAT_MS,
            max_poll_interval_ms=POLLED_MS,
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
    "consumer": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
}


def live(journal: Journal, kind: str, address: str, group: str, topic: str) -> None:
    journal.tell("began", kind)
    try:
        KINDS[kind](journal, address, group, topic, kind).run()
    except Exception as error:
        journal.tell("failed", repr(error))
        raise
    journal.tell("closed")


def main(address: str, group: str, topic: str, path: str) -> None:
    file = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    members: dict[str, tuple[Journal, threading.Thread]] = {}
    for line in sys.stdin:
        command, *words = line.split()
        if command == "join":
            name, kind = words
            journal = Journal(file, name)
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
