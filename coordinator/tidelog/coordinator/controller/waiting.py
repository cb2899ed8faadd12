"""Answers that wait until every live broker knows what was decided.

So a client that made a topic by one broker finds it at every other. Soft state: after a crash of
the coordinator the askers hear of it from the brokers they asked.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from tidelog.kernel.ids import NO_OFFSET, BrokerId, Offset, RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import METADATA_APPLY_WAIT_MS

ReplyT = TypeVar("ReplyT")


class _Wait(Struct, Generic[ReplyT], frozen=True):
    offset: Offset
    until: Instant
    reply: ReplyT


class AppliedWaits(Generic[ReplyT]):
    """Who waits for which offset, and how far each broker is.

    Invariant: waits stand in the order of their offsets and of their ends.
    """

    def __init__(self) -> None:
        self._applied: dict[BrokerId, Offset] = {}
        self._waits: dict[RequestId, _Wait[ReplyT]] = {}

    def wait(self, now: Instant, asked: RequestId, offset: Offset, reply: ReplyT) -> None:
        until = Instant(now + ms(METADATA_APPLY_WAIT_MS))
        self._waits[asked] = _Wait(offset, until, reply)

    def reply(self, asked: RequestId) -> ReplyT | None:
        """What waits to be answered."""
        wait = self._waits.get(asked)
        return None if wait is None else wait.reply

    def applied(self, broker: BrokerId, offset: Offset) -> None:
        self._applied[broker] = offset

    def done(self, now: Instant, alive: Iterable[BrokerId]) -> tuple[tuple[RequestId, ReplyT], ...]:
        """Take out who need not wait any more: all live brokers have it, or time is up."""
        if not self._waits:
            return ()
        applied = min((self._applied.get(broker, NO_OFFSET) for broker in alive), default=None)
        answers = []
        for asked, wait in list(self._waits.items()):
            if now < wait.until and applied is not None and wait.offset > applied:
                break
            del self._waits[asked]
            answers.append((asked, wait.reply))
        return tuple(answers)

    def deadline(self) -> Instant | None:
        return next((wait.until for wait in self._waits.values()), None)
