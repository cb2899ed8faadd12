"""A coordinator that could lead at any moment: it follows the log, and waits for the lock. (shell)

The kernel holds the lock for whoever leads and gives it to one of those who wait, once every thread
of the last one has ended. Until then nothing is written here.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

from tidelog.coordinator.runtime.tail import LostTrackError, Tail
from tidelog.node.runtime.disk import DirectoryLock, DiskDirectory
from tidelog.node.runtime.process import EventLog, settle_collector

_READS_PER_TURN: Final = 8
_TURNS_AFTER_LOSS: Final = 10


class StandingBy:
    """From the first look at the log to the lock."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        top: DiskDirectory,
        tail: Tail,
        *,
        on_locked: Callable[[DirectoryLock], None],
        on_failed: Callable[[OSError], None],
        log: EventLog,
    ) -> None:
        self.tail = tail
        self._loop = loop
        self._top = top
        self._on_locked = on_locked
        self._on_failed = on_failed
        self._log = log
        self._turns_to_pause = 0

    def begin(self) -> None:
        """Read all there is, however long that takes; then be ready for the lock."""
        while self._follow():
            pass
        settle_collector()  # so that taking over finds nothing to collect
        self._log.info("stands_by", offset=self.tail.image.offset)
        # Blocked in the kernel it cannot be told to end; the end of the process ends it.
        threading.Thread(target=self._wait, name="lock", daemon=True).start()

    def turn(self) -> None:
        """Ten times a second."""
        if self._turns_to_pause:
            self._turns_to_pause -= 1
            return
        for _ in range(_READS_PER_TURN):
            if not self._follow():
                return

    def _follow(self) -> bool:
        try:
            return self.tail.follow()
        except LostTrackError as error:
            self._log.warning("lost_track", reason=str(error))
            self._turns_to_pause = _TURNS_AFTER_LOSS
            return False

    def _wait(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            try:
                lock = DirectoryLock(self._top, wait=True)
            except OSError as error:
                self._loop.call_soon_threadsafe(self._on_failed, error)
                return
            self._loop.call_soon_threadsafe(self._on_locked, lock)
