"""Producer ids for idempotent producers, out of blocks that the coordinator hands out. No I/O."""

from collections import deque
from collections.abc import Callable

from tidelog.kernel.ids import ProducerId
from tidelog.wire.errors import ErrorCode

Taken = Callable[[ProducerId | ErrorCode], None]
Allocate = Callable[[Callable[[tuple[ProducerId, int] | ErrorCode], None]], None]


class ProducerIds:
    """Hands each asker an id nobody else ever gets.

    Invariant: at most one block is being asked for; `next <= stop`.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._stop = 0
        self._asking = False
        self._askers: deque[Taken] = deque()

    def take(self, done: Taken) -> None:
        """Call `done` with an id, at once where the block in hand still has one."""
        if self._next < self._stop:
            self._next += 1
            done(ProducerId(self._next - 1))
            return
        self._askers.append(done)
        if not self._asking:
            self._asking = True
            self._allocate(self._allocated)

    def _allocated(self, block: tuple[ProducerId, int] | ErrorCode) -> None:
        self._asking = False
        askers, self._askers = self._askers, deque()
        if isinstance(block, ErrorCode):
            for done in askers:
                done(block)
            return
        first, count = block
        assert self._next == self._stop
        self._next, self._stop = int(first), int(first) + count
        for done in askers:
            self.take(done)
