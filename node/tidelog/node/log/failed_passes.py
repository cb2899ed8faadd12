"""Which logs compaction leaves alone for a while, because passes over them failed. Pure.

One log that cannot be compacted must not keep the others waiting: after each failure it pauses for
twice as long as before, and the others go on. Logs are known by topic id, so a topic that is made
again under an old name begins without a record.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from tidelog.node.log.causes import Cause
from tidelog.node.log.contracts import LogName
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings

PAUSE_MS_FIRST: Final = 15_000
PAUSE_MS_MAX: Final = 3_600_000
OVERTAKEN_PAUSE_MS_FIRST: Final = 1_000
OVERTAKEN_PAUSE_MS_MAX: Final = 60_000
TOLD_AGAIN_MS: Final = 86_400_000
"""A failure that lasts is told once a day: the lines of a busy process log do not last longer."""


class Failure(Struct, frozen=True):
    """What is told of a pass that failed."""

    cause: Cause
    reason: str
    segment: int = -1
    """The base offset of the segment that is damaged; -1 where it is another cause."""


class FailedPass(Struct):
    """A log that is left alone, and why."""

    name: LogName
    failure: Failure | None
    """None while its passes were only overtaken by something else that was done to the log."""
    tries: int
    again_ms: int
    told_ms: int
    end: int
    """Once the log's start reaches this offset, what could not be compacted is gone."""
    settings: LogSettings


class FailedPasses:
    """Invariant: at most one entry for each log that this broker compacts."""

    def __init__(self) -> None:
        self._by_log: dict[LogName, FailedPass] = {}

    def failed(self, log: Log, now_ms: int, failure: Failure, end: int) -> bool:
        """A pass failed, for what lies below `end`; whether to tell of it."""
        before = self._by_log.get(log.name)
        known = None if before is None else before.failure
        is_news = before is None or known is None or known.cause != failure.cause
        tries = 1 if before is None or known is None else before.tries + 1
        told_ms = now_ms if before is None or is_news else before.told_ms
        is_told = is_news or now_ms - told_ms >= TOLD_AGAIN_MS
        self._by_log[log.name] = FailedPass(
            log.name,
            failure,
            tries,
            now_ms + pause_ms(tries, PAUSE_MS_FIRST, PAUSE_MS_MAX),
            now_ms if is_told else told_ms,
            end,
            log.settings,
        )
        return is_told

    def overtaken(self, log: Log, now_ms: int) -> None:
        """The log changed under a pass: nothing is wrong with it, but try a little later."""
        before = self._by_log.get(log.name)
        if before is not None and before.failure is not None:
            before.again_ms = now_ms + OVERTAKEN_PAUSE_MS_FIRST
            return
        tries = 1 if before is None else before.tries + 1
        pause = pause_ms(tries, OVERTAKEN_PAUSE_MS_FIRST, OVERTAKEN_PAUSE_MS_MAX)
        self._by_log[log.name] = FailedPass(
            log.name, None, tries, now_ms + pause, now_ms, log.end, log.settings
        )

    def is_paused(self, log: Log, now_ms: int) -> bool:
        """Whether it is too early for another pass over this log.

        A change of the topic's settings ends the pause: it may be what was wrong.
        """
        found = self._by_log.get(log.name)
        return found is not None and now_ms < found.again_ms and found.settings == log.settings

    def forget(self, name: LogName) -> bool:
        """It was compacted, or cannot fail any more; whether its failure was told."""
        found = self._by_log.pop(name, None)
        return found is not None and found.failure is not None

    def outlived(self, compacted: Iterable[Log]) -> list[LogName]:
        """Failures that are over: the log, its policy or the offsets that failed are gone."""
        starts = {log.name: log.start for log in compacted} if self._by_log else {}
        return [
            name
            for name, found in self._by_log.items()
            if name not in starts or starts[name] >= found.end
        ]

    def __iter__(self) -> Iterator[FailedPass]:
        """Those whose failure was told."""
        return (found for found in self._by_log.values() if found.failure is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def pause_ms(tries: int, first: int, most: int) -> int:
    """Twice as long after each try.

    >>> [pause_ms(tries, 15_000, 3_600_000) for tries in (1, 2, 3, 9, 1000)]
    [15000, 30000, 60000, 3600000, 3600000]
    """
    return min(first << min(tries - 1, 20), most)
