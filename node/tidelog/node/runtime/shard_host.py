"""Runs a shard over its log: append, replay, let replies go once their records are committed."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar, assert_never

from msgspec import Struct

from tidelog.kernel.ids import NO_OFFSET, Offset, RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.shard import Decision, Shard
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, Rejected, fault_text

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")


class Requested(Struct, Generic[RequestT], frozen=True):
    """Someone asks; `asked` never comes twice."""

    asked: RequestId
    request: RequestT
    is_ours: bool = False
    """No client asks, and nobody would ask again: what it tells is so, and must be decided on. A
    fault in that ends the process, and the next one hears of it anew."""


class LogAppended(Struct, frozen=True):
    """The batch of this ticket is in the log, which now ends before `end`."""

    ticket: int
    end: Offset


class LogGrown(Struct, frozen=True):
    """Somebody else wrote into the log, which now ends before `end`; the shard has replayed it."""

    end: Offset


class LogCommitted(Struct, frozen=True):
    """Nothing before `end` can be lost any more."""

    end: Offset


class AppendFailed(Struct, frozen=True):
    """The log took a batch not, or not surely: what was replayed may never come true."""

    reason: str = ""


class GiveUpHeld(Struct, frozen=True):
    """Whoever waits for a commit has waited long enough. What was decided may still come true."""

    code: ErrorCode


class Tick(Struct, frozen=True):
    """The deadline came."""


class AppendRecords(Struct, Generic[RecordT], frozen=True):
    """Write these as one batch, after those of lower tickets."""

    ticket: int
    records: tuple[RecordT, ...]


class Refusal(Struct, frozen=True):
    """What a request gets that the protocol turns down."""

    code: ErrorCode
    detail: str = ""


class Reply(Struct, Generic[ReplyT], frozen=True):
    asked: RequestId
    reply: ReplyT | Refusal


class RequestFailed(Struct, frozen=True):
    """A request brought out a fault of ours. It is refused; the shell logs the fault."""

    reason: str


class Resign(Struct, frozen=True):
    """Drop this host and its shard, and load the log anew: there is no undo."""

    reason: str = ""


Event = (
    Requested[RequestT] | LogAppended | LogGrown | LogCommitted | AppendFailed | GiveUpHeld | Tick
)
Effect = AppendRecords[RecordT] | Reply[ReplyT] | RequestFailed | Resign


class ShardHost(Generic[RequestT, RecordT, ReplyT]):
    """Between a shard and its log; a machine.

    Invariant: a reply leaves only when every record replayed before it was decided is committed, so
    nobody hears of what a crash could take back; replies leave in the order they were decided.
    """

    def __init__(
        self,
        shard: Shard[RequestT, RecordT, ReplyT],
        *,
        committed: Offset = NO_OFFSET,
        resigned: ErrorCode = ErrorCode.NOT_COORDINATOR,
    ) -> None:
        self._shard = shard
        self._resigned_code = resigned
        self._resigned = False
        self._ticket = 0
        """Of the latest batch handed to the log, or found there; all of them are replayed."""
        self._ends: deque[tuple[int, Offset]] = deque()
        """Appended and not committed batches."""
        self._committed_ticket = 0
        self._committed = committed
        self._held: deque[tuple[int, RequestId, ReplyT | Refusal]] = deque()
        """Replies, and the ticket each waits for."""
        self._waiting: dict[RequestId, None] = {}
        """Everyone who has no reply yet, decided or not."""

    def step(self, now: Instant, event: Event[RequestT]) -> Sequence[Effect[RecordT, ReplyT]]:
        match event:
            case Requested():
                return self._requested(now, event)
            case LogAppended() | LogGrown():
                return self._grow(event)
            case LogCommitted(end):
                return self._commit(end)
            case Tick():
                return [] if self._resigned else self._carry_out(self._shard.expire(now))
            case AppendFailed(reason):
                return self._resign(reason)
            case GiveUpHeld(code):
                return self._give_up(code)
            case _:
                assert_never(event)

    def deadline(self) -> Instant | None:
        return None if self._resigned else self._shard.deadline()

    def held(self, asked: RequestId) -> ReplyT | Refusal | None:
        """A reply that is decided and waits for its records."""
        return next((reply for _, held, reply in self._held if held == asked), None)

    def _requested(self, now: Instant, event: Requested[RequestT]) -> list[Effect[RecordT, ReplyT]]:
        asked, request = event.asked, event.request
        if self._resigned:
            return [Reply(asked, Refusal(self._resigned_code))]
        assert asked not in self._waiting, asked
        self._waiting[asked] = None
        try:
            decision = self._shard.decide(now, asked, request)
        except Rejected as refused:
            return self._refuse(asked, Refusal(refused.code, refused.detail))
        except REQUEST_FAULTS as fault:
            reason = f"{type(request).__name__} failed: {fault_text(fault)}"
            if event.is_ours:
                raise AssertionError(reason) from fault
            # A shard changes by replay alone, so this request has changed nothing that counts.
            refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the request failed on the server")
            return [RequestFailed(reason), *self._refuse(asked, refusal)]
        return self._carry_out(decision)

    def _refuse(self, asked: RequestId, refusal: Refusal) -> list[Effect[RecordT, ReplyT]]:
        self._held.append((self._ticket, asked, refusal))
        return [*self._release()]

    def _carry_out(self, decision: Decision[RecordT, ReplyT]) -> list[Effect[RecordT, ReplyT]]:
        try:
            return self._replayed(decision)
        except REQUEST_FAULTS as fault:
            # Some of its records may be replayed: what is in memory is wrong now.
            raise AssertionError(f"a decision failed halfway: {fault_text(fault)}") from fault

    def _replayed(self, decision: Decision[RecordT, ReplyT]) -> list[Effect[RecordT, ReplyT]]:
        effects: list[Effect[RecordT, ReplyT]] = []
        if decision.records:
            self._ticket += 1
            effects.append(AppendRecords(self._ticket, decision.records))
            for record in decision.records:
                self._shard.replay(record)
        for asked, reply in decision.replies:
            self._held.append((self._ticket, asked, reply))
        return [*effects, *self._release()]

    def _grow(self, event: LogAppended | LogGrown) -> list[Effect[RecordT, ReplyT]]:
        if isinstance(event, LogGrown):
            self._ticket += 1  # as if it had been decided here
        ticket = event.ticket if isinstance(event, LogAppended) else self._ticket
        self._ends.append((ticket, event.end))
        return []

    def _commit(self, end: Offset) -> list[Effect[RecordT, ReplyT]]:
        assert end >= self._committed, (end, self._committed)
        self._committed = end
        while self._ends and self._ends[0][1] <= end:
            ticket, _ = self._ends.popleft()
            assert ticket > self._committed_ticket, (ticket, self._committed_ticket)
            self._committed_ticket = ticket
        return [*self._release()]

    def _release(self) -> list[Reply[ReplyT]]:
        replies = []
        while self._held and self._held[0][0] <= self._committed_ticket:
            _, asked, reply = self._held.popleft()
            assert asked in self._waiting, asked
            del self._waiting[asked]
            replies.append(Reply(asked, reply))
        return replies

    def _give_up(self, code: ErrorCode) -> list[Effect[RecordT, ReplyT]]:
        held, self._held = self._held, deque()
        for _, asked, _ in held:
            del self._waiting[asked]
        return [Reply(asked, Refusal(code)) for _, asked, _ in held]

    def _resign(self, reason: str) -> list[Effect[RecordT, ReplyT]]:
        self._resigned = True
        self._held.clear()
        answers: list[Effect[RecordT, ReplyT]] = [
            Reply(asked, Refusal(self._resigned_code)) for asked in self._waiting
        ]
        self._waiting.clear()
        return [*answers, Resign(reason)]
