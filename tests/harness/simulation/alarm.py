"""One timer that stands at the earliest deadline somebody has, in simulated time."""

from collections.abc import Callable
from typing import Any

from tidelog.kernel.instant import Instant


class SimulatedAlarm:
    """As the process's `Alarm`: rings at the earliest deadline, then at what `ring` returns."""

    def __init__(self, life: Any, ring: Callable[[Instant], Instant | None]) -> None:
        self._life = life
        self._ring = ring
        self._at: Instant | None = None

    def set(self, deadline: Instant) -> None:
        if self._at is None or deadline < self._at:
            self._at = deadline
            self._life.world.later(self._life, deadline, self._on_time)

    def _on_time(self) -> None:
        now = self._life.world.now
        if self._at is None or self._at > now:
            return  # an earlier one took its place, and has rung
        self._at = None
        following = self._ring(now)
        if following is not None:
            self.set(following)
