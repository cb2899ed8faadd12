"""One partition of `__transaction_state`: who leads it, its loading, and what is appended to it.

The coordinator has no file. It writes by messages to the leader, as a producer whose id is reserved
and whose epoch is its own, with consecutive sequence numbers, several batches at a time; it reads
by messages, too. Where the fate of a batch is not known (its leader is one no more, the connection
broke) what is in memory may never come true: it is dropped, and the partition is loaded anew.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Final, NamedTuple, assert_never

from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.around import FENCED, Around, Target
from tidelog.coordinator.transactions.events import (
    PartitionLeft,
    PartitionLoaded,
    PartitionNotLoaded,
    RequestFailed,
)
from tidelog.coordinator.transactions.records import BARRIER, TxnRecord
from tidelog.coordinator.transactions.requests import Reply, Request
from tidelog.coordinator.transactions.shard import TxnShard
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, Offset, Partition, RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    TRANSACTION_AGAIN_MS,
    TRANSACTION_AGAIN_MS_FIRST,
    TRANSACTION_APPENDS_IN_FLIGHT_MAX,
    TRANSACTION_APPENDS_QUEUED_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_CHUNK_BYTES,
)
from tidelog.node.runtime.shard_host import (
    AppendFailed,
    AppendRecords,
    Event,
    LogAppended,
    LogCommitted,
    Requested,
    Resign,
    ShardHost,
    Tick,
)
from tidelog.node.runtime.shard_host import Reply as HostReply
from tidelog.node.runtime.shard_host import RequestFailed as HostRequestFailed
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, Rejected, WireError, fault_text
from tidelog.wire.records import iterate_batches, iterate_records
from tidelog.wire.transactions import STATE_TOPIC, Append, Appended, Chunk, Read

_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_TOO_FEW: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)

Host = ShardHost[Request, TxnRecord, Reply]


class Stage(Enum):
    """How far a partition has come on its way to be decided on."""

    AWAY = auto()
    """Nobody leads it who can be spoken to, or it waits before it is tried again."""
    ASKED = auto()
    """Its leader was asked where its log starts and ends."""
    FENCING = auto()
    """The barrier is on its way: what an earlier coordinator still writes comes too late."""
    WAITING = auto()
    """Others are read first."""
    READING = auto()
    OPEN = auto()
    COMPARED = auto()
    """Open, and another leader was asked whether its log ends where ours does."""


class Callbacks(NamedTuple):
    """What the partition tells those around it."""

    on_reply: Callable[[Instant, RequestId, Reply], None]
    on_committed: Callable[[Instant, Partition, Sequence[TxnRecord]], None]
    on_open: Callable[[Instant, "StatePartition"], None]
    on_queued: Callable[["StatePartition"], None]
    """There is something that `flush` may send."""
    may_read: Callable[["StatePartition"], bool]
    """Whether it may begin; if not, `begin_reading` is called when it may."""
    has_read: Callable[["StatePartition"], None]


class _Queued(NamedTuple):
    """One decision that is not on its way yet."""

    ticket: int
    records: tuple[TxnRecord, ...]
    pairs: list[tuple[bytes, bytes | None]]
    size: int


class _Sent(NamedTuple):
    """One batch on its way."""

    call: int
    tickets: list[int]
    records: list[TxnRecord]


class StatePartition:
    """Invariant: while there is a host, its shard is what the log holds up to `_end`, then what is
    in `_sent`, then what is in `_queue`; `_sequence` follows all that was sent."""

    def __init__(self, index: Partition, around: Around, callbacks: Callbacks) -> None:
        self.index = index
        self.shard: TxnShard | None = None
        """While it is loaded, and since."""
        self._around = around
        self._callbacks = callbacks
        self._stage = Stage.AWAY
        self._host: Host | None = None
        self._target: Target | None = None
        self._confirmed: Target | None = None
        """Whose log is known to be what the shard replayed."""
        self._has_leader = False
        self._again: Instant | None = None
        self._failure = ErrorCode.NONE
        """Why the last attempt failed, if it did."""
        self._wait_ms = TRANSACTION_AGAIN_MS_FIRST
        self._began = Instant(0)
        self._call = 0
        """Of the message of loading that is under way."""
        self._start = Offset(0)
        self._end = Offset(0)
        self._sequence = 0
        self._queue: deque[_Queued] = deque()
        self._sent: deque[_Sent] = deque()

    # -- what others may know

    def refusal(self) -> ErrorCode:
        """Why nothing can be decided here now; NONE if it can."""
        if not self._has_leader:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._host is None:
            too_few, loading = self._failure in _TOO_FEW, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if too_few else loading
        if len(self._queue) >= TRANSACTION_APPENDS_QUEUED_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    @property
    def is_open(self) -> bool:
        return self._host is not None

    # -- who leads it

    def look(self, now: Instant) -> None:
        """The image has moved on, or another connection stands."""
        topic = self._around.image.names.get(STATE_TOPIC)
        view = None if topic is None else topic.partitions[self.index]
        self._has_leader = view is not None and view.leader != NO_LEADER
        target = None if topic is None else self._around.target(topic, self.index)
        if target == self._target:
            if self._stage is Stage.AWAY and self._host is None and target is not None:
                self._load(now)  # what stood in the way may be gone
            return
        self._target = target
        self._succeeded()
        if self._host is not None and not self._sent:
            self._follow(target)
            return
        if self._host is not None:
            self._leave(now, "its leader is another one, or was lost")
        self._load(now)

    def _follow(self, target: Target | None) -> None:
        """Nothing is under way, so nothing is uncertain: another leader has to have the same."""
        self._call = 0
        if target is None:
            self._stage = Stage.AWAY
        elif target.is_same_leader(self._confirmed):
            self._stage = Stage.OPEN
            self._callbacks.on_queued(self)
        else:
            self._stage = Stage.COMPARED
            self._read(target, NO_OFFSET)

    # -- loading

    def _load(self, now: Instant) -> None:
        assert self._host is None
        self._callbacks.has_read(self)
        self._call, self._again = 0, None
        self._stage = Stage.AWAY
        target = self._target
        if target is None:
            return
        self._began = now
        around = self._around
        self.shard = TxnShard(
            around.settings,
            around.wall_ms,
            around.producer_ids,
            around.happened,
            around.transactions_version,
        )
        self._stage = Stage.ASKED
        self._read(target, NO_OFFSET)

    def _read(self, target: Target, offset: Offset) -> None:
        self._call = self._around.new_call(self.index)
        self._around.send(
            target.session,
            Read(
                session=target.session.session,
                call=self._call,
                epoch=self._around.epoch,
                partition=self.index,
                leader_epoch=target.leader_epoch,
                offset=offset,
                max_bytes=TRANSACTION_CHUNK_BYTES,
            ),
        )

    def chunk(self, now: Instant, chunk: Chunk) -> None:
        """The leader's answer to a Read."""
        if chunk.call != self._call:
            return
        self._call = 0
        if chunk.code is not ErrorCode.NONE:
            self._failed(now, chunk.code)
        elif self._stage is Stage.ASKED:
            self._fence(now, chunk)
        elif self._stage is Stage.COMPARED:
            self._compare(now, chunk)
        else:
            self._replay(now, chunk)

    def _fence(self, now: Instant, chunk: Chunk) -> None:
        """An empty log needs no barrier: its leader has heard our epoch by now, and so has, by the
        metadata, whoever leads after it."""
        self._start, self._end = chunk.start, chunk.end
        self._sequence = chunk.next_sequence
        if chunk.end == 0:
            self._open(now)
            return
        self._stage = Stage.FENCING
        self._call = self._append([records.pair(BARRIER)], now)

    def _replay(self, now: Instant, chunk: Chunk) -> None:
        shard = self.shard
        assert self._stage is Stage.READING, self._stage
        assert shard is not None
        before = self._start
        try:
            for header, batch in iterate_batches(memoryview(chunk.batches)):
                if header.base_offset < self._end and not header.is_control:
                    _replay_batch(shard, batch)
        except (WireError, Rejected):
            self._failed(now, ErrorCode.CORRUPT_MESSAGE)
            return
        self._start = chunk.following
        if self._start >= self._end:
            self._open(now)
        elif self._start <= before:
            self._failed(now, ErrorCode.CORRUPT_MESSAGE)
        else:
            self.begin_reading()

    def begin_reading(self) -> None:
        """Read the next piece."""
        target = self._target
        assert target is not None
        if self._around.sessions.get(target.session.broker) == target.session:
            self._stage = Stage.READING
            self._read(target, self._start)
        # else whoever looks at the new session comes to us in a moment, and we begin anew

    def _open(self, now: Instant) -> None:
        shard = self.shard
        assert shard is not None
        self._callbacks.has_read(self)
        shard.loaded(now)
        self._host = ShardHost(shard, committed=self._end)
        self._confirmed = self._target
        self._stage = Stage.OPEN
        self._succeeded()
        self._around.wake_at(self._host.deadline())
        prepared = sum(1 for _ in shard.prepared())
        took_ms = (now - self._began) / 1e6
        self._around.happened(PartitionLoaded(self.index, len(shard), prepared, self._end, took_ms))
        self._callbacks.on_open(now, self)

    def _compare(self, now: Instant, chunk: Chunk) -> None:
        """Whether another leader's log is what was committed, no less and no more."""
        if (chunk.end, chunk.next_sequence) == (self._end, self._sequence):
            self._confirmed = self._target
            self._stage = Stage.OPEN
            self._succeeded()
            self._callbacks.on_queued(self)
        else:
            self._leave(now, f"its log ends at {chunk.end}, not at {self._end}")
            self._load(now)

    def _failed(self, now: Instant, code: ErrorCode) -> None:
        """A step of loading, or of looking at another leader's log, was refused."""
        if code in FENCED:
            self._around.stop(f"there is a newer transaction coordinator: {code.name}")
            return
        self._callbacks.has_read(self)
        self._stage = Stage.AWAY
        self._fail(code)
        self._again = Instant(now + ms(self._wait_ms))
        self._wait_ms = min(2 * self._wait_ms, TRANSACTION_AGAIN_MS)
        self._around.wake_at(self._again)

    def _fail(self, code: ErrorCode) -> None:
        """Tell of it once, however often it is tried."""
        if code is not self._failure:
            self._around.happened(PartitionNotLoaded(self.index, code))
        self._failure = code

    def _succeeded(self) -> None:
        self._failure = ErrorCode.NONE
        self._wait_ms = TRANSACTION_AGAIN_MS_FIRST

    # -- what is decided

    def ask(
        self, now: Instant, asked: RequestId, request: Request, *, is_ours: bool = False
    ) -> None:
        """Have it decided; the reply comes when it cannot be taken back."""
        self._drive(now, Requested(asked, request, is_ours))

    def tick(self, now: Instant) -> None:
        if self._again is not None and self._again <= now:
            self._again = None
            if self._host is None:
                self._load(now)
            else:
                self._follow(self._target)
        self._around.wake_at(self._again)
        if self._host is None:
            return
        due = self._host.deadline()
        if due is not None and due <= now:
            self._drive(now, Tick())
        else:
            self._around.wake_at(due)

    def _drive(self, now: Instant, event: Event[Request]) -> None:
        host = self._host
        assert host is not None
        fault = ""
        for effect in host.step(now, event):
            match effect:
                case AppendRecords(ticket, decided):
                    fault = self._enqueue(ticket, decided) or fault
                case HostReply(asked, reply):
                    self._callbacks.on_reply(now, asked, reply)
                case HostRequestFailed(reason):
                    self._around.happened(RequestFailed(reason))
                case Resign():
                    self._host = None
                case _:
                    assert_never(effect)
        if fault:
            # What was decided is not going to be in the log: begin again from what is.
            self._around.happened(RequestFailed(fault))
            self._leave(now, fault)
            self._load(now)
        else:
            self._around.wake_at(host.deadline())

    def _enqueue(self, ticket: int, decided: tuple[TxnRecord, ...]) -> str:
        """Have it written; or why that cannot be done."""
        try:
            pairs = [records.pair(record) for record in decided]
        except REQUEST_FAULTS as fault:
            return f"records cannot be written: {fault_text(fault)}"
        size = sum(len(key) + len(value or b"") for key, value in pairs)
        self._queue.append(_Queued(ticket, decided, pairs, size))
        self._callbacks.on_queued(self)
        return ""

    def flush(self, now: Instant) -> None:
        """Send what was decided: as many decisions as there are, in one batch."""
        if self._stage is not Stage.OPEN:
            return
        while self._queue and len(self._sent) < TRANSACTION_APPENDS_IN_FLIGHT_MAX:
            batch = self._take_batch()
            call = self._append(list(chain.from_iterable(one.pairs for one in batch)), now)
            written = list(chain.from_iterable(one.records for one in batch))
            self._sent.append(_Sent(call, [one.ticket for one in batch], written))

    def _take_batch(self) -> list[_Queued]:
        """As many decisions as fit; at least one."""
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and size + self._queue[0].size <= TRANSACTION_BYTES_MAX:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch

    def _append(self, pairs: list[tuple[bytes, bytes | None]], now: Instant) -> int:
        target, around = self._target, self._around
        assert target is not None
        call = around.new_call(self.index)
        batch = records.batch_of(
            pairs, around.wall_ms(now), epoch=around.epoch, sequence=self._sequence
        )
        self._sequence = (self._sequence + len(pairs)) & _SEQUENCE_MASK
        around.send(
            target.session,
            Append(
                session=target.session.session,
                call=call,
                epoch=around.epoch,
                partition=self.index,
                leader_epoch=target.leader_epoch,
                batch=batch,
            ),
        )
        return call

    def appended(self, now: Instant, message: Appended) -> None:
        """The leader's answer to an Append."""
        if message.call == self._call and self._stage is Stage.FENCING:
            self._fenced(now, message)
            return
        if not any(sent.call == message.call for sent in self._sent):
            return
        if message.code in FENCED:
            self._around.stop(f"there is a newer transaction coordinator: {message.code.name}")
        elif message.code is not ErrorCode.NONE:
            self._failure = message.code
            self._leave(now, f"an append was refused: {message.code.name}")
            self._load(now)
        else:
            self._committed(now, message)

    def _fenced(self, now: Instant, message: Appended) -> None:
        """Nothing of an earlier coordinator can come behind the barrier."""
        self._call = 0
        if message.code is not ErrorCode.NONE:
            self._failed(now, message.code)
            return
        self._end = message.end
        self._stage = Stage.WAITING
        if self._callbacks.may_read(self):
            self.begin_reading()

    def _committed(self, now: Instant, message: Appended) -> None:
        """This batch is, and so are those before it."""
        self._end = message.end
        done: list[TxnRecord] = []
        call = 0
        while call != message.call:
            call, tickets, batch = self._sent.popleft()
            for ticket in tickets:
                self._drive(now, LogAppended(ticket, message.end))
            done += batch
        self._drive(now, LogCommitted(message.end))
        self._callbacks.on_queued(self)
        self._callbacks.on_committed(now, self.index, done)

    def give_up(self, now: Instant, reason: str) -> None:
        """For good."""
        if self._host is not None:
            self._leave(now, reason)
        self._callbacks.has_read(self)
        self._target, self._stage, self._call, self._again = None, Stage.AWAY, 0, None

    def _leave(self, now: Instant, reason: str) -> None:
        """Drop what is in memory: there is no undo. Whoever waits is told to ask again."""
        self._around.happened(PartitionLeft(self.index, reason))
        self._drive(now, AppendFailed(reason))
        assert self._host is None
        self.shard = None
        self._confirmed = None
        self._queue.clear()
        self._sent.clear()


def _replay_batch(shard: TxnShard, batch: memoryview) -> None:
    for one in iterate_records(batch):
        record = records.read(one.key or b"", one.value)
        if record is not None:
            shard.replay(record)
