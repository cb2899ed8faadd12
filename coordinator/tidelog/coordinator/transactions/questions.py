"""What brokers pass on: taken apart, put to the partitions that decide, answered as a whole.

What cannot be decided yet, most often because a partition is being loaded, waits a little here:
clients that are turned away come back much later.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.coordinator.transactions.admissions import Admissions
from tidelog.coordinator.transactions.around import Around, Session
from tidelog.coordinator.transactions.calls import Call, Parked, Question
from tidelog.coordinator.transactions.events import RequestFailed
from tidelog.coordinator.transactions.forwarded import Forwarded, Part
from tidelog.coordinator.transactions.markers import Key
from tidelog.coordinator.transactions.partitions import Partitions
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Done,
    Identity,
    InitProducerId,
    ListAll,
    Prepared,
    Reply,
    Request,
)
from tidelog.coordinator.transactions.state_partition import StatePartition
from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    TRANSACTION_CALLS_MAX,
    TRANSACTION_END_WAIT_MS,
    TRANSACTION_PARKED_MS,
)
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, Rejected, WireError, fault_text
from tidelog.wire.transactions import Answered, Failed, Forward

_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class _Ending:
    """A producer that asked for an end which is certain by now, and waits until it is complete."""

    __slots__ = ("prepared", "question", "until")

    def __init__(self, question: Question, prepared: Transaction, until: Instant) -> None:
        self.question = question
        self.prepared = prepared
        self.until = until


class Questions:
    """Invariant: each call that was taken is answered once, or its connection is gone."""

    def __init__(self, around: Around, partitions: Partitions, admissions: Admissions) -> None:
        self._around = around
        self._admissions = admissions
        self._partitions = partitions
        self._open = 0
        """Calls that are not answered."""
        self._count = 0
        self._asked: dict[RequestId, Question | None] = {}
        """What the partitions are deciding on; None for what no client asked."""
        self._parked: list[Parked] = []
        self._endings: dict[Key, _Ending] = {}
        """In the order in which they began."""

    # -- what brokers pass on

    def forward(self, now: Instant, session: Session, message: Forward) -> None:
        if message.call < session.session or now >= message.deadline:
            return  # of a connection that has ended, or nobody waits any more
        if self._open >= TRANSACTION_CALLS_MAX:
            self._fail(session, message.call, _NOT_AVAILABLE)
            return
        try:
            forwarded = Forwarded.read(message.frame)
            asked = self._asked_of(forwarded)
        except WireError:
            self._fail(session, message.call, ErrorCode.INVALID_REQUEST)
            return
        except REQUEST_FAULTS as fault:
            self._tell_fault("a request", fault)
            self._fail(session, message.call, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        call = Call(session, message.call, message.deadline, forwarded)
        self._open += 1
        if isinstance(asked, ListAll):
            self._ask_each(now, call, asked)
        else:
            self._ask_parts(now, call, asked)

    def _asked_of(self, forwarded: Forwarded) -> ListAll | Sequence[Part]:
        """What is asked of every id, or of single ones."""
        try:
            everything = forwarded.asks_all()
        except Rejected as refused:
            return [Refusal(refused.code)]
        return forwarded.parts(self._around.image) if everything is None else everything

    def _tell_fault(self, what: str, fault: Exception) -> None:
        self._around.happened(RequestFailed(f"{what} failed: {fault_text(fault)}"))

    def _fail(self, session: Session, number: int, code: ErrorCode) -> None:
        self._around.send(session, Failed(session.session, number, code))

    def _ask_each(self, now: Instant, call: Call, request: ListAll) -> None:
        """Whoever asks all brokers hears of each id once: from who leads its partition."""
        places = self._partitions.led_by(call.session.broker)
        call.expect(len(places))
        if not places:
            self._answer(call)
        for part, place in enumerate(places):
            self._ask(now, Question(call, part, place, request))

    def _ask_parts(self, now: Instant, call: Call, parts: Sequence[Part]) -> None:
        call.expect(len(parts))
        if not parts:
            self._answer(call)
        for at, part in enumerate(parts):
            if isinstance(part, Refusal):
                self._reply(call, at, part)
                continue
            place = self._partitions.of(part.transactional_id)
            if place is None:
                self._reply(call, at, Refusal(_NOT_AVAILABLE))
            else:
                self._ask(now, Question(call, at, place, part))

    # -- what is decided, and what waits

    def _ask(self, now: Instant, question: Question, until: Instant | None = None) -> None:
        """Have it decided, or let it wait for what it lacks, until then at most."""
        call, part, place, request = question
        code = place.refusal()
        if code is ErrorCode.NONE:
            code = self._lacks(request)
        if code is ErrorCode.NONE:
            self._put(now, place, question, request)
        elif code is _NOT_AVAILABLE:
            self._reply(call, part, Refusal(code))
        else:
            latest = min(call.deadline, Instant(now + ms(TRANSACTION_PARKED_MS)))
            self._parked.append(Parked(question, code, until or latest))
            self._around.wake_at(until or latest)

    def _lacks(self, request: Request) -> ErrorCode:
        """What has to be there before this can be decided, and comes in a moment."""
        if isinstance(request, InitProducerId) and not len(self._around.producer_ids):
            return _LOADING
        if isinstance(request, AddPartitions) and not self._are_known(request):
            # A broker has them. Taken for deleted, they would never get their markers.
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _are_known(self, request: AddPartitions) -> bool:
        names = self._around.image.names
        return all(
            (view := names.get(topic)) is not None and partition < len(view.partitions)
            for topic, partition in request.partitions
        )

    def _put(
        self, now: Instant, place: StatePartition, question: Question | None, request: Request
    ) -> None:
        self._count += 1
        asked = RequestId(self._count)
        self._asked[asked] = question
        # What was passed over of that would be owed for ever, and readers would wait for it.
        place.ask(now, asked, request, is_ours=question is None)

    def retry(self, now: Instant) -> None:
        """What some waited for may be there."""
        parked, self._parked = self._parked, []
        for question, code, until in parked:
            call = question.call
            if now >= until or not self._is_connected(call):
                self._reply(call, question.part, Refusal(code))
            else:
                self._ask(now, question, until)

    def _is_connected(self, call: Call) -> bool:
        """Whether who asked hears the answer. If not, nothing may be decided either."""
        return self._around.sessions.get(call.session.broker) == call.session

    def tell(self, now: Instant, place: StatePartition, request: Request) -> None:
        """Have this decided, though no client asked."""
        self._put(now, place, None, request)

    # -- answers

    def replied(self, now: Instant, asked: RequestId, reply: Reply) -> None:
        """A partition has decided, and nobody can take it back."""
        question = self._asked.pop(asked)
        if question is None:
            return
        if isinstance(reply, Prepared):
            self._wait_for_end(now, question, reply.transaction)
        else:
            request = question.request
            if isinstance(request, AddPartitions) and isinstance(reply, Done):
                self._tell_leaders(question.call, request)
            self._reply(question.call, question.part, reply)

    def _tell_leaders(self, call: Call, added: AddPartitions) -> None:
        """Before the producer hears it, and comes to them. A broker that adds is itself the one."""
        if not call.forwarded.is_of_broker:
            self._admissions.tell(added)

    def _wait_for_end(self, now: Instant, question: Question, prepared: Transaction) -> None:
        """The answer may go now. A little later the producer's next transaction is not turned
        away."""
        assert not isinstance(question.request, ListAll)
        key = (question.place.index, question.request.transactional_id)
        before = self._endings.pop(key, None)
        if before is not None:
            self._end(before)
        until = Instant(now + ms(TRANSACTION_END_WAIT_MS))
        self._endings[key] = _Ending(question, prepared, until)
        self._around.wake_at(until)

    def ended(self, key: Key, prepared: Transaction) -> None:
        """Its markers are committed, and that it is complete is decided: whatever the producer asks
        next stands behind that in the log."""
        ending = self._endings.get(key)
        if ending is not None and ending.prepared == prepared:
            del self._endings[key]
            self._end(ending)

    def _end(self, ending: _Ending) -> None:
        said = Identity(*ending.prepared.successor)
        self._reply(ending.question.call, ending.question.part, said)

    def _reply(self, call: Call, part: int, reply: Reply) -> None:
        if call.take(part, reply):
            self._answer(call)

    def _answer(self, call: Call) -> None:
        self._open -= 1
        session = call.session
        if not self._is_connected(call):
            return
        try:
            frame = call.answer()
        except REQUEST_FAULTS as fault:
            self._tell_fault("an answer", fault)
            self._fail(session, call.number, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._around.send(session, Answered(session.session, call.number, frame))

    def tick(self, now: Instant) -> None:
        """Answer whose time is up."""
        while self._endings:
            key, first = next(iter(self._endings.items()))
            if first.until > now:
                self._around.wake_at(first.until)
                break
            del self._endings[key]
            self._end(first)
        if self._parked:
            self.retry(now)
        for parked in self._parked:
            self._around.wake_at(parked.until)
