"""One pass of compaction over the sealed segments of a log, as Kafka's cleaner does it.

First the last offset of each key is learnt from the dirty segments, as far as memory allows; then
the segments are written anew, small ones together, without the records that a later one replaced.
It reads and writes files only, so it runs in a process of its own (`runtime/cleaner_worker.py`)
while the broker goes on; the broker puts the new segments in the old ones' place.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, File
from tidelog.kernel.limits import MIB, REQUEST_BYTES_MAX
from tidelog.node.log.cleaning_filter import Filter, Kept, Rules, columns_of, marker_key
from tidelog.node.log.cleaning_transactions import Transactions
from tidelog.node.log.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.node.log.swap import discard_unfinished, prepare_swap
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.log_files import (
    ABORTED_ENTRY,
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    Aborted,
    decode_aborted,
    encode_aborted,
    file_name,
    offsets_with_suffix,
)
from tidelog.wire.records import (
    HEADER,
    BatchHeader,
    check_crc,
    iterate_batches,
    read_header,
)

_READ_BYTES: Final = 4 * MIB
_WRITE_BYTES: Final = 1 * MIB
_SYNC_BYTES: Final = 8 * MIB
"""So much unsynced, no more: else the last sync of a large segment would stall the disk."""
INDEX_ENTRY_BYTES_MAX: Final = 12
_ENTRY_BYTES: Final = 140
"""What one key costs in memory besides its bytes, measured: dict slot, bytes object, integer."""
_NO_KEY_OFFSET: Final = 2**63 - 1

Throttle = Callable[[int], None]


class SegmentFacts(Struct, frozen=True, array_like=True):
    """One sealed segment."""

    base: int
    end: int
    size: int


class Job(Struct, frozen=True):
    """One pass, told to whoever does it."""

    segments: tuple[SegmentFacts, ...]
    """From the first one up to the first that may not be cleaned."""
    dirty_start: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    map_bytes_max: int
    producers: dict[int, tuple[int, int]]
    """Of each active producer the last offset of its data, -1 where that is gone, and its epoch."""
    log_start: int = 0
    """Records below were deleted, though a segment may still hold them."""


class Cleaned(Struct, frozen=True, tag="cleaned"):
    """One new segment is written and synced: it may take the old ones' place."""

    old: tuple[SegmentFacts, ...]
    size: int


class Finished(Struct, frozen=True, tag="finished"):
    """The pass is over; the log is clean up to `end`."""

    end: int
    keys: int
    bytes_read: int
    bytes_written: int
    unreadable: int = 0
    """How many batches were kept because their records cannot be read."""


def no_throttle(_size: int) -> None:
    """As fast as it goes."""


def clean(
    directory: Directory, job: Job, throttle: Throttle = no_throttle
) -> Iterator[Cleaned | Finished]:
    """Do one pass. CorruptError where a segment is damaged; records that cannot be read stay."""
    yield from _Pass(directory, job, throttle).run()


class KeyMap:
    """The last offset of each key, in bounded memory."""

    def __init__(self, bytes_max: int) -> None:
        self.last: dict[bytes | None, int] = {}
        self.end = 0
        """All below was learnt."""
        self._bytes_left = bytes_max

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    def learn(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> None:
        before = len(self.last)
        self.last.update(zip(keys, offsets, strict=True))
        new = len(self.last) - before
        if new:
            bytes_each = sum(len(key) for key in keys if key) // len(keys)
            self._bytes_left -= new * (_ENTRY_BYTES + bytes_each)


class _Pass:
    """One pass; used once."""

    def __init__(self, directory: Directory, job: Job, throttle: Throttle) -> None:
        self._directory = directory
        self._job = job
        self._throttle = throttle
        self._map = KeyMap(job.map_bytes_max)
        self._read = self._written = 0
        self._aborted = self._load_aborted()

    def run(self) -> Iterator[Cleaned | Finished]:
        discard_unfinished(self._directory)
        self._learn()
        keys = self._map
        keys.last[None] = _NO_KEY_OFFSET  # a record without a key is nobody's last
        transactions = Transactions(self._aborted)
        sieve = self._sieve(transactions)
        chosen = [segment for segment in self._job.segments if segment.base < keys.end]
        for group in grouped(chosen, self._bytes_max()):
            yield self._write_group(group, sieve, transactions)
        yield Finished(keys.end, len(keys.last) - 1, self._read, self._written, sieve.unreadable)

    def _sieve(self, transactions: Transactions) -> Filter:
        job = self._job
        rules = Rules(
            now_ms=job.now_ms,
            horizon_ms=job.now_ms + job.delete_retention_ms,
            producers=job.producers,
            round_end=job.segments[-1].end,
            log_start=job.log_start,
        )
        return Filter(self._map.last.get, transactions, rules)

    def _bytes_max(self) -> int:
        """Of a new segment: neither its log nor its indexes may grow too large."""
        job = self._job
        entries_max = job.index_bytes_max // INDEX_ENTRY_BYTES_MAX
        return min(job.segment_bytes, entries_max * max(job.index_interval_bytes, HEADER.size))

    def _load_aborted(self) -> list[Aborted]:
        """Of the whole log: an entry stands beside its marker, maybe far behind the data.

        Behind the segments of this pass the broker goes on writing; what it writes now is of no
        transaction that has data in them.
        """
        found: list[Aborted] = []
        sealed = {segment.base for segment in self._job.segments}
        for base in offsets_with_suffix(self._directory.names(), LOG_SUFFIX):
            name = file_name(base, TXN_INDEX_SUFFIX)
            content = self._directory.read_all(name) or b""
            if base not in sealed:
                content = content[: len(content) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]
            found += decode_aborted(content, place=f"{self._directory.path}/{name}")
        return found

    # -- the first reading

    def _learn(self) -> None:
        """The last offset of each key from the dirty segments, up to the end or a full map."""
        keys, dirty = self._map, self._job.dirty_start
        keys.end = dirty
        transactions = Transactions(one for one in self._aborted if one.last_offset >= dirty)
        for segment in self._job.segments:
            if segment.end > dirty and not self._learn_segment(segment, transactions):
                return

    def _learn_segment(self, segment: SegmentFacts, transactions: Transactions) -> bool:
        """Whether all of it went into the map."""
        keys = self._map
        for header, batch in self._batches(segment):
            if keys.is_full:
                return False
            self._learn_batch(header, batch, transactions)
            keys.end = max(keys.end, header.next_offset)
        keys.end = max(keys.end, segment.end)
        return True

    def _learn_batch(
        self, header: BatchHeader, batch: memoryview, transactions: Transactions
    ) -> None:
        if header.is_control:
            transactions.discards_marker(header, marker_key(header, batch))
            return
        if transactions.discards_data(header) or header.last_offset < self._job.dirty_start:
            return
        columns = columns_of(header, batch)
        if columns is None:
            return  # the second reading keeps it as it is
        keys: Sequence[bytes | None] = columns.keys
        offsets = columns.offsets(header.base_offset)
        if header.base_offset < self._job.dirty_start:
            late = sum(1 for offset in offsets if offset < self._job.dirty_start)
            keys, offsets = keys[late:], offsets[late:]
        self._map.learn(keys, offsets)

    # -- the second reading

    def _write_group(
        self, group: Sequence[SegmentFacts], sieve: Filter, transactions: Transactions
    ) -> Cleaned:
        """One new segment from some old ones, on the disk and ready to take their place."""
        output = _Output(self._directory, group[0].base, self._job.index_interval_bytes)
        sieve.begin_segment(sum(segment.size for segment in group))
        for segment in group:
            for header, batch in self._batches(segment):
                if header.base_offset >= self._map.end:
                    # Not learnt: the next round looks at it. Its transactions count all the same.
                    sieve.pass_by(header, batch)
                    self._put(output, Kept(batch, header))
                    continue
                kept = sieve.keep(header, batch)
                if kept is not None:
                    self._put(output, kept)
        self._throttle(output.write())
        size = output.finish(encode_aborted(transactions.kept))
        transactions.kept.clear()
        self._written += size
        prepare_swap(self._directory, group[0].base)
        return Cleaned(tuple(group), size)

    def _put(self, output: "_Output", kept: Kept) -> None:
        self._throttle(output.put(kept))

    def _batches(self, segment: SegmentFacts) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Each batch, checked: compaction must not give damaged bytes a new checksum."""
        file = self._directory.open_existing(file_name(segment.base, LOG_SUFFIX))
        place = f"{self._directory.path}/{file.name}"
        position = told = 0
        try:
            for header, batch in checked_batches(file, segment.size, place):
                yield header, batch
                position += len(batch)
                if position - told >= _READ_BYTES:
                    self._throttle(position - told)
                    told = position
        except (WireError, Rejected) as error:
            raise CorruptError(file=place, position=position, reason=str(error)) from error
        finally:
            file.close()
            self._read += position
            self._throttle(position - told)  # most segments hold less than is read at a time


class _Output:
    """The segment that is being written."""

    def __init__(self, directory: Directory, base: int, interval: int) -> None:
        self._directory = directory
        self._segment = Segment(directory, base, end=base, size=0, suffix=CLEANED_SUFFIX)
        self._interval = interval
        self._parts: list[Kept] = []
        self._bytes = 0
        self._unsynced = 0

    def put(self, kept: Kept) -> int:
        """Take a batch; how many bytes were written for it and those before."""
        self._parts.append(kept)
        self._bytes += len(kept.batch)
        return self.write() if self._bytes >= _WRITE_BYTES else 0

    def write(self) -> int:
        parts, written = self._parts, self._bytes
        segment = self._segment
        position = segment.size
        segment.file.append((b"".join([kept.batch for kept in parts]),))
        for kept in parts:
            size = len(kept.batch)
            segment.note(position, size, kept.header, kept.header.base_offset, self._interval)
            position += size
        self._parts, self._bytes = [], 0
        self._unsynced += written
        if self._unsynced > _SYNC_BYTES:
            segment.file.sync()
            self._unsynced = 0
        return written

    def finish(self, txn_index: bytes) -> int:
        """All of it on stable storage; the size of the log file."""
        segment = self._segment
        segment.write_indexes(final=True)
        txn_file = self._directory.open(file_name(segment.base, TXN_INDEX_SUFFIX) + CLEANED_SUFFIX)
        if txn_index:
            txn_file.append((txn_index,))
        for file in [*segment.syncables(sealed=True), txn_file]:
            file.sync()
        txn_file.close()
        segment.close()
        return segment.size


def checked_batches(file: File, size: int, place: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batch after batch of a file, a few MiB at a time; CorruptError at the first bad one."""
    position, wanted = 0, _READ_BYTES
    while position < size:
        start = position
        chunk = file.read(start, min(wanted, size - start))
        for header, batch in iterate_batches(chunk):
            if not check_crc(batch):
                raise CorruptError(file=place, position=position, reason="wrong checksum")
            yield header, batch
            position += len(batch)
        wanted = _READ_BYTES
        if position == start:
            wanted = read_header(chunk).size_bytes
            if not len(chunk) < wanted <= min(size - start, REQUEST_BYTES_MAX):
                raise CorruptError(file=place, position=start, reason="the batch is cut short")


def grouped(segments: Sequence[SegmentFacts], bytes_max: int) -> list[list[SegmentFacts]]:
    """Neighbours that fit into one segment together, by their sizes of now."""
    groups: list[list[SegmentFacts]] = []
    size = 0
    for segment in segments:
        size += segment.size
        if groups and size <= bytes_max and _reaches(groups[-1][0].base, segment):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
    return groups


def _reaches(base: int, segment: SegmentFacts) -> bool:
    """Whether offsets relative to that base fit into an index."""
    return not segment.size or segment.end - 1 - base <= RELATIVE_OFFSET_MAX
