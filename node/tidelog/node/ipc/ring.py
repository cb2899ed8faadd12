"""A ring in shared memory: one broker writes batches, its followers read them in place. No I/O.

```
head      64   magic, version, the owner and its incarnation, the ring's number, size of the data
cursors  512   one word per broker, written by that broker alone
data           batches, whole, never across the end
```
Positions only grow; what is at one lies at `position mod size`. The owner writes over nothing that
a follower was sent a descriptor for and has not passed; who was sent nothing holds nothing up.
A reader copies what it is told before it checks it, and trusts no position or length.
"""

import struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.limits import BROKERS_MAX

MAGIC = b"tideRING"
VERSION = 1
_HEAD = struct.Struct("@8sIIQIIQ")
_HEAD_BYTES = 64
_CURSOR_BYTES = 8 * BROKERS_MAX
DATA_AT = _HEAD_BYTES + _CURSOR_BYTES
LARGEST_SHARE = 4
"""A batch of more than this part of the ring goes another way."""

assert _HEAD.size <= _HEAD_BYTES


def ring_bytes(size: int) -> int:
    """What the shared memory of a ring for so much data takes."""
    return DATA_AT + size


class _Holder:
    """A follower that was sent something of the ring."""

    __slots__ = ("end", "since")

    def __init__(self) -> None:
        self.since = 0
        """Where the oldest batch lies that it may not have passed."""
        self.end = 0
        """Behind the newest batch it was sent."""


class RingWriter:
    """The owner's end.

    Invariant: every batch from a holder's oldest outstanding one on lies in the ring unharmed.
    """

    def __init__(
        self, memory: memoryview, owner: BrokerId, incarnation: Incarnation, number: int
    ) -> None:
        self.number = number
        self.size = len(memory) - DATA_AT
        assert self.size > 0
        self._memory = memory
        self._cursors = memory[_HEAD_BYTES:DATA_AT].cast("Q")
        self._data = memory[DATA_AT:]
        self._head = 0
        self._limit = self.size
        """Up to where may be written without looking at the cursors."""
        self._holders: dict[BrokerId, _Holder] = {}
        _HEAD.pack_into(memory, 0, MAGIC, VERSION, owner, incarnation, number, 0, self.size)

    def fits(self, size: int) -> bool:
        """Whether a batch of this size ever goes through the ring."""
        return size * LARGEST_SHARE <= self.size

    def put(self, batch: memoryview | bytes | bytearray) -> int | None:
        """Copy a batch into the ring; its position, None where somebody holds the room."""
        size = len(batch)
        assert self.fits(size), (size, self.size)
        start = self._head
        at = start % self.size
        if at + size > self.size:
            start += self.size - at
            at = 0
        end = start + size
        if end > self._limit:
            self._limit = self._oldest() + self.size
            if end > self._limit:
                return None
        self._data[at : at + size] = batch
        self._head = end
        return start

    def lend(self, follower: BrokerId, position: int, size: int) -> None:
        """The follower is sent a descriptor of this batch, the newest one."""
        holder = self._holders.get(follower)
        if holder is None:
            holder = self._holders[follower] = _Holder()
        if self._cursors[follower] >= holder.end:
            holder.since = position
        holder.end = position + size

    def release(self, follower: BrokerId) -> None:
        """It reads nothing any more: it said so, or it is dead."""
        self._holders.pop(follower, None)

    def holds_up(self) -> BrokerId | None:
        """Who was sent the oldest batch that is not passed."""
        held = [
            (oldest, follower)
            for follower, holder in self._holders.items()
            if (oldest := self._held_from(follower, holder)) is not None
        ]
        return min(held)[1] if held else None

    def close(self) -> None:
        """Let go of the memory."""
        self._cursors.release()
        self._data.release()
        self._memory.release()

    def _oldest(self) -> int:
        held = [self._held_from(follower, holder) for follower, holder in self._holders.items()]
        return min((one for one in held if one is not None), default=self._head)

    def _held_from(self, follower: BrokerId, holder: _Holder) -> int | None:
        cursor = self._cursors[follower]
        if cursor >= holder.end:
            return None
        return max(cursor, holder.since)


class RingReader:
    """A follower's end of somebody else's ring."""

    def __init__(self, memory: memoryview, me: BrokerId) -> None:
        self._memory = memory
        self._data = memory[DATA_AT:]
        self._cursor = memory[_HEAD_BYTES:DATA_AT].cast("Q")
        self._me = me
        self.number = check_head(memory)

    def batch(self, position: int, size: int) -> memoryview:
        """A batch in place: good until the cursor is moved behind it."""
        at = position % len(self._data)
        if size <= 0 or at + size > len(self._data):
            reason = f"{size} bytes at {position} do not lie in a ring of {len(self._data)}"
            raise CorruptError(file=f"ring {self.number}", position=position, reason=reason)
        return self._data[at : at + size]

    def passed(self, position: int) -> None:
        """Nothing before this is needed any more."""
        self._cursor[self._me] = max(self._cursor[self._me], position)

    def close(self) -> None:
        self._cursor.release()
        self._data.release()
        self._memory.release()


def check_head(memory: memoryview) -> int:
    """The ring's number; CorruptError where this is no whole ring."""
    if len(memory) <= DATA_AT:
        raise CorruptError(file="ring", position=len(memory), reason="shorter than a ring's head")
    magic, version, _, _, number, _, size = _HEAD.unpack_from(memory)
    if magic != MAGIC or version != VERSION:
        raise CorruptError(file="ring", position=0, reason="not a ring of this version")
    if size != len(memory) - DATA_AT:
        raise CorruptError(file="ring", position=32, reason="its size is not what it says")
    return int(number)
