"""Ctrl-C and SIGTERM: noted by the main thread, obeyed by whoever runs the program.

Nothing is raised: an exception in the middle of a call to Spark's JVM leaves the JVM behind, or
prints a traceback. Importing this module imports no part of Spark.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_LOOK_S = 0.1


class Interrupts:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.times = 0
        """How often somebody has asked this program to end."""
        self.code = 0
        """The exit code of a program that was ended before it was done: 130 or 143."""
        self.is_awaited = False
        """The program looks at `asked` by itself, and nobody has to break it off."""
        self._ends_at_once = True
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Somebody wants this program to end."""
        return self.times > 0

    def install(self) -> None:
        """In the main thread. Until `hold` a signal ends the process: it has nothing to end in
        order. A command that is replaced by this program has blocked both signals until now.
        Signals that are ignored, as in a shell's background, stay so."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before.setdefault(number, signal.signal(number, self.told))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

    def hold(self) -> None:
        """From now on a signal is only noted."""
        self._ends_at_once = False

    def restore(self) -> None:
        """As if nothing had been installed."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.__init__()  # type: ignore[misc]  # the same object, as others hold it

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Within, whoever works looks at `asked` by itself."""
        before, self.is_awaited = self.is_awaited, True
        try:
            yield
        finally:
            self.is_awaited = before

    def pause(self, seconds: float) -> None:
        """Not longer than until somebody asks."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))

    def told(self, number: int, _frame: FrameType | None) -> None:
        """By a signal."""
        self.times += 1
        self.code = self.code or 128 + number
        if self._ends_at_once:
            os._exit(self.code)


INTERRUPTS = Interrupts()
"""Of the process, as signals are."""
