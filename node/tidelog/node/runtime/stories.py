"""Writes the stories of a broker's groups into its log. (shell)

They hold names, for which the board's rings have no room. So that a killed broker leaves them
behind, they are written in the same turn of the loop in which they were decided on, or as soon
after it as a storm of them allows: what is decided waits for nothing.
"""

import asyncio
import time
from collections import deque
from typing import Final

from tidelog.kernel.ids import Incarnation
from tidelog.node.groups.history import Told
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.recorder import moment

LINES_PER_TURN: Final = 32
"""About a millisecond."""
WAITING_MAX: Final = 4_096


class Stories:
    """Of all groups that this broker keeps in this life."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: EventLog, incarnation: Incarnation
    ) -> None:
        self._loop = loop
        self._log = log
        self._incarnation = incarnation
        self._waiting: deque[tuple[int, Told]] = deque()
        self._is_due = False
        self._number = 0
        self._dropped = 0

    def tell(self, told: Told) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._dropped += 1
            return
        self._waiting.append((time.time_ns(), told))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._write_some)

    def close(self) -> None:
        """Write the rest."""
        while self._waiting:
            self._write()

    def _write_some(self) -> None:
        for _ in range(min(LINES_PER_TURN, len(self._waiting))):
            self._write()
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._loop.call_soon(self._write_some)
        elif self._dropped:
            self._log.warning("group_stories_not_logged", count=self._dropped)
            self._dropped = 0

    def _write(self) -> None:
        wall_ns, told = self._waiting.popleft()
        self._number += 1
        self._log.info(
            told.chapter.value,
            at=moment(wall_ns),
            number=self._number,
            incarnation=self._incarnation,
            group=told.group,
            **told.fields,
        )
