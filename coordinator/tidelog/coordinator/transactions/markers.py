"""The markers that prepared transactions owe to partitions, and their way to the leaders.

A marker goes to the leader of its partition, under that leader's epoch. It goes once more only
after an answer that it was not written, to a leader of another epoch, or over another connection,
where what was under way on the one before is dropped: never because time has passed. A late copy
could end the next transaction of the same producer.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.transactions.around import Around, Session, Target
from tidelog.coordinator.transactions.records import Transaction
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    TRANSACTION_AGAIN_MS,
    TRANSACTION_MARKERS_PER_MESSAGE_MAX,
    TRANSACTION_MARKS_IN_FLIGHT_MAX,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import Mark, Marked, Marker

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Where the partition has heard of a later epoch of the producer, the one to be ended is over.

TRANSACTION_COORDINATOR_FENCED is a refusal as any other here: whether there is a newer coordinator
the metadata says, and every append and read.
"""

Key = tuple[Partition, str]
"""A partition of `__transaction_state`, and a transactional id in it."""


@dataclass(slots=True, eq=False)
class Owed:
    """One prepared transaction; it stays until the log holds that it is complete."""

    key: Key
    prepared: Transaction
    left: set[TopicPartition]
    told: bool = False
    """That nothing is left."""


@dataclass(slots=True, eq=False)
class _Due:
    """One marker that is not known to be written."""

    owed: Owed
    place: TopicPartition
    target: Target | None = None
    call: int = 0
    """Of the message that it is under way in; 0 for none."""
    again: Instant | None = None
    """It was refused, and is sent again then."""

    def marker(self) -> Marker:
        assert self.target is not None
        prepared = self.owed.prepared
        return Marker(
            topic=self.place[0],
            partition=self.place[1],
            leader_epoch=self.target.leader_epoch,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            committed=prepared.is_committed,
        )


@dataclass(slots=True, eq=False)
class _Sent:
    session: Session
    dues: list[_Due] = field(default_factory=list)


class Markers:
    """Invariant: each marker that is owed is under way to the present leader of its partition, in
    that leader's queue, waits out a refusal, or has no leader to go to."""

    def __init__(
        self,
        around: Around,
        *,
        is_current: Callable[[Partition], bool],
        on_written: Callable[[Instant, Key, Transaction], None],
    ) -> None:
        self._around = around
        self._is_current = is_current
        """Whether the image is newer than all that is in that partition of `__transaction_state`:
        only then is a topic that it does not have a deleted one."""
        self._on_written = on_written
        self._owed: dict[Key, Owed] = {}
        self._dues: dict[Key, list[_Due]] = {}
        self._queues: dict[Session, deque[_Due]] = {}
        self._sent: dict[int, _Sent] = {}
        self._in_flight: dict[Session, int] = {}
        self._refused: list[tuple[Instant, int, _Due]] = []
        self._count = 0

    # -- what is owed

    def owe(self, now: Instant, key: Key, prepared: Transaction) -> None:
        """The log holds that it is prepared, and nobody can take that back."""
        known = self._owed.get(key)
        if known is None or known.prepared != prepared:
            self._forget(key)
            known = self._owed[key] = Owed(key, prepared, set(prepared.partitions))
            self._dues[key] = [_Due(known, place) for place in sorted(prepared.partitions)]
            for due in self._dues[key]:
                self._route(due)
        known.told = False
        self._look_whether_done(now, known)

    def loaded(
        self, now: Instant, partition: Partition, prepared: Mapping[str, Transaction]
    ) -> None:
        """A partition was loaded: these are owed, and nothing else of it. What was under way
        already stays so."""
        for key in [key for key in self._owed if key[0] == partition and key[1] not in prepared]:
            self._forget(key)
        for name, transaction in prepared.items():
            self.owe(now, (partition, name), transaction)

    def settled(self, key: Key) -> None:
        """The log holds that it is complete."""
        self._forget(key)

    def _forget(self, key: Key) -> None:
        owed = self._owed.pop(key, None)
        if owed is not None:
            owed.left.clear()
            self._dues.pop(key, None)

    # -- where they go

    def look(self, now: Instant) -> None:
        """The image has moved on, or another connection stands: who leads each partition now?"""
        sessions = self._around.sessions
        for call, sent in list(self._sent.items()):
            if sessions.get(sent.session.broker) != sent.session:
                del self._sent[call]
        self._in_flight = _counted(sent.session for sent in self._sent.values())
        self._queues = {}
        for key, dues in list(self._dues.items()):
            for due in dues:
                if due.place in due.owed.left:
                    self._route_again(due)
            owed = self._owed.get(key)
            if owed is not None:
                self._look_whether_done(now, owed)

    def _route_again(self, due: _Due) -> None:
        before = due.target
        self._find(due)
        if due.target != before:
            due.call, due.again = 0, None
        self._enqueue(due)

    def _route(self, due: _Due) -> None:
        self._find(due)
        self._enqueue(due)

    def _find(self, due: _Due) -> None:
        """Set who leads its partition; drop a partition that is gone."""
        name, partition = due.place
        topic = self._around.image.names.get(name)
        if topic is not None and partition < len(topic.partitions):
            due.target = self._around.target(topic, partition)
            return
        due.target = None
        if self._is_current(due.owed.key[0]):
            due.owed.left.discard(due.place)

    def _enqueue(self, due: _Due) -> None:
        if due.target is not None and not due.call and due.again is None:
            self._queues.setdefault(due.target.session, deque()).append(due)

    def flush(self) -> None:
        """Send what may be sent: one message a broker, whoever owes it."""
        for session, queue in self._queues.items():
            while queue and self._in_flight.get(session, 0) < TRANSACTION_MARKS_IN_FLIGHT_MAX:
                self._send(session, queue)

    def _send(self, session: Session, queue: deque[_Due]) -> None:
        call = self._around.new_call()
        sent = _Sent(session)
        while queue and len(sent.dues) < TRANSACTION_MARKERS_PER_MESSAGE_MAX:
            due = queue.popleft()
            if due.place in due.owed.left:
                due.call = call
                sent.dues.append(due)
        if not sent.dues:
            return
        self._sent[call] = sent
        self._in_flight[session] = self._in_flight.get(session, 0) + 1
        markers = tuple(due.marker() for due in sent.dues)
        self._around.send(session, Mark(session.session, call, self._around.epoch, markers))

    # -- what became of them

    def marked(self, now: Instant, session: Session, message: Marked) -> None:
        sent = self._sent.get(message.call)
        if sent is None or sent.session != session:
            return
        del self._sent[message.call]
        self._in_flight[session] -= 1
        outcomes = message.outcomes
        if len(outcomes) != len(sent.dues):
            outcomes = (ErrorCode.UNKNOWN_SERVER_ERROR,) * len(sent.dues)
        for due, code in zip(sent.dues, outcomes, strict=True):
            if due.call == message.call:  # else another leader is asked by now
                due.call = 0
                self._settle(now, due, code)

    def _settle(self, now: Instant, due: _Due, code: ErrorCode) -> None:
        if due.place not in due.owed.left:
            return
        if code in _WRITTEN:
            due.owed.left.discard(due.place)
            self._look_whether_done(now, due.owed)
            return
        due.again = Instant(now + ms(TRANSACTION_AGAIN_MS))
        self._count += 1
        heapq.heappush(self._refused, (due.again, self._count, due))
        self._around.wake_at(due.again)

    def _look_whether_done(self, now: Instant, owed: Owed) -> None:
        if not owed.left and not owed.told and self._owed.get(owed.key) is owed:
            owed.told = True
            self._on_written(now, owed.key, owed.prepared)

    def tick(self, now: Instant) -> None:
        """Send again what was refused a while ago: neither side's image may have moved since."""
        while self._refused and self._refused[0][0] <= now:
            at, _, due = heapq.heappop(self._refused)
            if due.again == at and due.place in due.owed.left:
                due.again = None
                self._route(due)
                self._look_whether_done(now, due.owed)
        if self._refused:
            self._around.wake_at(self._refused[0][0])


def _counted(sessions: Iterable[Session]) -> dict[Session, int]:
    counts: dict[Session, int] = {}
    for session in sessions:
        counts[session] = counts.get(session, 0) + 1
    return counts
