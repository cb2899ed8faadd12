"""One segment: a file of batches, its two indexes, and where each offset lies in it."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, File, Held, Syncable
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.index import OffsetIndex, TimeIndex
from tidelog.node.log.scan import Course, Scan
from tidelog.node.log.txn_index import TxnIndex
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from tidelog.wire.records import HEADER, BatchHeader, new_header

RECENT_BATCHES = 1024
RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**31 - 1
"""In an index entry. Compaction may make a segment of the largest size a little larger: what lies
beyond has no entries, and is found by walking from the last one."""
WALK_BYTES = 8192
TIME_WALK_BYTES = 64 * 1024
"""So much may be walked because the offset in an entry of the time index may be wrong."""
NEVER = -1


class Segment:
    """Batches from offset `base` up to `end`, which is exclusive.

    Invariant: `_recent_lasts` and `_recent_positions` are last offset and position of each batch
    from offset `_recent_from` on, so that readers near the end find their batch, and the one a
    limit ends at, without a read.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_directory",
        "_every_rise_noted",
        "_file",
        "_indexes_loaded",
        "_recent_from",
        "_recent_lasts",
        "_recent_positions",
        "_suffix",
        "_trusted_from",
        "_trusted_to",
        "aborted",
        "bad_at",
        "base",
        "cuts",
        "end",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "size",
        "times",
    )

    def __init__(
        self, directory: Directory, base: int, *, end: int, size: int, suffix: str = ""
    ) -> None:
        """Of a segment that exists, nothing is read before it is needed.

        `suffix` follows each file's name while a segment is on its way in.
        """
        self.base = base
        self.end = end
        self.size = size
        self.offsets = OffsetIndex(directory, file_name(base, OFFSET_INDEX_SUFFIX) + suffix)
        self.times = TimeIndex(directory, file_name(base, TIME_INDEX_SUFFIX) + suffix)
        self.aborted = TxnIndex(
            directory, file_name(base, TXN_INDEX_SUFFIX) + suffix, is_new=size == 0
        )
        """Transactions that were aborted by a marker in it."""
        self.first_timestamp = NEVER
        """The largest timestamp of the first batch: from it time-based rolling counts."""
        self.max_timestamp = NEVER
        self.max_timestamp_offset = 0
        """The last offset of the batch that holds it, relative to the base."""
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self._indexes_loaded = self._every_rise_noted = size == 0
        """The second: whether this process made the indexes. A file may be of an earlier version,
        which left entries out of the time index when `index.interval.bytes` became smaller."""
        self._bytes_since_entry = 0
        self._recent_from = base
        self._recent_lasts: list[int] = []
        self._recent_positions: list[int] = []
        self.cuts = 0
        """How often its end was cut off in this life."""
        self.bad_at: int | None = None
        """Where a batch is known to be bad."""
        self._trusted_to, self._trusted_from = 0, size
        """In the file: what lies before the one or behind the other needs no check."""

    @property
    def name(self) -> str:
        return file_name(self.base, LOG_SUFFIX) + self._suffix

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._open() if self.size else self._directory.open(self.name)
        return self._file

    def _open(self) -> File:
        """A file that holds batches is there: one made now, empty, would hide its loss."""
        try:
            return self._directory.open_existing(self.name)
        except FileNotFoundError:
            raise CorruptError(file=self.place, position=0, reason="the file is missing") from None

    @property
    def is_read(self) -> bool:
        """Whether an answer on its way is made of it."""
        return self._file is not None and self._file.readers > 0

    @property
    def place(self) -> str:
        return f"{self._directory.path}/{self.name}"

    # -- writing

    def append(self, batch: memoryview, header: BatchHeader, first: int, interval: int) -> None:
        """Write one batch whose first offset is `first`."""
        position = self.size
        file = self._file or self.file
        self.note(position, file.append((batch,)) - position, header, first, interval)

    def note(
        self, position: int, size: int, header: BatchHeader, first: int, interval: int
    ) -> None:
        """Take a batch that is in the file at `position` into all that is known of it."""
        last = first + header.last_offset_delta
        relative = last - self.base
        timestamp = header.max_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = relative
        if not position:
            self.first_timestamp = timestamp
        if self._bytes_since_entry > interval and position <= POSITION_MAX:
            self.offsets.append(relative, position)
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        lasts = self._recent_lasts
        if not lasts:
            self._recent_from = first
        lasts.append(last)
        self._recent_positions.append(position)
        if len(lasts) >= 2 * RECENT_BATCHES:
            self._recent_from = lasts[RECENT_BATCHES - 1] + 1
            del lasts[:RECENT_BATCHES], self._recent_positions[:RECENT_BATCHES]
        self.size = position + size
        self.end = last + 1

    def write_indexes(self, *, final: bool) -> None:
        """Bring the index files up to date; `final` adds the entry for the largest timestamp."""
        self.aborted.write()
        if final:
            self.aborted.seal()
        if not self._indexes_loaded:
            return
        if final and self.size:
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
        self.offsets.write()
        self.times.write()

    def truncate(self, position: int, end: int, interval: int) -> None:
        """Cut the file where a batch begins and forget that batch and those behind it."""
        self.load_indexes()
        self.cuts += 1
        self.file.truncate(position)
        self._trusted_from = min(self._trusted_from, position)
        self._trusted_to = min(self._trusted_to, position)
        self.size = position
        self.end = end
        self.offsets.cut_from(position)
        self.times.cut_from(end - self.base)
        self.aborted.cut_from(end)
        try:
            self._check_last_entries()
        except CorruptError:
            self.rebuild_indexes(interval)
        self.resume(interval)

    def held(self) -> Held | None:
        """Its file, for one sync that is to be quick."""
        return None if self._file is None else self._file.held()

    def syncables(self, *, sealed: bool) -> list[Syncable]:
        """What a flush must force out; an unsealed segment's indexes are rebuilt after a crash.

        Not so after a stop that flushed everything: then the one that nobody can check must be
        right.
        """
        found = [self._directory.syncable(self.name)]
        if self.aborted.is_unsynced:
            self.aborted.is_unsynced = False
            found += self.aborted.syncables()
        if sealed:
            found += [self.offsets.file.syncable(), self.times.file.syncable()]
        return found

    # -- reading

    def trusts(self, start: int, stop: int) -> bool:
        return start >= self._trusted_from or stop <= self._trusted_to

    def checked(self, start: int, stop: int) -> None:
        if start <= self._trusted_to:
            self._trusted_to = max(self._trusted_to, stop)
        if stop >= self._trusted_from:
            self._trusted_from = min(self._trusted_from, start)

    def doubted(self) -> None:
        self._trusted_to, self._trusted_from = 0, self.size

    def found_bad(self, position: int) -> None:
        self.bad_at = position

    def course(self, start: int, epochs: EpochCache) -> Course:
        """From the batch before on, unless that one is bad: what is behind need not fit to it."""
        since = self.batch_start_at_or_below(start - 1) if start else 0
        if self.bad_at is not None and since <= self.bad_at < start:
            since = start
        rows = tuple(epochs.entries())
        return Course(since, self.size, self.end, rows, self.cuts, self.bad_at)

    def locate(self, offset: int) -> int:
        """Where the batch begins that holds the offset, or the next one if none does."""
        if offset >= self.end:
            return self.size
        if self._recent_lasts and offset >= self._recent_from:
            at = bisect_left(self._recent_lasts, offset)
            return self._recent_positions[at] if at < len(self._recent_positions) else self.size
        return self._locate_in_file(offset)

    def _locate_in_file(self, offset: int) -> int:
        start = self._known_start(lambda: self.offsets.last_at_or_below(offset - self.base))
        for position, header in self.headers_from(start):
            if header.base_offset + header.last_offset_delta >= offset:
                return position
        return self.size

    def batch_start_at_or_below(self, position: int) -> int:
        """The last start of a batch that is known not above a position; 0 always is one."""
        recent = self._recent_positions
        if recent and position >= recent[0]:
            return recent[bisect_right(recent, position) - 1]
        return self._known_start(lambda: self.offsets.last_in_front_of(position))

    def _known_start(self, number: Callable[[], int]) -> int:
        """Where the batch begins that the entry of this number names; 0 where it is negative.

        Each entry is compared with its batch when it is used: a wrong one would make readers skip
        records. Then the indexes are made again, and the number is asked for again.
        """
        self.load_indexes()
        if not self._is_true(number()):
            self.rebuild_indexes()
        at = number()
        return self.offsets.positions[at] if at >= 0 else 0

    def _is_true(self, at: int) -> bool:
        if at < 0:
            return True
        with suppress(CorruptError):
            header = self.header_at(self.offsets.positions[at])
            return header.last_offset == self.base + self.offsets.offsets[at]
        return False

    def start_for_time(self, timestamp: int) -> int:
        """A position before which no batch reaches that timestamp.

        Each time a segment gets an entry of its offset index, it gets one of its time index if the
        largest timestamp has risen since the last. So where that rose to the timestamp, it did so
        behind the last offset entry before the batch that the time entry names. The entries on both
        sides are compared with their batches. A wrong offset may be that of another batch of the
        same time, so where that costs little, the walk begins one entry earlier. It does so at any
        cost if the index was found in a file: entries may be missing there.
        """
        self.load_indexes()
        after = self.times.last_earlier(timestamp) + 1
        if not (self._is_true_of_time(after - 1) and self._is_true_of_time(after)):
            self.rebuild_indexes()
            after = self.times.last_earlier(timestamp) + 1
        early = self._before(after - 1)
        if not self._every_rise_noted:
            return early
        offsets = self.times.offsets
        reached = offsets[after] if after < len(offsets) else self.end - self.base
        late = self._known_start(lambda: self.offsets.last_at_or_below(reached - 1))
        return early if late - early <= TIME_WALK_BYTES else late

    def first_for_largest(self, limit: int) -> int:
        """An offset at or before the first batch that may have the largest timestamp of those below
        `limit`. As above: nothing before an entry's batch has a larger timestamp than it, and the
        entry before that one says where to begin."""
        self.load_indexes()
        at = self.times.last_below(limit - self.base)
        return self.base + (self.times.offsets[at - 1] if at > 0 else 0)

    def _before(self, at: int) -> int:
        """Where the batch begins of the entry before that number in the time index."""
        return self.locate(self.base + self.times.offsets[at - 1]) if at > 0 else 0

    def _is_true_of_time(self, at: int) -> bool:
        """Whether the entry of that number, if there is one, is as its batch says."""
        if not 0 <= at < len(self.times):
            return True
        offset = self.base + self.times.offsets[at]
        position = self.locate(offset)
        if position >= self.size:
            return False
        header = self.header_at(position)
        return (header.last_offset, header.max_timestamp) == (offset, self.times.timestamps[at])

    def end_before(self, position: int) -> int:
        """Where the last batch before that position ends; the base if there is none."""
        end = self.base
        if position:
            for at, header in self.headers_from(self.batch_start_at_or_below(position - 1)):
                if at >= position:
                    break
                end = header.next_offset
        return end

    def end_of_batches(self, start: int, limit: int) -> int:
        """Where the batches from `start` end that fit below `limit`; the first one always does."""
        end = start
        for position, header in self.headers_from(start):
            if end > start and position + header.size_bytes > limit:
                break
            end = position + header.size_bytes
        return end

    def header_at(self, position: int) -> BatchHeader:
        """The header of a batch at a place where one must be."""
        return self._header(self.file.read(position, HEADER.size), 0, position)

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batch after batch from a place where one begins; a few small ones cost one read."""
        content, base = memoryview(b""), position
        while position < self.size:
            at = position - base
            if len(content) - at < HEADER.size:
                content, base, at = self.file.read(position, WALK_BYTES), position, 0
            header = self._header(content, at, position)
            yield position, header
            position += header.size_bytes

    def _header(self, content: memoryview, at: int, position: int) -> BatchHeader:
        if len(content) - at < HEADER.size:
            raise CorruptError(file=self.place, position=position, reason="the file is too short")
        header = new_header(HEADER.unpack_from(content, at))
        if (
            header.magic != 2
            or not self.base <= header.base_offset <= header.last_offset < self.end
            or not HEADER.size <= header.size_bytes <= self.size - position
        ):
            raise CorruptError(file=self.place, position=position, reason="no batch begins here")
        return header

    def batch_at(self, position: int, header: BatchHeader) -> memoryview:
        return self.file.read(position, header.size_bytes)

    # -- loading

    def load_indexes(self) -> None:
        """Read both index files at their first use; make them new where they are no good."""
        if self._indexes_loaded:
            return
        try:
            self.offsets.load(self.size)
            self.times.load()
            self._check_indexes()
        except CorruptError:
            self.rebuild_indexes()
        self._indexes_loaded = True

    def _check_indexes(self) -> None:
        """The last entries must be true, for they say how late the segment is; those before are
        compared with their batches when they are used."""
        self._check_last_entries()
        if not len(self.times) and self._has_timestamps():
            raise CorruptError(file=self.times.file.name, position=0, reason="lacks timestamps")
        self.max_timestamp, self.max_timestamp_offset = self.times.last()

    def _has_timestamps(self) -> bool:
        """Whether the first or the last batch has one; some batches may have none."""
        if not self.size:
            return False
        start = self.offsets.positions[-1] if len(self.offsets) else 0
        *_, (_, last) = self.headers_from(start)
        return self.header_at(0).max_timestamp >= 0 or last.max_timestamp >= 0

    def _check_last_entries(self) -> None:
        if len(self.offsets):
            header = self.header_at(self.offsets.positions[-1])
            if header.last_offset != self.base + self.offsets.offsets[-1]:
                raise CorruptError(
                    file=self.offsets.file.name, position=0, reason="points at another batch"
                )
        timestamp, relative = self.times.last()
        if len(self.times) and not self._is_timestamp_of(self.base + relative, timestamp):
            raise CorruptError(
                file=self.times.file.name, position=0, reason="names another timestamp"
            )

    def _is_timestamp_of(self, offset: int, timestamp: int) -> bool:
        """Whether a batch ends with that offset and has that largest timestamp."""
        for _, header in self.headers_from(self.offsets.start_for(offset - self.base)):
            if header.last_offset >= offset:
                return header.last_offset == offset and header.max_timestamp == timestamp
        return False

    def rebuild_indexes(self, interval: int = 4096) -> None:
        """From the headers of the log, which was checked before.

        Blocks for two syncs, once for a damaged index: of a flushed segment nobody would sync it
        later, and half of a time index cannot be told from a whole one.
        """
        size, end = self.size, self.end
        file = self.file  # while it is known to hold batches: a missing one is not made
        try:
            self._note_all(file, size, end, interval)
        except (OSError, CorruptError):
            # Else it would pass for an empty segment, and readers would skip its records.
            self.size, self.end = size, end
            self.unload()
            raise
        self.end = end  # of a compacted segment it may lie behind the last batch
        self.write_indexes(final=True)
        self.offsets.file.syncable().sync()
        self.times.file.syncable().sync()

    def _note_all(self, file: File, size: int, end: int, interval: int) -> None:
        self.forget()
        scan = Scan(file, position=0, end=size, next_offset=self.base).headers_only()
        scan.offset_max = min(end - 1, self.base + RELATIVE_OFFSET_MAX)
        for position, length, header in scan:
            self.note(position, length, header, header.base_offset, interval)
        if scan.reason is not None:
            raise CorruptError(file=self.place, position=scan.position, reason=scan.reason)

    def resume(self, interval: int) -> None:
        """Make a segment with loaded indexes ready to be appended to: look at its last batches.

        Every batch up to the last index entry is accounted for in the indexes.
        """
        self.load_indexes()
        # What a close added behind the last offset entry is found again by the walk below. If it
        # stayed, offset entries of a smaller interval would get no time entries of their own, and
        # a cut would forget how late the batches before them are.
        self.times.cut_from(self.offsets.offsets[-1] + 1 if len(self.offsets) else 0)
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self._bytes_since_entry = 0
        self._recent_lasts.clear()
        self._recent_positions.clear()
        self.first_timestamp = self.header_at(0).max_timestamp if self.size else NEVER
        start = self.offsets.positions[-1] if len(self.offsets) else 0
        end = self.end
        for position, header in list(self.headers_from(start)):
            self.note(position, header.size_bytes, header, header.base_offset, interval)
        self.end = end  # of a compacted segment it may lie behind the last batch

    def rename(self, suffix: str) -> None:
        """Put another suffix behind each file's name, the log's last: with it, all are there.

        Who reads from the file goes on: it stays open, or is found under its new name.
        """
        for kind in reversed(SEGMENT_SUFFIXES):
            name = file_name(self.base, kind)
            if self._directory.exists(name + self._suffix):
                self._directory.rename(name + self._suffix, name + suffix)
        self._suffix = suffix
        if self._file is not None:
            self._file.renamed(self.name)
        self.offsets.file.name = file_name(self.base, OFFSET_INDEX_SUFFIX) + suffix
        self.times.file.name = file_name(self.base, TIME_INDEX_SUFFIX) + suffix
        self.aborted.file.name = file_name(self.base, TXN_INDEX_SUFFIX) + suffix

    def remove(self) -> None:
        """The log file last: without it the others are taken for rubbish, not the reverse."""
        self.close()
        for kind in reversed(SEGMENT_SUFFIXES):
            self._directory.unlink(file_name(self.base, kind) + self._suffix)

    def written_ms(self) -> int:
        """When the file was last written to, where no record carries a time."""
        return self._directory.modified_ms(self.name) or 0

    def largest_timestamp(self) -> int:
        """Kept when the indexes are let go of."""
        if self.max_timestamp == NEVER:
            self.load_indexes()
        return self.max_timestamp

    def oldest_timestamp(self) -> int:
        """The largest one of the first batch, as Kafka has it; NEVER of an empty segment."""
        if self.first_timestamp == NEVER and self.size:
            self.first_timestamp = self.header_at(0).max_timestamp
        return self.first_timestamp

    def forget(self) -> None:
        """As if the segment were empty; its files stay as they are until they are written."""
        self.size = 0
        self.end = self.base
        self.offsets.clear()
        self.times.clear()
        self.first_timestamp = self.max_timestamp = NEVER
        self.max_timestamp_offset = self._bytes_since_entry = 0
        self._recent_lasts.clear()
        self._recent_positions.clear()
        self._indexes_loaded = self._every_rise_noted = True

    def unload(self) -> None:
        """Let go of what can be read again; only for a segment whose indexes are written."""
        if self.size:
            self.offsets.offsets, self.offsets.positions = array("i"), array("i")
            self.times.timestamps, self.times.offsets = array("q"), array("i")
            self._recent_lasts.clear()
            self._recent_positions.clear()
            self._indexes_loaded = False
            self.aborted.unload()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
