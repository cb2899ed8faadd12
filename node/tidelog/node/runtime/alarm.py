"""One timer of the event loop that stands at the earliest deadline somebody has. A shell."""

import asyncio
import time
from collections.abc import Callable

from tidelog.kernel.instant import Instant


class Alarm:
    """Rings at the earliest deadline it was set to, then at what `ring` returns."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Callable[[Instant], Instant | None]
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at: Instant | None = None

    def set(self, deadline: Instant) -> None:
        """Ring then, or earlier if that was wanted before."""
        if self._at is not None and self._at <= deadline:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at = deadline
        # Whole milliseconds, rounded up: the loop counts in them, and early is too early.
        left_ms = max(0, -(-(deadline - time.monotonic_ns()) // 1_000_000))
        self._handle = self._loop.call_later(left_ms / 1000, self._on_time)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at = None

    def _on_time(self) -> None:
        self._handle = self._at = None
        following = self._ring(Instant(time.monotonic_ns()))
        if following is not None:
            self.set(following)
