"""Calls of clients that were decided, and their answers, for whoever asks again.

A broker does not hear of the coordinator's death before it has sent it a call or two more. It
sends them again to the next one, which must neither decide twice nor say that it does not know. So
what is answered is written down with what was decided, in the same batch.
"""

from collections import deque

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.limits import FORWARDED_CALLS_MAX, SETTLED_ANSWERS_BYTES_MAX


class Caller(Struct, frozen=True):
    """One call of one life of a broker."""

    broker: BrokerId
    incarnation: Incarnation
    call: int


class Settled(Struct, frozen=True):
    """What a call was answered, or will be: the answer's frame."""

    caller: Caller
    answer: bytes


class Settlements:
    """The last ones.

    Invariant: whatever was settled at or behind `begins` in the log is here.
    """

    def __init__(self, begins: Offset) -> None:
        self.begins = begins
        self._answers: dict[Caller, bytes] = {}
        self._order: deque[tuple[Offset, Caller]] = deque()
        self._bytes = 0

    def note(self, offset: Offset, settled: Settled) -> None:
        """It is decided by the batch at this offset."""
        self._order.append((offset, settled.caller))
        self._answers[settled.caller] = settled.answer
        self._bytes += len(settled.answer)
        while len(self._order) > FORWARDED_CALLS_MAX or self._bytes > SETTLED_ANSWERS_BYTES_MAX:
            oldest, caller = self._order.popleft()
            self._bytes -= len(self._answers.pop(caller))
            self.begins = Offset(oldest + 1)

    def answer(self, caller: Caller) -> bytes | None:
        return self._answers.get(caller)

    def would_know(self, sent_at: Offset) -> bool:
        """Whether a call that its broker sent when it had applied so much, and that is not here,
        was surely not decided: it could be decided only behind that."""
        return sent_at + 1 >= self.begins
