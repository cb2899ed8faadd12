"""Real clusters that lose power: who wrote what until then, and what must be there afterwards."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from harness.clients.fetch_raw import FetchRefusedError, fetch_all
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import (
    READ_COMMITTED,
    RawProducer,
    batches,
    committed_offset,
    coordinator,
    end_of,
    leader,
)
from harness.faults.chaos import log_bytes
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit as k08
from tidelog.wire.records import iterate_batches, iterate_records

COMMIT_MARKER = b"\1"
_NOT_YET = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE})


@dataclass(slots=True)
class Worker:
    """One thread that does one numbered thing after the other, each once, until it may not."""

    cluster: Cluster
    topic: str
    sent: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sending(self) -> Iterator[Self]:
        self.begin()
        self._stop.clear()
        thread = threading.Thread(target=self._run, name=type(self).__name__)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(60)
            assert not thread.is_alive()

    def wait_for_acks(self, more: int) -> None:
        wanted = self.done + more
        until(lambda: self.done >= wanted, f"{more} more of {self.topic} are acknowledged")

    @property
    def done(self) -> int:
        """How many were acknowledged."""
        raise NotImplementedError

    def begin(self) -> None:
        """While nothing is broken yet."""

    def one(self, raw: RawClient) -> bool:
        """Whether it was acknowledged."""
        raise NotImplementedError

    def address(self) -> str:
        return leader(self.cluster.bootstrap, self.topic)

    def _run(self) -> None:
        """A connection that ends is where it ends: what it sent last may be there or not."""
        with suppress(OSError, EOFError), RawClient(self.address()) as raw:
            while not self._stop.is_set() and self.one(raw):
                pass


@dataclass(slots=True)
class Sender(Worker):
    """Sends records that hold their number."""

    acked: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and value."""

    @property
    def done(self) -> int:
        return len(self.acked)

    def one(self, raw: RawClient) -> bool:
        value = b"%d" % self.sent
        self.sent += 1
        answer = produce(raw, self.topic, batch_of(value))
        if not answer.error_code:
            self.acked.append((answer.base_offset, value))
        return not answer.error_code


@dataclass(slots=True)
class Committer(Worker):
    """Commits one offset after the other, of a group that nobody is in."""

    acked: int = 0

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    @property
    def done(self) -> int:
        return self.acked

    def address(self) -> str:
        return coordinator(self.cluster.bootstrap, self.group, kind=0)

    def one(self, raw: RawClient) -> bool:
        self.sent += 1
        row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=self.sent)
        topics = [k08.OffsetCommitRequestTopic(name=self.topic, partitions=[row])]
        request = k08.OffsetCommitRequest(group_id=self.group, topics=topics)
        code = raw.ask(k08.API, 8, request).topics[0].partitions[0].error_code
        if not code:
            self.acked = self.sent
        return not code


@dataclass(slots=True)
class Transactor(Worker):
    """Commits one transaction after the other: a record in each of two topics, and an offset."""

    acked: list[bytes] = field(default_factory=list)
    producer: RawProducer | None = None

    @property
    def topics(self) -> tuple[str, str]:
        return self.topic, f"{self.topic}-too"

    @property
    def group(self) -> str:
        return f"transactions of {self.topic}"

    @property
    def done(self) -> int:
        return len(self.acked)

    def begin(self) -> None:
        self.producer = RawProducer(self.cluster.bootstrap, self.topic).init()

    def one(self, raw: RawClient) -> bool:
        del raw  # each request goes to whoever it is for
        assert self.producer is not None
        self.sent += 1
        value = b"%d" % self.sent
        for topic in self.topics:
            self.producer.write(topic, value)
        codes = (
            self.producer.add_offsets(self.group),
            self.producer.commit_offset(self.group, self.topic, self.sent),
            self.producer.end(committed=True),
        )
        if not any(codes):
            self.acked.append(value)
        return not any(codes)

    def wrong(self) -> list[str]:
        """Once everybody is back: what was acknowledged is there, and what was under way is there
        in all its places or in none."""
        bootstrap = self.cluster.bootstrap
        RawProducer(bootstrap, self.topic).init()  # whatever is open ends now
        until(lambda: all(is_decided(self.cluster, one) for one in self.topics), "all is decided")
        found = [_committed(bootstrap, one) for one in self.topics]
        offset = committed_offset(bootstrap, self.group, self.topic)
        wrong = []
        if found[0] != found[1] or found[0][-1:] != [b"%d" % offset]:
            wrong.append(f"torn: {found[0][-3:]}, {found[1][-3:]}, offset {offset}")
        if not set(self.acked) <= set(found[0]) or len(set(found[0])) < len(found[0]):
            wrong.append(f"of {len(self.acked)} acknowledged {len(found[0])} are there")
        return wrong


def is_decided(cluster: Cluster, topic: str) -> bool:
    """Whether a leader tells that no transaction is open there."""
    try:
        ends = {end_of(cluster.bootstrap, topic, isolation=one) for one in (0, READ_COMMITTED)}
    except (OSError, EOFError, LookupError):
        return False
    except FetchRefusedError as refused:
        assert refused.code in _NOT_YET, refused
        return False
    return len(ends) == 1


def _committed(bootstrap: str, topic: str) -> list[bytes]:
    """The records of transactions that were not aborted, in this topic of one producer."""
    found: list[bytes] = []
    held: list[bytes] = []
    for header, batch in batches(bootstrap, topic):
        if not header.is_control:
            held += [one.value or b"" for one in iterate_records(batch)]
        else:
            (marker,) = iterate_records(batch)
            found += held if (marker.key or b"")[-1:] == COMMIT_MARKER else []
            held = []
    return found


def create(cluster: Cluster, topic: str, configs: Mapping[str, str]) -> None:
    words = [f"-c{name}={value}" for name, value in configs.items()]
    cluster.done("topic", "create", topic, "-p", "1", "-r", str(cluster.brokers), *words)


def power_loss(cluster: Cluster, *words: str) -> Any:
    return cluster.done("chaos", "power-loss", *words, "--json").document


def start_all(cluster: Cluster) -> None:
    cluster.done("broker", "start", *map(str, range(cluster.brokers)))
    cluster.done("wait", "ready")


class LossWindow(NamedTuple):
    """Of an election that may have lost records."""

    leader: int
    start: int
    at_least: int
    at_most: str


def loss_windows(cluster: Cluster) -> dict[str, LossWindow]:
    """Of each topic's first partition, as the coordinator's log names the latest one."""
    lines = (cluster.data / "logs/coordinator-0.log").read_text().splitlines()
    return {
        line["partition"].removesuffix("-0"): LossWindow(
            line["leader"], line["lost_from"], line["records_lost_at_least"], line["lost_at_most"]
        )
        for line in map(json.loads, lines)
        if line["event"] == "lossy_election"
    }


def wrong_after_power_loss(
    cluster: Cluster, topic: str, senders: Sequence[Sender], *, loses_nothing: bool
) -> list[str]:
    """Once all are in sync again, what a topic that these wrote to must not look like: it holds a
    part from the front, without a hole, all that was acknowledged where nothing may be lost, and
    the same on every replica."""
    left = whole_log_of(cluster, topic)
    wrong = []
    if left != [(number, b"%d" % number) for number in range(len(left))]:
        wrong.append(f"{topic}: what is left is no part from the front")
    if len(left) > senders[-1].sent:
        wrong.append(f"{topic}: {len(left)} records of {senders[-1].sent}")
    lost = {row for sender in senders for row in sender.acked}.difference(left)
    if lost and loses_nothing:
        wrong.append(f"{topic}: {len(lost)} acknowledged records are lost from {min(lost)} on")
    return wrong


def whole_log_of(cluster: Cluster, topic: str) -> list[tuple[int, bytes]]:
    """Offset and value of every record, once all are in sync, equal, and show all they have."""
    assert_replicas_equal(cluster, topic)
    end = 0
    for header, _ in iterate_batches(memoryview(log_bytes(cluster, 0, topic, 0))):
        end = header.next_offset
    left: list[tuple[int, bytes]] = []

    def is_all_told() -> bool:
        """The high watermark stands still while too few are in sync, and moves a moment later."""
        left[:] = log_of(cluster, topic)
        return len(left) >= end

    until(is_all_told, f"all of {topic} is told")
    return left


def log_of(cluster: Cluster, topic: str) -> list[tuple[int, bytes]]:
    """Offset and value of every record, once a leader tells."""
    found: list[tuple[int, bytes]] = []

    def read() -> bool:
        try:
            with RawClient(leader(cluster.bootstrap, topic)) as raw:
                found[:] = [(row.offset, row.value) for row in fetch_all(raw, topic)]
        except (OSError, EOFError, LookupError):
            return False
        except FetchRefusedError as refused:
            assert refused.code in _NOT_YET, refused
            return False
        return True

    until(read, f"the log of {topic}", 30)
    return found


def assert_replicas_equal(cluster: Cluster, topic: str) -> None:
    """Byte by byte, once all are in sync."""
    cluster.done("wait", "isr", topic, "--timeout", "30")

    def contents() -> list[bytes]:
        return [
            b"".join(
                path.read_bytes()
                for path in sorted(cluster.data.glob(f"broker-{broker}/log0/{topic}-0/*.log"))
            )
            for broker in range(cluster.brokers)
        ]

    until(lambda: len(set(contents())) == 1, f"all replicas of {topic} hold the same")
