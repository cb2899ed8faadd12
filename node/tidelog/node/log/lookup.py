"""Offsets by timestamp over the segments of one log, and ranges of one of them.

A search may have to pass many batches, and look at the records of some whose headers promise more
than they hold. So it is a generator that a caller drives: it yields None where others should have
their turn, and a `ToLook` where records must be read, which the caller may have done in a thread.
Between two steps the log may change, so a search knows offsets only, never segments.
"""

from collections.abc import Callable, Generator
from itertools import islice
from typing import Final, NamedTuple

from tidelog.kernel import limits
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.steps import Pace, Steps
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.looking import Allowance, unpacked
from tidelog.node.log.segment import NEVER, Segment
from tidelog.node.log.segments import SegmentList
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import BatchHeader, iterate_plain

_TIMESTAMP_MAX: Final = 2**63 - 1
_COLD_SEGMENT_COUNTS_AS: Final = 200
"""To read the indexes of a segment takes as long as to pass so many batches."""


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class ToLook(NamedTuple):
    """A batch whose header says that it holds a record of some time or later."""

    batch: memoryview
    header: BatchHeader
    timestamp: int
    start: int
    """Records below this offset do not count."""
    allowance: Allowance
    """All batches that one search looks at share it."""


Search = Generator[ToLook | None, TimestampOffset | None, TimestampOffset | None]
"""It is sent what `look_for` found in the batch that it yielded."""


class LogRange(NamedTuple):
    """A log as it is when a search goes on: its segments, and the first offset that is searched."""

    segments: SegmentList
    start: int


def first_at_or_after(now: Callable[[], LogRange], timestamp: int, limit: int) -> Search:
    """The first record of that time or later below `limit`."""
    at, allowance = 0, Allowance()
    while (at := max(at, (log := now()).start)) < limit:
        passed = _next_batch(log.segments, timestamp, at, limit)
        if isinstance(passed, int):
            at = passed
            if at < limit:
                yield None
            continue
        batch, header = passed
        found = yield ToLook(batch, header, timestamp, at, allowance)
        if found is not None:
            return found if found.offset < limit else None
        at = header.next_offset
    return None


def _next_batch(
    segments: SegmentList, timestamp: int, start: int, limit: int
) -> tuple[memoryview, BatchHeader] | int:
    """The next batch that says it reaches the timestamp, or the offset to go on from: a larger one
    than `start`, `limit` where there is none.
    """
    left = limits.HEADERS_PER_STEP
    for segment in segments.from_offset(start):
        if segment.base >= limit:
            return limit
        if left <= 0:
            return segment.base
        left -= _cost(segment)
        if segment.largest_timestamp() >= timestamp and segment.end > start:
            return _next_in(segments.holding(segment.base), timestamp, start, limit)
    return limit


def _cost(segment: Segment) -> int:
    """Of asking it for its largest timestamp, in batches passed."""
    return 1 if segment.max_timestamp != NEVER else _COLD_SEGMENT_COUNTS_AS


def _next_in(
    segment: Segment, timestamp: int, start: int, limit: int
) -> tuple[memoryview, BatchHeader] | int:
    position = max(segment.start_for_time(timestamp), segment.locate(start))
    for at, header in islice(segment.headers_from(position), limits.HEADERS_PER_STEP):
        if header.base_offset >= limit:
            return limit
        if header.max_timestamp >= timestamp:
            return segment.batch_at(at, header), header
        start = header.next_offset
    return start if segment.locate(start) < segment.size else segment.end


def largest(now: Callable[[], LogRange], limit: int) -> Search:
    """The first record that carries the largest timestamp below `limit`."""
    if now().start >= limit:
        return None
    best: BatchHeader | None = None
    for timestamp, base in (yield from _by_largest(now, limit)):
        if best is not None and timestamp <= best.max_timestamp:
            break
        found = yield from _largest_in(now, base, limit)
        if found is not None and (best is None or found.max_timestamp > best.max_timestamp):
            best = found
    return None if best is None else (yield from _first_of(now, best))


def _first_of(now: Callable[[], LogRange], best: BatchHeader) -> Search:
    """The first record that carries the largest timestamp of its batch."""
    segments, start = now()
    segment = segments.holding(best.base_offset)
    found: TimestampOffset | None = None
    for position, header in islice(segment.headers_from(segment.locate(best.base_offset)), 1):
        if header.base_offset == best.base_offset:  # else it is gone meanwhile
            batch = segment.batch_at(position, header)
            found = yield ToLook(batch, header, header.max_timestamp, start, Allowance())
    return found or TimestampOffset(
        best.max_timestamp, max(start, best.base_offset), best.partition_leader_epoch
    )


def _by_largest(
    now: Callable[[], LogRange], limit: int
) -> Generator[None, TimestampOffset | None, list[tuple[int, int]]]:
    """The largest timestamp and the base of each segment below `limit`, the largest first."""
    found: list[tuple[int, int]] = []
    at = now().start
    while True:
        left = limits.HEADERS_PER_STEP
        for segment in now().segments.from_offset(at):
            if segment.base >= limit:
                return sorted(found, key=lambda one: (-one[0], one[1]))
            if left <= 0:
                break
            left -= _cost(segment)
            found.append((segment.largest_timestamp(), segment.base))
            at = max(at, segment.end)
        else:
            return sorted(found, key=lambda one: (-one[0], one[1]))
        yield None


def _largest_in(
    now: Callable[[], LogRange], base: int, limit: int
) -> Generator[None, TimestampOffset | None, BatchHeader | None]:
    """The header of the batch with the largest timestamp, of what a segment has below `limit`."""
    best: BatchHeader | None = None
    at = -1
    while at < limit:
        segments, start = now()
        segment = segments.holding(max(base, start))
        if segment.base != base:
            break  # it is gone meanwhile
        if at < 0:
            at = segment.first_for_largest(limit)
        best, at = _larger(segment, max(at, start), limit, best)
        if at < limit:
            yield None
    return best


def _larger(
    segment: Segment, at: int, limit: int, best: BatchHeader | None
) -> tuple[BatchHeader | None, int]:
    """The best of the next batches, and the offset to go on from; `limit` where that is over."""
    for _, header in islice(segment.headers_from(segment.locate(at)), limits.HEADERS_PER_STEP):
        if header.base_offset >= limit:
            return best, limit
        at = header.next_offset
        if header.max_timestamp > (NEVER if best is None else best.max_timestamp):
            best = header
            if best.max_timestamp >= segment.max_timestamp:
                return best, limit
    return best, at if segment.locate(at) < segment.size else limit


def look_for(asked: ToLook) -> Steps[TimestampOffset | None]:
    """The first record of the batch that has the time, None where its header said more than is so.

    The batch as a whole is the answer where its records cannot be read, or are too many.
    """
    batch, header, timestamp, start, allowance = asked
    epoch = header.partition_leader_epoch
    whole = TimestampOffset(header.max_timestamp, max(start, header.base_offset), epoch)
    try:
        allowance.take_records(header.record_count)
        limit = limits.DECOMPRESSED_BATCH_BYTES_MAX
        plain = yield from unpacked(batch, header, allowance, limit)
        for index, record in enumerate(iterate_plain(header, plain), 1):
            if timestamp <= record.timestamp <= _TIMESTAMP_MAX and record.offset >= start:
                return TimestampOffset(record.timestamp, record.offset, epoch)
            if not index % limits.RECORDS_PER_STEP:
                yield Pace.GO_ON
    except (WireError, Rejected):
        return whole
    return None


def slice_of(
    segment: Segment, start: int, stop: int, max_bytes: int, epochs: EpochCache, *, min_one: bool
) -> FileSlice | None:
    """The bytes from `start` to `stop`, less where that is too much, at a batch's end if known.

    CorruptError where they begin with a batch that is known to be bad; they end before one.
    """
    bad = segment.bad_at
    if bad is not None and start <= bad < stop:
        if start == bad:
            raise CorruptError(file=segment.place, position=bad, reason="this batch is bad")
        stop = bad
    if stop - start > max_bytes:
        cut = segment.batch_start_at_or_below(start + max_bytes)
        if cut <= start:
            cut = segment.end_of_batches(start, start + max_bytes)
            if cut - start > max_bytes and not min_one:
                return None
        stop = min(cut, stop)
    return FileSlice(segment.file, start, stop - start, segment, epochs)
