"""What was aborted of a range of a log, from the indexes of its segments."""

from contextlib import suppress

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.recovery import follow, load_producers
from tidelog.node.log.segment import Segment
from tidelog.node.log.segments import SegmentList
from tidelog.node.log.txn_index import TxnIndex
from tidelog.wire.log_files import Aborted


def aborted_in(
    directory: Directory, segments: SegmentList, offset: int, found: FileSlice, limit: int
) -> list[Aborted]:
    """What a reader must leave out of these bytes, which were found for an offset, below a limit.

    An entry stands beside its marker, which may be far behind; the search ends where all that
    began below what is sent is known to be decided.
    """
    there = segments.from_offset(offset)
    at = next(number for number, one in enumerate(there) if one.name == found.file.name)
    segment = there[at]
    limit = min(limit, segment.end)
    rows = _between(directory, segments, there[at:], offset, limit)
    stop = found.position + found.size
    if rows and stop < segment.size:
        limit = min(limit, segment.header_at(stop).base_offset)
    return [row for row in rows if row.first_offset < limit]


def _between(
    directory: Directory, segments: SegmentList, there: list[Segment], start: int, limit: int
) -> list[Aborted]:
    rows: list[Aborted] = []
    for segment in there:
        if segment.aborted.begins_above(limit):
            continue
        if segment is not segments.active:
            segments.note_use(segment)
        found, is_all = index_of(directory, segments, segment).overlapping(start, limit)
        rows += found
        if is_all:
            break
    return rows


def are_whole(directory: Directory, segments: SegmentList) -> bool:
    """Whether the indexes of all segments are wholly in their files, and right as far as it shows.

    Where there are no batches to make one of, it stays as it is: whoever reads it finds that out.
    """
    with suppress(CorruptError):
        for segment in segments:
            if not segment.aborted.is_checked:
                index_of(directory, segments, segment)
                if segment is not segments.active:
                    segments.note_use(segment)
    with suppress(OSError):
        segments.active.aborted.write()
    return segments.active.aborted.is_written


def index_of(directory: Directory, segments: SegmentList, segment: Segment) -> TxnIndex:
    """The index of a segment, read if it was not; made anew from the batches where it is no good.

    Blocks for two syncs then: of a flushed segment nobody would sync it later.
    """
    index = segment.aborted
    try:
        index.load(segment.base, segment.end)
    except CorruptError:
        index.clear()
        producers = load_producers(directory, list(segments), segment.base, 0)
        for entry in follow(producers, segment, segment.base, segment.end, 0):
            index.note(entry)
        index.settle()
        for file in index.syncables():
            file.sync()
        directory.sync()
    return index
