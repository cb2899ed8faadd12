"""Holds a log's leader-epoch-checkpoint against the epochs of its batches."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.epochs import FILE_NAME, EpochCache, decode_epochs
from tidelog.tools.log_files.findings import Report


class Span(NamedTuple):
    """The log's offsets: from `start` to below `end`."""

    first_segment: int
    start: int
    end: int
    start_is_exact: bool
    """Unless so, the log may begin later than is known."""
    compacted: bool
    lasts: Mapping[int, int]
    """The last offset that a batch of each epoch has."""


def check_epochs(
    directory: Directory, report: Report, from_batches: EpochCache, span: Span
) -> None:
    """`from_batches` is what the batches say."""
    place = f"{directory.path}/{FILE_NAME}"
    content = directory.read_all(FILE_NAME)
    if content is None:
        if len(from_batches):
            report.violation(place, "is missing")
        return
    try:
        said = decode_epochs(content, place=place)
    except CorruptError as error:
        report.violation(place, error.reason, error.position)
        return
    report.read(len(content))
    if said.encode() != content:
        report.violation(place, "is not written as it always is")
    entries = said.entries()
    if entries and entries[0][1] < span.first_segment:
        first = f"begins at offset {entries[0][1]}, the first segment at {span.first_segment}"
        report.remark(place, first)
    compare = _compare_compacted if span.compacted else _compare
    reason = compare(said, from_batches, span)
    if reason is not None:
        report.violation(place, reason)


def _compare(said: EpochCache, from_batches: EpochCache, span: Span) -> str | None:
    start = span.start
    if len(said) and not span.start_is_exact:
        start = max(start, said.entries()[0][1])
    for cache in (said, from_batches):
        cache.cut_below(start)
    from_batches.cut_from(span.end)  # all of it was deleted: nobody wrote what is left
    found, written = said.entries(), from_batches.entries()
    if found and found[-1][1] == span.end:
        found.pop()  # who became leader and wrote nothing yet stands in this file only
    found = [row for row in found if not _wrote_into_a_gap(row, written, span)]
    if _begins_in_a_gap(found, written, span):
        found = found[1:]
    if found != written and not _reaches_back(found, written, span):
        return f"says (epoch, from) {found}, the batches {written}"
    return None


def _wrote_into_a_gap(row: tuple[int, int], written: list[tuple[int, int]], span: Span) -> bool:
    """Whether an epoch begins between two batches, in a gap. A power loss took what it wrote, but
    not that it led, and the next batch that the leader sent came behind a gap of compaction."""
    epoch, start = row
    before = [span.lasts[one] for one, _ in written if one < epoch]
    behind = [first for one, first in written if one > epoch]
    return (
        epoch not in dict(written)
        and bool(before)
        and bool(behind)
        and max(before) < start < min(behind)
    )


def _begins_in_a_gap(
    found: list[tuple[int, int]], written: list[tuple[int, int]], span: Span
) -> bool:
    """Whether the log begins in a gap that compaction left. The first epoch then stands for the
    offsets of the gap, and none of its batches is left."""
    if not written:  # a follower received a batch above a gap, and cut it off again
        return len(found) == 1 and found[0][1] <= span.start
    return (
        found[:1] != written[:1]
        and bool(found)
        and found[0][1] <= span.start < written[0][1]
        and found[0][0] < written[0][0]
    )


def _reaches_back(found: list[tuple[int, int]], written: list[tuple[int, int]], span: Span) -> bool:
    """Whether the first epoch stands for older ones too, whose batches were deleted once.

    A power loss brought them back; the engine then lets whoever asks for them cut too much.
    """
    if not found or found[0][1] > max(span.start, span.first_segment):
        return False
    first = found[0][0]
    return first in dict(written) and found[1:] == [one for one in written if one[0] > first]


def _compare_compacted(said: EpochCache, from_batches: EpochCache, span: Span) -> str | None:
    """The first batches of an epoch may be gone: only those that are left can be asked, of which
    the first and the last ones speak for all between."""
    for epoch, first in from_batches.entries():
        for offset in (first, span.lasts.get(epoch, first)):
            if offset >= span.start and said.epoch_at(offset) != epoch:
                return f"says epoch {said.epoch_at(offset)} at offset {offset}, the batch {epoch}"
    return None
