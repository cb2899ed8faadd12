"""The bytes of one connection as they arrive, cut into frames in place."""

import struct
from typing import Final

from tidelog.kernel import limits
from tidelog.node.net.received import Account

_SIZE: Final = struct.Struct(">i")
_ROOM_BYTES_MIN: Final = 1024
_LARGE_FRAME_BYTES: Final = 64 * limits.KIB
"""From here on a frame is received to its end and no further: what would be read of the next one
costs a copy to the front of the buffer, which is more than one more receive call."""


class FrameError(Exception):
    """The size in front of a frame cannot be one: the connection is closed."""


class Receiver:
    """One growing buffer that frames are read from without a copy.

    It doubles as bytes arrive, never because a length field says so. A frame it hands out is
    valid until the next call of `room`.

    Invariant: 0 <= start <= end <= capacity; `stop` is where the frame under way will end if it
    stays where it is, 0 while nobody has looked or its size is not there.
    """

    __slots__ = ("_account", "_buffer", "_end", "_frame_bytes_max", "_start", "_stop", "_view")

    def __init__(self, frame_bytes_max: int, account: Account) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._account = account
        self._start = 0
        self._end = 0
        self._stop = 0
        self._buffer = bytearray(limits.RECEIVE_BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def pending(self) -> int:
        """Bytes received and not yet handed out as a frame."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where to receive into; empty while it may not grow."""
        if self._start == self._end:
            self._start = self._end = self._stop = 0
            if len(self._buffer) > limits.RECEIVE_BUFFER_BYTES_KEPT:
                self._replace(limits.RECEIVE_BUFFER_BYTES_STEADY)
            return self._view
        self._make_room()
        stop = self._stop
        if stop - self._start >= _LARGE_FRAME_BYTES and self._end < stop <= len(self._buffer):
            return self._view[self._end : stop]
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        assert self._end <= len(self._buffer)

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more has come."""
        start = self._start
        if self._end - start < 4:
            self._stop = 0
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        if not 8 <= size <= self._frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes: must be from 8 to {self._frame_bytes_max}")
        stop = start + 4 + size
        if stop > self._end:
            self._stop = stop
            return None
        self._start = stop
        self._stop = 0
        return self._view[start + 4 : stop]

    def relax(self) -> None:
        """Give an idle connection's memory back."""
        if self._start == self._end and len(self._buffer) > limits.RECEIVE_BUFFER_BYTES_FIRST:
            self._start = self._end = 0
            self._replace(limits.RECEIVE_BUFFER_BYTES_FIRST)
        elif self._start == self._end:
            self._account.holds(limits.RECEIVE_BUFFER_BYTES_FIRST)

    def close(self) -> None:
        """Let go of the buffer at once: whoever refers to its connection need not have gone yet."""
        self._start = self._end = self._stop = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._account.close()

    def _make_room(self) -> None:
        """Where the frame under way does not fit in behind what is there already."""
        capacity = len(self._buffer)
        full = capacity - self._end < _ROOM_BYTES_MIN
        if self._stop <= capacity and (self._stop or not full):
            return
        steady = capacity >= limits.RECEIVE_BUFFER_BYTES_STEADY
        if steady and self._stop and self._stop - self._start <= capacity:
            self._to_front()  # now, while little of it is there
        elif full and steady and self.pending <= capacity // 2:
            self._to_front()
        elif full:
            # Only so many bytes that have come make it larger, never those announced.
            larger = min(2 * capacity, self._frame_bytes_max + 4 + _ROOM_BYTES_MIN)
            if self._account.may_hold(larger):
                self._replace(larger)

    def _to_front(self) -> None:
        start, pending = self._start, self.pending
        self._view[:pending] = self._view[start : self._end]
        self._start, self._end = 0, pending
        self._stop = max(0, self._stop - start)

    def _replace(self, capacity: int) -> None:
        """A new buffer with what is pending at its front; frames handed out keep the old one."""
        pending = self._end - self._start
        assert capacity >= pending
        buffer = bytearray(capacity)
        view = memoryview(buffer)
        view[:pending] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._stop = max(0, self._stop - self._start)
        self._start, self._end = 0, pending
        self._account.holds(capacity)
