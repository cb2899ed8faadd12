"""Which records are old, or too many: up to where a log may be deleted. Kafka's rules.

Whole segments go, the oldest first, and never one that reaches above the high watermark. Its age
is that of its largest record timestamp (of the file, where no record has one): a timestamp in the
future keeps a segment, and those behind it. If all of the log is old, the active segment is rolled
so that it can go as well.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.log import Log
from tidelog.node.log.marks import ClosedLog
from tidelog.node.log.segment import Segment
from tidelog.wire.log_files import LOG_SUFFIX, file_name

LOGS_PER_STEP: Final = 50
"""So many logs are looked at in one turn of the loop."""


def wanted_start(log: Log, high_watermark: int, now_ms: int) -> int:
    """The log start that the topic's settings ask for; the present one where nothing is to go."""
    settings = log.settings
    closed = log.closed
    if not log.has_files or (closed is not None and not _is_worth_opening(log, closed, now_ms)):
        return log.start
    segments = log.segments
    gone = _below_start(segments, log.start)
    if settings.delete:
        gone += _beyond_size(segments[gone:], settings.retention_bytes)
        gone += _beyond_age(segments[gone:], settings.retention_ms, now_ms)
    return max(log.start, _end_of(log, segments, gone, high_watermark, now_ms))


def _is_worth_opening(log: Log, closed: ClosedLog, now_ms: int) -> bool:
    """Whether a log nobody used yet could have something to delete: ten thousand may not have."""
    if not closed.size_bytes or not log.settings.delete:
        return False
    if log.has_sealed:
        return True
    stamp = closed.active_timestamp
    if stamp < 0:
        stamp = log.directory.modified_ms(file_name(closed.active_base, LOG_SUFFIX)) or 0
    return bool(
        0 <= log.settings.retention_bytes < closed.size_bytes
        or 0 <= log.settings.retention_ms < now_ms - stamp
    )


def _below_start(segments: Sequence[Segment], start: int) -> int:
    return sum(1 for after in segments[1:] if after.base <= start)


def _beyond_size(segments: Sequence[Segment], bytes_max: int) -> int:
    """How many of the oldest make the log too large, without any of which it still is not small."""
    if bytes_max < 0:
        return 0
    excess = sum(segment.size for segment in segments) - bytes_max
    gone = 0
    for segment in segments:
        excess -= segment.size
        if excess < 0:
            break
        gone += 1
    return gone


def _beyond_age(segments: Sequence[Segment], age_max_ms: int, now_ms: int) -> int:
    if age_max_ms < 0:
        return 0
    gone = 0
    for segment in segments:
        stamp = segment.largest_timestamp()
        if now_ms - (stamp if stamp >= 0 else segment.written_ms()) <= age_max_ms:
            break
        gone += 1
    return gone


def _end_of(
    log: Log, segments: Sequence[Segment], gone: int, high_watermark: int, now_ms: int
) -> int:
    """Where the log starts without so many of its segments."""
    ends = [after.base for after in segments[1:]] + [log.end]
    while gone and ends[gone - 1] > high_watermark:
        gone -= 1
    if gone == len(segments) and not segments[-1].size:
        gone -= 1  # an empty segment is where the next record goes
    if not gone:
        return log.start
    if gone == len(segments):
        log.roll(now_ms)
    return ends[gone - 1]


class Sweep:
    """One look at all logs, some at a time, so that ten thousand disturb nobody."""

    def __init__(self, logs: Iterable[tuple[Log, int]]) -> None:
        """Each log with its high watermark."""
        self._logs: Iterator[tuple[Log, int]] = iter(logs)
        self.done = False

    def step(self, now_ms: int, on_trouble: Callable[[Log, str], None]) -> dict[Log, int]:
        """The next logs' new starts, of those that have one."""
        found: dict[Log, int] = {}
        for _ in range(LOGS_PER_STEP):
            entry = next(self._logs, None)
            if entry is None:
                self.done = True
                break
            log, high_watermark = entry
            try:
                log.expire_producers(now_ms)
                start = wanted_start(log, high_watermark, now_ms)
            except CorruptError as error:
                on_trouble(log, str(error))
                continue
            if start > log.start:
                found[log] = start
        return found
