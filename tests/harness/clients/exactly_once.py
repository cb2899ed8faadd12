"""Numbers go from one topic through a group of transformers to two others, while processes die.

Transformers are killed by draw, and whatever else a test names; what must be true in the end is in
`transaction_checks.py`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from harness.clients.librdkafka import LIVING
from harness.processes.cluster import until
from harness.processes.transaction_checks import (
    numbers_of,
    told_by,
    wrong_counts,
    wrong_numbers,
    wrong_transactions,
)
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from tidelog.node.groups.placement import OFFSETS_TOPIC

INPUTS: Final = 4
OUTPUTS: Final = 3
TRANSFORMERS: Final = 2
OFFSETS_PARTITIONS: Final = 1
SETTINGS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of the cluster."""
LIVES_MAX: Final = 60
DONE_S: Final = 120.0
JITTER_S: Final = 0.1


@dataclass(slots=True)
class Stream:
    """One topic of inputs and two of outputs, on a cluster with so many replicas."""

    bootstrap: str
    name: str
    replicas: int = 1
    counts: str | None = None
    """The topic with as many partitions as there are inputs that keeps how many numbers of each
    were counted, for transformers that do."""
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **LIVING})

    @property
    def outputs(self) -> dict[str, int]:
        return {f"{self.name}-a": OUTPUTS, f"{self.name}-b": OUTPUTS}

    def logs(self, folder: Path) -> dict[str, bytes]:
        """All that transactions wrote to, from a folder with a folder for each partition."""
        found = {}
        topics = self.outputs | {OFFSETS_TOPIC: OFFSETS_PARTITIONS}
        if self.counts is not None:
            topics[self.counts] = INPUTS
        for topic, partitions in topics.items():
            for place in (folder / f"{topic}-{one}" for one in range(partitions)):
                files = sorted(place.glob("*.log"))
                assert files, place
                found[place.name] = b"".join(file.read_bytes() for file in files)
        return found

    def create(self) -> None:
        settings = {"min.insync.replicas": str(min(2, self.replicas))}
        topics = [
            NewTopic(topic, partitions, self.replicas, config=settings)
            for topic, partitions in ({self.name: INPUTS} | self.outputs).items()
        ]
        for done in self.admin.create_topics(topics).values():
            done.result()

    def feed(self, numbers: range) -> None:
        """Each of them once."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **LIVING}
        )
        for number in numbers:
            if not number % 10_000:
                producer.flush()
            producer.produce(self.name, b"%d" % number, partition=number % INPUTS)
        assert producer.flush(60) == 0

    def ends(self, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, int]:
        """Where readers of that kind come to the end."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        asked = {Place(topic, one): latest for one in range(partitions)}
        answers = self.admin.list_offsets(asked, isolation_level=isolation)
        return {place.partition: done.result().offset for place, done in answers.items()}

    def committed(self) -> dict[int, int]:
        """By the group that reads the inputs."""
        asked = [ConsumerGroupTopicPartitions(self.name)]
        (done,) = self.admin.list_consumer_group_offsets(asked, require_stable=True).values()
        return {place.partition: place.offset for place in done.result().topic_partitions}


class Outputs:
    """All that a reader of committed records has been given so far."""

    def __init__(self, stream: Stream) -> None:
        self.numbers: dict[str, list[int]] = {topic: [] for topic in stream.outputs}
        self._consumer = Consumer(
            {
                "bootstrap.servers": stream.bootstrap,
                "group.id": f"{stream.name}-outputs",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **LIVING,
            }
        )
        self._consumer.assign(
            [
                Place(topic, partition, 0)
                for topic, partitions in stream.outputs.items()
                for partition in range(partitions)
            ]
        )

    def look(self) -> int:
        """How many came in all, after what is there now."""
        for message in self._consumer.consume(10_000, 0.02):
            topic, value = message.topic(), message.value()
            if message.error() is None:
                assert topic is not None
                assert value is not None
                self.numbers[topic].append(int(value))
        return sum(map(len, self.numbers.values()))

    def close(self) -> None:
        self._consumer.close()


Starts = Callable[[Stream, str], Sequence[str]]
"""The command of a transformer of that name."""


def confluent(batch: int) -> Starts:
    def command(stream: Stream, name: str) -> Sequence[str]:
        outputs = ",".join(f"{topic}:{count}" for topic, count in stream.outputs.items())
        words = (stream.bootstrap, stream.name, outputs, name, str(batch))
        return [sys.executable, "-m", "harness.clients.transformer", *words]

    return command


class Transformers:
    """So many processes of one program; who has died is started again."""

    def __init__(self, stream: Stream, starts: Starts, folder: Path) -> None:
        self.lives = 0
        self._stream = stream
        self._starts = starts
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.revive()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.communicate()

    def revive(self) -> None:
        for number in range(TRANSFORMERS):
            name = f"{self._stream.name}-{number}"
            process = self._running.get(name)
            if process is None or process.poll() is not None:
                if process is not None:
                    process.communicate()
                self._running[name] = self._start(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        self.lives += 1
        assert self.lives <= LIVES_MAX, self.said()
        with (self._folder / f"{name}.err").open("ab") as errors:
            return subprocess.Popen(
                self._starts(self._stream, name),
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def kill(self, number: int) -> None:
        self._running[f"{self._stream.name}-{number}"].kill()

    def end(self) -> None:
        """All end in order, whatever they were started for is done."""
        for process in self._running.values():
            process.communicate(timeout=DONE_S)
        self._running.clear()

    def said(self) -> str:
        """What they complained of."""
        files = sorted(self._folder.glob(f"{self._stream.name}-*.err"))
        return "\n".join(f"{file.name}: {file.read_text()[-2_000:]}" for file in files)


class Run:
    """So many inputs, and what is broken on the way, a fault at a time."""

    def __init__(self, stream: Stream, starts: Starts, folder: Path, rng: Random) -> None:
        self.history: list[str] = []
        self._stream = stream
        self._rng = rng
        self._began = time.monotonic()
        self._outputs = Outputs(stream)
        self._transformers = Transformers(stream, starts, folder)

    def through(self, count: int, faults: int, kinds: Mapping[str, Callable[[], None]]) -> None:
        """Until each of `count` inputs has come out, with faults at drawn places of the way."""
        every = {"kill a transformer": self._kill_one, **kinds}
        names = [name for name in every for _ in range(faults // len(every) + 1)]
        due = sorted(self._rng.sample(range(2 * count), faults))
        fed = 0
        try:
            with self._transformers as transformers:
                for at, name in zip(due, self._rng.sample(names, faults), strict=True):
                    # So that there is something left to do, however fast they are.
                    fed = self._feed(fed, min(count, at // 2 + count // (faults + 1) + 1))
                    self._wait(at)
                    self._drift()
                    self._tell(name)
                    every[name]()
                self._feed(fed, count)
                self._wait(2 * count)
                transformers.end()
            until(self._is_settled, "the markers of the last transactions")
            self._outputs.look()
        except BaseException:
            self.history.append(self._transformers.said())
            raise
        finally:
            self._tell("the end")
            self._outputs.close()

    def _is_settled(self) -> bool:
        """Who commits is answered when that is certain; its markers may come a moment later."""
        stream = self._stream
        stable = all(
            stream.ends(topic, count, IsolationLevel.READ_COMMITTED)
            == stream.ends(topic, count, IsolationLevel.READ_UNCOMMITTED)
            for topic, count in stream.outputs.items()
        )
        end = stream.ends(stream.name, INPUTS, IsolationLevel.READ_UNCOMMITTED)
        return stable and stream.committed() == end

    def _feed(self, fed: int, upto: int) -> int:
        self._stream.feed(range(fed, upto))
        return max(fed, upto)

    def _drift(self) -> None:
        """To any moment of a transaction: what came out last was one's end."""
        until_then = time.monotonic() + self._rng.uniform(0, JITTER_S)
        until(lambda: time.monotonic() > until_then, "a moment")

    def _kill_one(self) -> None:
        self._transformers.kill(self._rng.randrange(TRANSFORMERS))

    def _wait(self, outputs: int) -> None:
        """Until so many came out; meanwhile nobody stays dead."""

        def came() -> bool:
            self._transformers.revive()
            return self._outputs.look() >= outputs

        until(came, f"{outputs} outputs", DONE_S)

    def _tell(self, what: str) -> None:
        seconds = time.monotonic() - self._began
        self.history.append(f"{seconds:6.2f} {what}, after {self._outputs.look()} outputs")

    def wrong(self, count: int, logs: Mapping[str, bytes], *, bumps: bool) -> list[str]:
        """What readers, the logs and the group say when all has ended; logs by TOPIC-PARTITION."""
        told = told_by(logs)
        wrong = wrong_transactions(told, bumps=bumps)
        for topic, partitions in self._stream.outputs.items():
            wrong += wrong_numbers(f"readers of {topic}", self._outputs.numbers[topic], count)
            wrong += wrong_numbers(f"log of {topic}", numbers_of(told, topic), count)
            stable, end = (
                self._stream.ends(topic, partitions, level)
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
            if stable != end:
                wrong.append(f"{topic}: readers of committed records stop at {stable}, not {end}")
        if self._stream.counts is not None:
            wrong += wrong_counts(told, self._stream.counts, count // INPUTS)
        end = self._stream.ends(self._stream.name, INPUTS, IsolationLevel.READ_UNCOMMITTED)
        committed = self._stream.committed()
        if committed != end:
            wrong.append(f"the group is at {committed}, the inputs end at {end}")
        return wrong


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / top) for top in PYTHON_ROOTS)}
