"""A broker's service for the transaction coordinator, whose part the test plays."""

from collections.abc import Sequence
from pathlib import Path

from harness.machines.brokers import ME, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from tidelog.kernel.ids import Epoch, Incarnation, Offset, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.transactions import state_log
from tidelog.node.transactions.admissions import Admissions
from tidelog.node.transactions.link import Me
from tidelog.node.transactions.marking import Done
from tidelog.node.transactions.service import Service, Surroundings
from tidelog.node.transactions.state_log import StateLog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Origin, Record, build_batch
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Append,
    FromTransactions,
    Hello,
    Mark,
    Marker,
    Read,
    ToTransactions,
    Welcome,
    encode,
    written_as,
)

LIFE = Incarnation(70)
EPOCH = Epoch(3)


def state_batch(value: bytes, sequence: int = 0, *, epoch: int = EPOCH, size: int = 1) -> bytes:
    """A batch as the coordinator of that epoch writes it."""
    rows = [Record(at, 1_000, b"id", value, ()) for at in range(size)]
    origin = Origin(*written_as(Epoch(epoch)), sequence)
    return bytes(build_batch(rows, origin=origin))


class RecordedMarks:
    """Markers that were asked for; a test says what became of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Epoch, Sequence[Marker]]] = []
        self.done: list[Done] = []

    def mark(
        self,
        now: Instant,
        epoch: Epoch,
        markers: Sequence[Marker],
        done: Done,
        deadline: Instant | None = None,
    ) -> None:
        assert now
        assert deadline is None, "nobody waits for less than the outcome"
        self.asked.append((epoch, markers))
        self.done.append(done)


class ServiceBench:
    """One partition of the state topic, led here, and in sync with one follower unless told
    otherwise."""

    def __init__(self, directory: Path, *, in_sync: tuple[int, ...] = (0, 1)) -> None:
        self.bench = bench = HandlerBench(directory)
        self.peer = Peer(bench, 1)
        self.topic = replicated(bench, STATE_TOPIC, shown(*in_sync), min_in_sync=len(in_sync))
        if len(in_sync) > 1:
            self.peer.follow(self.topic)
        self.said: list[ToTransactions] = []
        self.alarms: list[Instant] = []
        self.is_lost = False
        self.marks = RecordedMarks()
        self._calls = 0
        self.session = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """As in another life of the broker: all that was heard of is forgotten."""
        self.service = Service(
            Me("cluster", ME, Incarnation(1)),
            Surroundings(
                image=self.bench.image,
                state_log=StateLog(self._around()),
                marks=self.marks,
                admissions=Admissions(
                    self.bench.broker.replicas, self.bench.broker.on_storage_failure
                ),
                is_lost=lambda: self.is_lost,
                send=self.said.append,
                alarm=self.alarms.append,
            ),
        )
        self.service.registered(self.bench.now)
        self.meet()

    def _around(self) -> state_log.Surroundings:
        broker = self.bench.broker
        return state_log.Surroundings(
            replicas=broker.replicas,
            replication=broker.replication,
            waiting=broker.waiting,
            wall_ms=broker.wall_ms,
            on_storage_failure=self._on_storage_failure,
        )

    def _on_storage_failure(self, key: TopicPartition, failure: Exception) -> None:
        self.bench.failures.append((key, str(failure)))

    def meet(self, epoch: int = EPOCH) -> None:
        """A new connection, and the coordinator's Welcome."""
        self.service.up(self.bench.now)
        (hello,) = self.take()
        assert isinstance(hello, Hello)
        self.session = hello.session
        self.hear(Welcome(self.session, LIFE, Epoch(epoch)))

    def take(self) -> list[ToTransactions]:
        """What was said since the last look."""
        said, self.said[:] = list(self.said), []
        return said

    def hear(self, message: FromTransactions) -> None:
        self.service.received(self.bench.now, encode(message))

    def append(self, batch: bytes, *, epoch: int = EPOCH, leader_epoch: int = 0) -> int:
        """Its number."""
        self._calls += 1
        self.hear(Append(self.session, self._calls, Epoch(epoch), 0, Epoch(leader_epoch), batch))
        return self._calls

    def read(
        self, offset: int, *, epoch: int = EPOCH, leader_epoch: int = 0, max_bytes: int = 1 << 20
    ) -> int:
        self._calls += 1
        ask = (Epoch(epoch), 0, Epoch(leader_epoch), Offset(offset), max_bytes)
        self.hear(Read(self.session, self._calls, *ask))
        return self._calls

    def mark(self, *markers: Marker, epoch: int = EPOCH) -> int:
        self._calls += 1
        self.hear(Mark(self.session, self._calls, Epoch(epoch), markers))
        return self._calls

    def elect(self, leader: int, epoch: int, *isr: int) -> None:
        """Another leader epoch of the state partition."""
        change(self.bench, self.topic, shown(*isr, leader=leader, epoch=epoch, change=epoch))
        self.service.image_changed(self.bench.now)

    def codes(self) -> list[ErrorCode]:
        """Of what was answered since the last look."""
        return [message.code for message in self.take() if hasattr(message, "code")]
