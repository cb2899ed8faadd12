"""Writes lines for people and never waits until somebody reads them.

The supervisor in the foreground writes to a terminal, which Ctrl-S stops, or to a pipe, which may
have no reader. It must not wait there: it would notice no death and start no process. `O_NONBLOCK`
belongs to the open file, which the shell and other programs share, so that flag is left alone: the
supervisor opens the terminal or the pipe once more for itself. If it has no permission for that, it
asks the kernel whether there is room before each write.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path

WAITING_BYTES_MAX = 64 * 1024
"""Of lines that could not be written yet; then the oldest are left out."""
_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ROOM_BYTES = 512
"""What a pipe that takes anything takes at once: the least PIPE_BUF that POSIX allows."""
_TERMINAL_NUMBER_FIELD = 4  # of /proc/self/stat, counted from the field after the name

_Write = Callable[[bytes], int]
"""The number of bytes that were written; BlockingIOError where there is no room."""


class Outlet:
    """Lines to one descriptor. What nobody reads in time is left out, and counted."""

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self._write: _Write | None = _opened(descriptor)
        self._rest = b""
        """Of a line that was written in part."""
        self._waiting: deque[bytes] = deque()
        self._left_out = 0

    def say(self, text: str) -> None:
        """Write it now, or as soon as there is room."""
        self._waiting.append(text.encode(self._encoding, "backslashreplace") + b"\n")
        self.flush()
        while len(self._waiting) > 1 and sum(map(len, self._waiting)) > WAITING_BYTES_MAX:
            self._waiting.popleft()
            self._left_out += 1

    def flush(self) -> None:
        """Write as much as there is room for."""
        try:
            while self._write is not None and (self._rest or self._waiting):
                self._rest = self._rest or self._next()
                self._rest = self._rest[self._write(self._rest) :]
        except BlockingIOError:
            return
        except OSError:  # the terminal or the reader is gone
            self._write = None
        if self._write is None:
            self._rest = b""
            self._waiting.clear()

    def _next(self) -> bytes:
        if not self._left_out:
            return self._waiting.popleft()
        count, self._left_out = self._left_out, 0
        lines = "1 line was" if count == 1 else f"{count} lines were"
        return f"({lines} left out here: see tidelog logs supervisor)\n".encode()


def _opened(descriptor: int) -> _Write | None:
    """None where nothing can be written."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            return _opened_again(descriptor)
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return lambda data: _write_where_there_is_room(descriptor, data)
    return lambda data: os.write(descriptor, data)  # a file waits for no reader


def _opened_again(descriptor: int) -> _Write:
    path = "/dev/tty" if _is_our_terminal(descriptor) else f"/proc/self/fd/{descriptor}"
    try:
        ours = os.open(path, _FLAGS)
    except PermissionError:
        return lambda data: _write_where_there_is_room(descriptor, data)
    return lambda data: os.write(ours, data)


def _is_our_terminal(descriptor: int) -> bool:
    """Then `/dev/tty` is the same, and anybody may open it, also after `su` or `sudo`."""
    if not os.isatty(descriptor):
        return False
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    number = int(fields[_TERMINAL_NUMBER_FIELD]) & 0xFFFF_FFFF
    device = os.makedev(number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00)
    return number != 0 and os.fstat(descriptor).st_rdev == device


def _write_where_there_is_room(descriptor: int, data: bytes) -> int:
    """To an open file that waits: little enough that it does not. A terminal may take one byte."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if not poll.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[: 1 if os.isatty(descriptor) else _ROOM_BYTES])
