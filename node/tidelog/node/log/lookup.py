"""Offsets by timestamp over the segments of one log, and ranges of one of them."""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.segment import Segment
from tidelog.node.log.segments import SegmentList
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import BatchHeader, Record, iterate_records


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: SegmentList, timestamp: int, *, start: int, limit: int
) -> TimestampOffset | None:
    """The first record of that time or later, from `start` on and below `limit`."""
    for segment in segments.from_offset(start):
        if segment.base >= limit:
            return None
        if segment.largest_timestamp() < timestamp:
            continue
        found = _first_in(segments.holding(segment.base), timestamp, start)
        if found is not None:
            return found if found.offset < limit else None
    return None


def _first_in(segment: Segment, timestamp: int, start: int) -> TimestampOffset | None:
    segment.load_indexes()
    at = segment.locate(segment.base + segment.times.start_for(timestamp))
    for position, header in segment.headers_from(at):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        found = _first_record(
            segment.batch_at(position, header),
            header,
            lambda record: record.timestamp >= timestamp and record.offset >= start,
        )
        if found is not None:
            return found
    return None


def largest(segments: SegmentList, *, start: int, limit: int) -> TimestampOffset | None:
    """The first record that carries the largest timestamp, from `start` on and below `limit`."""
    below = [segment for segment in segments.from_offset(start) if segment.base < limit]
    best: TimestampOffset | None = None
    for segment in sorted(below, key=lambda one: (-one.largest_timestamp(), one.base)):
        if best is not None and segment.largest_timestamp() <= best.timestamp:
            break
        found = _largest_in(segments.holding(segment.base), start, limit)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _largest_in(segment: Segment, start: int, limit: int) -> TimestampOffset | None:
    segment.load_indexes()
    best: tuple[int, BatchHeader] | None = None
    # Nothing before that entry's batch has a larger timestamp than it.
    at = segment.locate(segment.base + segment.times.last_below(limit - segment.base))
    for position, header in segment.headers_from(at):
        if header.base_offset >= limit:
            break
        if header.last_offset < start or header.max_timestamp < 0:
            continue
        if best is None or header.max_timestamp > best[1].max_timestamp:
            best = position, header
    if best is None:
        return None
    position, header = best
    return _first_record(
        segment.batch_at(position, header),
        header,
        lambda record: record.timestamp >= header.max_timestamp,
    ) or TimestampOffset(header.max_timestamp, header.base_offset, header.partition_leader_epoch)


def _first_record(
    batch: memoryview, header: BatchHeader, wanted: Callable[[Record], bool]
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    try:
        for record in iterate_records(batch):
            if wanted(record):
                return TimestampOffset(record.timestamp, record.offset, epoch)
    except (WireError, Rejected):
        # Its producer wrote records nobody can read: the batch as a whole is the answer.
        return TimestampOffset(header.max_timestamp, header.base_offset, epoch)
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
