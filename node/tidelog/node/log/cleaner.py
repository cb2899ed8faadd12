"""Which log is compacted next, and up to where. Kafka's rules; the work itself is `cleaning.py`.

Invariant: nothing above the last stable offset, in the active segment, younger than
`min.compaction.lag.ms` or not yet flushed is ever touched.
"""

from collections.abc import Iterable
from itertools import takewhile

from msgspec import Struct

from tidelog.node.log.cleaning import Job, SegmentFacts
from tidelog.node.log.log import Log
from tidelog.node.log.segment import Segment


class Candidate(Struct, frozen=True):
    """A log with something to compact."""

    log: Log
    dirty_start: int
    cleanable: tuple[Segment, ...]
    """The segments up to the first that must be left alone, the clean ones too."""
    ratio: float
    """The part of their bytes that is dirty."""
    is_overdue: bool
    """`max.compaction.lag.ms` has passed for some of them."""
    cuts: int
    """How often the log's end had been cut off by then: a cut makes what a pass reads worthless."""


def candidate(log: Log, cleaned: int | None, high_watermark: int, now_ms: int) -> Candidate | None:
    """What compaction would find in a log; None where that is nothing. No pass is under way.

    A pass that the system had no descriptor for may have left its segment half put in force, in use
    under the name of an unfinished one: the next pass would remove it, so that is ended first.
    """
    if not log.settings.compact or not log.has_sealed:
        return None
    log.settle_swap()
    segments = log.segments
    dirty_start = _dirty_start(log, cleaned)
    stable = min(log.last_stable_offset(high_watermark), log.recovery_point)
    cleanable = tuple(_cleanable(segments, dirty_start, stable, log, now_ms))
    dirty = [segment for segment in cleanable if segment.end > dirty_start]
    total_bytes = sum(segment.size for segment in cleanable)
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes or not log.has_told_aborted():
        return None
    ratio, is_overdue = dirty_bytes / total_bytes, _is_overdue(dirty, log, now_ms)
    return Candidate(log, dirty_start, cleanable, ratio, is_overdue, log.cuts)


def _dirty_start(log: Log, cleaned: int | None) -> int:
    """Where the part begins that no pass has seen; all of the log where the note cannot be true."""
    if cleaned is None or not log.start <= cleaned <= log.end:
        return log.start
    return cleaned


def _cleanable(
    segments: list[Segment], dirty_start: int, stable: int, log: Log, now_ms: int
) -> Iterable[Segment]:
    lag_ms = log.settings.min_compaction_lag_ms

    def is_old_enough(segment: Segment) -> bool:
        if lag_ms <= 0 or segment.end <= dirty_start:
            return True
        stamp = segment.largest_timestamp()
        return (stamp if stamp >= 0 else segment.written_ms()) <= now_ms - lag_ms

    return takewhile(
        lambda segment: segment.end <= stable and is_old_enough(segment), segments[:-1]
    )


def _is_overdue(dirty: list[Segment], log: Log, now_ms: int) -> bool:
    """Whether the oldest dirty batch waited for longer than the topic allows."""
    lag_ms = log.settings.max_compaction_lag_ms
    return any(0 < segment.oldest_timestamp() < now_ms - lag_ms for segment in dirty)


def is_due(found: Candidate) -> bool:
    return found.is_overdue or found.ratio > found.log.settings.min_cleanable_dirty_ratio


def filthiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The one with the largest dirty part of those that are due."""
    return max(filter(is_due, candidates), key=lambda found: found.ratio, default=None)


def job_for(found: Candidate, *, map_bytes_max: int, now_ms: int) -> Job:
    """What a worker is told to do."""
    settings = found.log.settings
    return Job(
        segments=tuple(SegmentFacts(one.base, one.end, one.size) for one in found.cleanable),
        dirty_start=found.dirty_start,
        now_ms=now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        index_bytes_max=settings.index_bytes_max,
        index_interval_bytes=settings.index_interval_bytes,
        map_bytes_max=map_bytes_max,
        producers={
            producer_id: (
                producer.batches[-1].last_offset if producer.batches else -1,
                producer.epoch,
            )
            for producer_id, producer in found.log.producers.items()
        },
        log_start=found.log.start,
    )
