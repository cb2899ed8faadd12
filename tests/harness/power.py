"""Real clusters that lose power: who wrote what until then, and what must be there afterwards."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from harness.cluster import Cluster, until
from harness.fetch_raw import FetchRefusedError, fetch_all
from harness.produce_raw import batch_of, produce
from harness.raw import RawClient
from harness.transaction_raw import leader
from tidelog.wire.errors import ErrorCode

_NOT_YET = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE})


@dataclass(slots=True)
class Sender:
    """One thread that sends one numbered record after the other, each once, until it may not."""

    cluster: Cluster
    topic: str
    sent: int = 0
    acked: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and value."""
    address: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sending(self) -> Iterator[None]:
        self.address = leader(self.cluster.bootstrap, self.topic)
        thread = threading.Thread(target=self._run, name="sender")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)
            assert not thread.is_alive()

    def wait_for_acks(self, more: int) -> None:
        wanted = len(self.acked) + more
        until(lambda: len(self.acked) >= wanted, f"{more} more records are acknowledged")

    def _run(self) -> None:
        """A connection that ends is where it ends: what it sent last may be there or not."""
        with suppress(OSError, EOFError), RawClient(self.address) as raw:
            while not self._stop.is_set():
                value = b"%d" % self.sent
                self.sent += 1
                answer = produce(raw, self.topic, batch_of(value))
                if answer.error_code:
                    break
                self.acked.append((answer.base_offset, value))


def create(cluster: Cluster, topic: str, configs: Mapping[str, str]) -> None:
    words = [f"-c{name}={value}" for name, value in configs.items()]
    cluster.done("topic", "create", topic, "-p", "1", "-r", str(cluster.brokers), *words)


def power_loss(cluster: Cluster, *words: str) -> Any:
    return cluster.done("chaos", "power-loss", *words, "--json").document


def wrong_after_power_loss(
    cluster: Cluster, topic: str, senders: Sequence[Sender], *, loses_nothing: bool
) -> list[str]:
    """Once all are in sync again, what a topic that these wrote to must not look like: it holds a
    part from the front, without a hole, all that was acknowledged where nothing may be lost, and
    the same on every replica."""
    left = log_of(cluster, topic)
    wrong = []
    if left != [(number, b"%d" % number) for number in range(len(left))]:
        wrong.append(f"{topic}: what is left is no part from the front")
    if len(left) > senders[-1].sent:
        wrong.append(f"{topic}: {len(left)} records of {senders[-1].sent}")
    lost = {row for sender in senders for row in sender.acked}.difference(left)
    if lost and loses_nothing:
        wrong.append(f"{topic}: {len(lost)} acknowledged records are lost from {min(lost)} on")
    assert_replicas_equal(cluster, topic)
    return wrong


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
