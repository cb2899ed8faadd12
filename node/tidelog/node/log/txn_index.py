"""The index of aborted transactions of one segment, in Kafka's entries: what a reader of committed
records must leave out.

An entry is written when the abort marker is appended, beside the segment that holds it, in a file
that comes into being with the first. What a killed process left of the last segments is made anew
from the batches.

The entries have no checksum, and nothing in the log confirms where a transaction began without
reading all of it. So when the segment is sealed or its log closed, the checksum of the whole file
is written to a file beside it. An index that does not have it is made again from the batches. One
without such a file, as compaction or an earlier version leaves it, is believed.
"""

from array import array
from bisect import bisect_left
from contextlib import suppress
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, Syncable
from tidelog.node.log.index import IndexFile, rising
from tidelog.wire.crc import crc32c
from tidelog.wire.log_files import (
    ABORTED_ENTRY,
    TXN_CHECK_SUFFIX,
    TXN_INDEX_SUFFIX,
    Aborted,
    decode_aborted,
    encode_aborted,
)

NONE: Final = -1


class TxnIndex:
    """Invariant: the entries are in the order of their markers, and the file holds the first ones
    of them: all, unless the disk had no room.
    """

    __slots__ = (
        "_directory",
        "_firsts",
        "_has_check",
        "_is_loaded",
        "_least_first",
        "_markers",
        "_producers",
        "_stables",
        "file",
        "is_unsynced",
    )

    def __init__(self, directory: Directory, name: str, *, is_new: bool) -> None:
        """Of a segment that exists, nothing is read before it is needed."""
        self.file = IndexFile(directory, name)
        self.is_unsynced = not is_new
        """Whether the file may not be on stable storage as it is: a flush must force it out."""
        self._directory = directory
        self._has_check = False
        """Whether there is a file with the checksum of the entries as they are."""
        self._is_loaded = is_new
        self._least_first = NONE
        """The smallest of the first offsets. It stays when the entries are let go of, so that most
        readers need not have them back."""
        self._firsts = array("q")
        self._producers = array("q")
        self._markers = array("q")
        self._stables = array("q")

    def __len__(self) -> int:
        return len(self._markers)

    def entries(self, start: int = 0, stop: int | None = None) -> list[Aborted]:
        """From the one of that number on."""
        columns = (self._firsts, self._producers, self._markers, self._stables)
        return [Aborted(*row) for row in zip(*(one[start:stop] for one in columns), strict=True)]

    def note(self, entry: Aborted) -> None:
        """The next one; it is not in the file yet."""
        assert self._is_loaded, self.file.name
        first = entry.first_offset
        if first < self._least_first or self._least_first == NONE:
            self._least_first = first
        self._firsts.append(first)
        self._producers.append(entry.producer_id)
        self._markers.append(entry.last_offset)
        self._stables.append(entry.last_stable_offset)

    def append(self, entry: Aborted) -> None:
        """The next one. What does not get into the file now, for want of room, is tried again."""
        self.note(entry)
        with suppress(OSError):
            self.write()

    # -- the file

    @property
    def is_checked(self) -> bool:
        """Whether it was loaded once, or is of this process's own making."""
        return self._is_loaded or self._least_first != NONE

    @property
    def is_written(self) -> bool:
        """Whether the file holds all entries; a compaction reads it there."""
        return not self._is_loaded or len(self) * ABORTED_ENTRY.size == self.file.written_bytes

    def write(self) -> None:
        if not self.is_written:
            self._drop_check()
            self.file.write(
                encode_aborted(self.entries(self.file.written_bytes // ABORTED_ENTRY.size))
            )
            self.is_unsynced = True

    def settle(self) -> None:
        """Make the file what the entries say, whatever it was; the old one or the new one, for half
        of one could pass for a whole one."""
        content = encode_aborted(self.entries())
        if not content:
            self._directory.unlink(self.file.name)
            self._directory.unlink(self._check_name)
        elif self._directory.read_all(self.file.name) != content:
            self._directory.replace(self.file.name, content, durable=False)
        self.file.written_bytes = len(content)
        self.is_unsynced = True
        self.seal()

    @property
    def _check_name(self) -> str:
        return self.file.name.replace(TXN_INDEX_SUFFIX, TXN_CHECK_SUFFIX)

    def seal(self) -> None:
        """Write the checksum of the file as it is: for a while nothing will be added."""
        if self._is_loaded and len(self) and self.is_written and not self._has_check:
            self._write_check(encode_aborted(self.entries()))

    def seal_as_it_is(self) -> None:
        """The same of a file that another process has just written."""
        content = self._directory.read_all(self.file.name)
        if content:
            self._write_check(content)

    def _write_check(self, content: bytes) -> None:
        self._directory.replace(self._check_name, _check_of(content), durable=False)
        self._has_check = self.is_unsynced = True

    def _drop_check(self) -> None:
        """Before the file changes. If a power loss brings it back, the index is made again."""
        if self._has_check:
            self._directory.unlink(self._check_name)
            self._has_check = False

    def syncables(self) -> list[Syncable]:
        return [self.file.syncable(), self._directory.syncable(self._check_name)]

    def load(self, base: int, end: int) -> None:
        """Take the file's entries, of a segment from `base` to `end`, if they are not there yet.

        CorruptError where they cannot be right. No file: nothing was aborted.
        """
        if self._is_loaded:
            return
        content = self.file.read(ABORTED_ENTRY.size) or b""
        check = self._directory.read_all(self._check_name)
        if check is not None and check != _check_of(content):
            raise CorruptError(file=self.file.name, position=0, reason="wrong checksum")
        entries = decode_aborted(content, place=self.file.name)
        markers = [base - 1, *(entry.last_offset for entry in entries), end]
        # Within these bounds each fits into the columns, whatever a damaged file says.
        is_within = all(base <= at < end for at in markers[1:-1])
        if not is_within or not rising(array("q", [at + 1 for at in markers])):
            raise CorruptError(file=self.file.name, position=0, reason="markers out of order")
        if not all(map(_is_right, entries)):
            reason = "entries that cannot be"
            raise CorruptError(file=self.file.name, position=0, reason=reason)
        self._is_loaded = True
        self._has_check = check is not None
        for entry in entries:
            self.note(entry)

    def clear(self) -> None:
        """As if nothing was aborted; the file stays as it is until it is settled."""
        del self._firsts[:], self._producers[:], self._markers[:], self._stables[:]
        self._least_first = NONE
        self._is_loaded = True
        self._has_check = False
        self.file.written_bytes = 0

    def cut_from(self, offset: int) -> None:
        """Forget what ended there or above, in the file too: who reads it would take it for true
        of what is written there next."""
        assert self._is_loaded, self.file.name
        keep = bisect_left(self._markers, offset)
        if keep == len(self):
            return
        for column in (self._firsts, self._producers, self._markers, self._stables):
            del column[keep:]
        self._least_first = min(self._firsts, default=NONE)
        self._drop_check()
        self.file.cut(keep * ABORTED_ENTRY.size)
        self.file.write(b"")
        self.is_unsynced = True  # else what was cut would come back

    def unload(self) -> None:
        """Let go of what can be read again."""
        if len(self) and self.is_written:
            least_first, has_check = self._least_first, self._has_check
            self.clear()
            self._least_first, self._is_loaded = least_first, False
            self._has_check = has_check

    # -- readers

    def begins_above(self, limit: int) -> bool:
        """Whether it is known that nothing in it began below an offset."""
        if self._least_first == NONE:
            return self._is_loaded
        return self._least_first >= limit

    def overlapping(self, start: int, limit: int) -> tuple[list[Aborted], bool]:
        """What was aborted of the offsets from `start` up to `limit`; and whether nothing behind
        can be: all that began below the limit had been decided then. As Kafka's."""
        found: list[Aborted] = []
        for at in range(bisect_left(self._markers, start), len(self)):
            if self._firsts[at] < limit:
                found += self.entries(at, at + 1)
            if self._stables[at] >= limit:
                return found, True
        return found, False


def _check_of(content: bytes) -> bytes:
    return f"{crc32c(content):08x}\n".encode("ascii")


def _is_right(entry: Aborted) -> bool:
    """Whether it has a record before its marker, and ends no later than all is decided."""
    after = entry.last_offset + 1
    return 0 <= entry.first_offset < after - 1 and 0 <= entry.last_stable_offset <= after
