"""The two sparse indexes of a segment: by offset and by time, in Kafka's entries.

They live in arrays while in use and reach their files when the segment is sealed or the log closes.
Mapped files would survive a killed process, but a start after one reads the unflushed segment
anyway and rebuilds them; arrays need no spare room, no descriptor each, cannot kill the process
with SIGBUS on a full disk, and are searched by `bisect` in C.
"""

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from struct import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, Syncable
from tidelog.wire.log_files import OFFSET_ENTRY_BYTES, read_offset_entries

TIME_ENTRY = Struct(">qi")
SWAP = sys.byteorder == "little"
assert array("i").itemsize == 4
assert array("q").itemsize == 8


def rising(values: "array[int]") -> bool:
    """Strictly, and from 0 or above."""
    return (not values or values[0] >= 0) and all(map(operator.lt, values, islice(values, 1, None)))


class IndexFile:
    """Where entries go: those written already stay, the others follow in one call."""

    __slots__ = ("_directory", "name", "written_bytes")

    def __init__(self, directory: Directory, name: str) -> None:
        self.name = name
        self.written_bytes = 0
        self._directory = directory

    def read(self, entry_bytes: int) -> bytes | None:
        """The whole file; None where there is none, CorruptError where entries are not whole."""
        content = self._directory.read_all(self.name)
        if content is not None and len(content) % entry_bytes:
            raise CorruptError(file=self.name, position=len(content), reason="a broken last entry")
        self.written_bytes = len(content or b"")
        return content

    def write(self, rest: bytes) -> None:
        """Append what is new; first cut what the log has taken back."""
        file = self._directory.open(self.name)
        if file.size != self.written_bytes:
            file.truncate(self.written_bytes)
        if rest:
            self.written_bytes = file.append((rest,))
        file.close()

    def cut(self, size: int) -> None:
        self.written_bytes = min(self.written_bytes, size)

    def syncable(self) -> Syncable:
        return self._directory.syncable(self.name)


class OffsetIndex:
    """Entries of (last offset of a batch, position of that batch), offsets relative to the segment.

    Invariant: offsets and positions both rise strictly.
    """

    __slots__ = ("file", "offsets", "positions")

    def __init__(self, directory: Directory, name: str) -> None:
        self.file = IndexFile(directory, name)
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, offset: int, position: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)

    def last_at_or_below(self, offset: int) -> int:
        """The number of the last entry whose offset is not above one; -1 where there is none."""
        return bisect_right(self.offsets, offset) - 1

    def last_in_front_of(self, position: int) -> int:
        """The number of the last entry whose position is not above one; -1 where there is none."""
        return bisect_right(self.positions, position) - 1

    def start_for(self, offset: int) -> int:
        """Where to start looking for the batch with that offset: a batch begins there."""
        at = self.last_at_or_below(offset)
        return self.positions[at] if at >= 0 else 0

    def batch_start_at_or_below(self, position: int) -> int:
        """The last known start of a batch not above that position."""
        at = self.last_in_front_of(position)
        return self.positions[at] if at >= 0 else 0

    def cut_from(self, position: int) -> None:
        """Forget batches that start there or above."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        self.file.cut(keep * OFFSET_ENTRY_BYTES)

    def clear(self) -> None:
        self.cut_from(0)
        self.file.written_bytes = 0

    def load(self, log_bytes: int) -> None:
        """Take the file's entries; CorruptError where it is missing or cannot be right."""
        content = self.file.read(OFFSET_ENTRY_BYTES)
        if content is None:
            raise CorruptError(file=self.file.name, position=0, reason="missing")
        offsets, positions = read_offset_entries(content)
        if not (rising(offsets) and rising(positions)):
            raise CorruptError(file=self.file.name, position=0, reason="entries do not rise")
        if positions and positions[-1] >= log_bytes:
            raise CorruptError(
                file=self.file.name, position=len(content), reason="points behind the log's end"
            )
        self.offsets, self.positions = offsets, positions

    def write(self) -> None:
        start = self.file.written_bytes // OFFSET_ENTRY_BYTES
        both = array("i", bytes(OFFSET_ENTRY_BYTES * (len(self) - start)))
        both[0::2], both[1::2] = self.offsets[start:], self.positions[start:]
        if SWAP:
            both.byteswap()
        self.file.write(both.tobytes())


def _timestamps_and_offsets(content: bytes) -> tuple["array[int]", "array[int]"]:
    """Of whole time entries; by columns, because a large segment has a quarter million."""
    words = array("i", content)
    if SWAP:
        words.byteswap()
    halves = array("i", bytes(8 * (len(words) // 3)))
    halves[0 if SWAP else 1 :: 2] = words[1::3]
    halves[1 if SWAP else 0 :: 2] = words[0::3]
    return array("q", halves.tobytes()), words[2::3]


class TimeIndex:
    """Entries of (largest timestamp so far, last offset of the batch that holds it).

    Invariant: timestamps and offsets both rise strictly.
    """

    __slots__ = ("file", "offsets", "timestamps")

    def __init__(self, directory: Directory, name: str) -> None:
        self.file = IndexFile(directory, name)
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp: int, offset: int) -> None:
        """Nothing happens where the timestamp is no news."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset)

    def last_earlier(self, timestamp: int) -> int:
        """The number of the last entry with a smaller timestamp; -1 where there is none."""
        return bisect_left(self.timestamps, timestamp) - 1

    def last_below(self, offset: int) -> int:
        """The number of the last entry with a smaller offset; -1 where there is none."""
        return bisect_left(self.offsets, offset) - 1

    def last(self) -> tuple[int, int]:
        """The largest timestamp with its offset; (-1, 0) of an empty index."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (-1, 0)

    def cut_from(self, offset: int) -> None:
        """Forget entries of batches that end there or above."""
        keep = bisect_left(self.offsets, offset)
        del self.offsets[keep:], self.timestamps[keep:]
        self.file.cut(keep * TIME_ENTRY.size)

    def clear(self) -> None:
        self.cut_from(0)
        self.file.written_bytes = 0

    def load(self) -> None:
        """Take the file's entries; CorruptError where it is missing or cannot be right."""
        content = self.file.read(TIME_ENTRY.size)
        if content is None:
            raise CorruptError(file=self.file.name, position=0, reason="missing")
        timestamps, offsets = _timestamps_and_offsets(content)
        if not (rising(timestamps) and rising(offsets)):
            raise CorruptError(file=self.file.name, position=0, reason="entries do not rise")
        self.timestamps, self.offsets = timestamps, offsets

    def write(self) -> None:
        start = self.file.written_bytes // TIME_ENTRY.size
        rest = zip(self.timestamps[start:], self.offsets[start:], strict=True)
        self.file.write(b"".join(TIME_ENTRY.pack(*entry) for entry in rest))
