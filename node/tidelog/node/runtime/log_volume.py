"""The directory of a broker's logs as its request handlers see it. A shell."""

import os
from collections.abc import Callable

from tidelog.node.api.broker import Space
from tidelog.node.runtime.flusher import Flusher


class LogVolume:
    """Where the logs lie, how much room is left there, and what must reach it now."""

    def __init__(self, path: str, flusher: Flusher) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 -- a text for an answer, no file is opened
        self._flusher = flusher

    def space(self) -> Space:
        volume = os.statvfs(self.path)
        # Not all that is free may be used: some of it is kept for the machine's owner.
        return Space(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def keep_starts(self, done: Callable[[bool], None]) -> None:
        self._flusher.checkpoint(done)
