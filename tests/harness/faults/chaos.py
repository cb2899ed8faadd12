"""Faults for real clusters of three brokers, drawn with a seed, and what must be true then."""

import itertools
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

import confluent_kafka

from harness.clients.librdkafka import LIVING
from harness.processes.cluster import Cluster, until
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Links
from tidelog.tools.supervisor import proc
from tidelog.wire.records import iterate_batches, iterate_records

BROKERS = 3
QUEUED_MAX = 2_000
BURST = 8
BURST_EVERY_S = 0.02
"""A load is 400 records a second, some of them under way at any moment: what it is there for are
records that a fault meets. As many as a processor can make only make the whole run slower."""
SLOW_MS = 150


@dataclass(slots=True)
class Load:
    """An idempotent producer that waits for all in-sync replicas, and keeps what it was told."""

    bootstrap: str
    topic: str
    partitions: int
    name: str
    flat_out: bool = False
    """As many as a processor can make."""
    acked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Value → partition and offset."""
    failed: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._thread.start()

    def wait_for_more(self, count: int) -> None:
        """Until so many more are acknowledged than now."""
        before = len(self.acked)
        until(lambda: len(self.acked) >= before + count, f"{count} more records of {self.name}", 60)

    def finish(self) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 100_000,
                **LIVING,
            }
        )
        numbers = itertools.count()
        while not self._stop.is_set():
            for number in itertools.islice(numbers, 1 if self.flat_out else BURST):
                value = b"%s/%d" % (self.name.encode(), number)
                producer.produce(
                    self.topic,
                    value,
                    partition=number % self.partitions,
                    on_delivery=partial(self._told, value),
                )
            producer.poll(0.001 if len(producer) < QUEUED_MAX else 0.02)
            if not self.flat_out:
                self._stop.wait(BURST_EVERY_S)
        left = producer.flush(110)
        if left:
            self.failed.append(f"{left} records were neither acknowledged nor refused")

    def _told(
        self,
        value: bytes,
        error: confluent_kafka.KafkaError | None,
        message: confluent_kafka.Message,
    ) -> None:
        if error is not None:
            self.failed.append(f"{value!r}: {error}")
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acked[value] = (partition, offset)


def drawn(rng: Random, kinds: Iterable[str], seconds: float) -> Iterator[str]:
    """Each kind once, then any until the time is over."""
    deadline = time.monotonic() + seconds
    kinds = list(kinds)
    first = rng.sample(kinds, len(kinds))
    while first or time.monotonic() < deadline:
        yield first.pop() if first else rng.choice(kinds)


class Faults:
    """One after the other, each undone before the next: two of three brokers are always well."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.done = Counter[str]()
        self._cluster = cluster
        self._rng = rng
        self._board = Board.open(board_name(cluster.runs[-1].run_id))
        self.kinds: Mapping[str, Callable[[int], None]] = {
            "kill": self._kill,
            "kill slow leader": self._kill_slow_leader,
            "pause": self._pause,
            "cut link": self._cut,
            "cut one way": self._cut_one_way,
            "slow follower": self._slow,
            "stop": self._stop,
            "kill coordinator": self._kill_coordinator,
        }

    def run(self, seconds: float) -> None:
        for kind in drawn(self._rng, self.kinds, seconds):
            self.kinds[kind](self._rng.randrange(BROKERS))
            self.done[kind] += 1
            self._last(0.2, 1.0)

    def close(self) -> None:
        self._heal()
        self._board.close()

    def _last(self, least_s: float, most_s: float) -> None:
        """How long a fault lasts is drawn, not waited for: there is nothing to wait for."""
        time.sleep(self._rng.uniform(least_s, most_s))

    def _kill(self, broker: int) -> None:
        os.kill(self._cluster.broker_pid(broker), signal.SIGKILL)
        self._last(0.1, 2.0)
        self.start_dead(broker)

    def _kill_slow_leader(self, broker: int) -> None:
        """It takes what did not reach the others in time along: nothing of that may be acked."""
        for other in range(BROKERS):
            if other != broker:
                self._fault_of(broker, other, SLOW_MS)
        self._last(0.3, 0.6)
        os.kill(self._cluster.broker_pid(broker), signal.SIGKILL)
        self._heal()
        self._last(0.1, 1.0)
        self.start_dead(broker)

    def _stop(self, broker: int) -> None:
        self._cluster.done("broker", "stop", str(broker))
        self._last(0.1, 1.0)
        self.start_dead(broker)

    def start_dead(self, broker: int) -> None:
        """As soon as its death is known."""

        def is_down() -> bool:
            return self._cluster.process("broker", broker)["pid"] is None

        until(is_down, f"the death of broker {broker} is known")
        self._cluster.done("broker", "start", str(broker))

    def _pause(self, broker: int) -> None:
        pid = self._cluster.broker_pid(broker)
        os.kill(pid, signal.SIGSTOP)
        self._last(0.2, 3.0)
        os.kill(pid, signal.SIGCONT)

    def _kill_coordinator(self, _broker: int) -> None:
        os.kill(controller_pid(self._cluster), signal.SIGKILL)

    def _cut(self, broker: int) -> None:
        self._fault_of(broker, (broker + 1) % BROKERS, Links.CUT)
        self._fault_of((broker + 1) % BROKERS, broker, Links.CUT)
        self._last(0.3, 3.0)
        self._heal()

    def _cut_one_way(self, broker: int) -> None:
        self._fault_of(broker, (broker + 2) % BROKERS, Links.CUT)
        self._last(0.3, 3.0)
        self._heal()

    def _slow(self, broker: int) -> None:
        for other in range(BROKERS):
            if other != broker:
                self._fault_of(other, broker, SLOW_MS)
        self._last(0.5, 2.0)
        self._heal()

    def _fault_of(self, sender: int, to: int, word: int) -> None:
        self._board.links.set(BrokerId(sender), BrokerId(to), word)

    def _heal(self) -> None:
        for sender in range(BROKERS):
            for to in range(BROKERS):
                self._fault_of(sender, to, 0)


def controller_pid(cluster: Cluster) -> int:
    """Of whoever leads the metadata now, or soon: one that was just killed may still be told of."""
    found: list[int] = []

    def leads() -> bool:
        pid = cluster.status()["controller"]["pid"]
        found.extend([] if pid is None or proc.is_gone(pid) else [pid])
        return bool(found)

    until(leads, "a coordinator leads")
    return found[0]


def log_bytes(cluster: Cluster, broker: int, topic: str, partition: int) -> bytes:
    """All batches of a replica, as they lie in its files."""
    found = Path(cluster.data).glob(f"broker-{broker}/*/{topic}-{partition}/*.log")
    return b"".join(path.read_bytes() for path in sorted(found))


def wrong_in_the_end(
    cluster: Cluster,
    topic: str,
    partitions: int,
    loads: list[Load],
    brokers: Iterable[int] = range(BROKERS),
) -> list[str]:
    """What was acknowledged and is not on all of these, what is there twice, where bytes differ."""
    wrong = [failure for load in loads for failure in load.failed]
    acked = acked_in(partitions, loads)
    for partition in range(partitions):
        logs = [log_bytes(cluster, broker, topic, partition) for broker in brokers]
        common = min(map(len, logs))
        if any(log[:common] != logs[0][:common] for log in logs):
            wrong.append(f"partition {partition}: the replicas' bytes differ")
        for broker, log in enumerate(logs):
            wrong += wrong_on(f"partition {partition}, broker {broker}", log, acked[partition])
    return wrong


def acked_in(partitions: int, loads: list[Load]) -> list[dict[bytes, int]]:
    """For each partition the values that were acknowledged, and where they must be."""
    acked: list[dict[bytes, int]] = [{} for _ in range(partitions)]
    for load in loads:
        for value, (partition, offset) in load.acked.items():
            acked[partition][value] = offset
    return acked


def wrong_on(place: str, log: bytes, acked: Mapping[bytes, int]) -> list[str]:
    offsets = _offsets_in(log)
    lost = [value for value, offset in acked.items() if offset not in offsets.get(value, ())]
    twice = [value for value, found in offsets.items() if len(found) > 1]
    return [f"{place}: lost {value!r}" for value in lost[:5]] + [
        f"{place}: {value!r} is there at {offsets[value]}" for value in twice[:5]
    ]


def _offsets_in(log: bytes) -> dict[bytes, list[int]]:
    """Where each value is."""
    offsets = defaultdict[bytes, list[int]](list)
    for _, batch in iterate_batches(memoryview(log)):
        for record in iterate_records(batch):
            assert record.value is not None
            offsets[record.value].append(record.offset)
    return offsets
