"""What a follower that is behind is sent from the leader's log, checked. No I/O but by the log."""

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Offset
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.log import Log
from tidelog.node.log.scan import Course, is_followed
from tidelog.wire.errors import WireError
from tidelog.wire.records import BatchHeader, check_crc, iterate_batches


def first_batch(log: Log) -> Offset:
    """Where the batch begins that holds the log's first record; records before it may be deleted,
    but batches are whole everywhere."""
    found = log.read(log.start, 1, log.end, min_one=True)
    if found is None:
        return Offset(log.start)
    header, _ = next(iterate_batches(found.file.read(found.position, found.size)))
    return Offset(header.base_offset)


def size_from(log: Log, offset: int) -> int:
    """Bytes of the batches from the one on that holds the offset."""
    return sum(
        segment.size - (segment.locate(offset) if segment.base <= offset else 0)
        for segment in log.segments
        if segment.end > offset
    )


def whole_batches(found: FileSlice) -> tuple[memoryview, Offset]:
    """The batches that are whole, and the offset behind them; CorruptError where one is bad: what a
    follower would refuse, its leader must know of."""
    data, course = found.file.read(found.position, found.size), found.course()
    size, end, reason = 0, None, f"no whole batch in {len(data)} bytes"
    last = found.position
    try:
        for header, batch in iterate_batches(data):
            wrong = _what_is_wrong(header, batch, end, course)
            if wrong is not None:
                reason, end = f"{wrong} at offset {header.base_offset}", None
                break
            last = found.position + size
            size += len(batch)
            end = header.next_offset
    except WireError as error:
        reason, end = str(error), None
    if end is None:
        raise CorruptError(file=found.file.name, position=found.position + size, reason=reason)
    if course is not None and not is_followed(found.file, found.position + size, end, course):
        reason = f"what stands behind it begins before offset {end}"
        raise CorruptError(file=found.file.name, position=last, reason=reason)
    return data[:size], Offset(end)


def _what_is_wrong(
    header: BatchHeader, batch: memoryview, after: int | None, course: Course | None
) -> str | None:
    if not check_crc(batch):
        return "wrong checksum"
    if after is not None and header.base_offset < after:
        return f"offset {after} or higher is missing"
    if course is not None and not course.agrees(header):
        return f"leader epoch {header.partition_leader_epoch}"
    return None
