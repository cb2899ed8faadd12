"""Ctrl-C and SIGTERM: a stream is stopped in order, whatever else runs is broken off."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Spark's own handler asks the JVM from within a question to it, which fails."""

    def __init__(self) -> None:
        self.asked = False
        """Somebody wants this program to end."""
        self._waits = False

    def install(self) -> None:
        """In the place of Spark's: so once there is a session."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.told)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Within, whoever works looks at `asked` by itself."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def told(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self._waits:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()
"""Of the process, as signals are."""
