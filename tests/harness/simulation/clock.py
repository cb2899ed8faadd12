"""Time that only moves when a test lets it: one queue of what happens when, and nothing sleeps."""

import heapq
from collections.abc import Callable

from harness.machines.controllers import START
from tidelog.kernel.instant import Instant, ms

Action = Callable[[], None]


class Timeline:
    """Everything that will happen, in order of its time; at the same time, as it was asked for."""

    def __init__(self) -> None:
        self.now = START
        self.steps = 0
        self._queue: list[tuple[Instant, int, Action]] = []
        self._asked = 0

    def at(self, when: Instant, action: Action) -> None:
        self._asked += 1
        heapq.heappush(self._queue, (max(when, self.now), self._asked, action))

    def after(self, milliseconds: float, action: Action) -> None:
        self.at(Instant(self.now + ms(milliseconds)), action)

    def step(self, until: Instant) -> bool:
        """Let the next thing happen, if it happens by then; else the time is `until`."""
        if not self._queue or self._queue[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, action = heapq.heappop(self._queue)
        self.steps += 1
        action()
        return True
