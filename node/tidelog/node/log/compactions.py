"""Which log a broker compacts next, and what becomes of one whose pass fails. Pure.

A failure concerns one log: the others go on. It is told once, through `tell`, and once more when it
is over.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError, FailedSyncError
from tidelog.node.log.causes import Cause
from tidelog.node.log.cleaner import Candidate, candidate, filthiest
from tidelog.node.log.contracts import LogName
from tidelog.node.log.failed_passes import FailedPasses, Failure
from tidelog.node.log.log import Log

Tell = Callable[[LogName, Failure | None], None]
"""None: the log is compacted again, or need not be any more."""


class Compacted(NamedTuple):
    """A log that its topic's settings want compacted."""

    log: Log
    cleaned: int | None
    """Up to where it was compacted; None where it never was."""
    high_watermark: int


class Compactions:
    """Invariant: `len` is the number of logs whose failure was told and is not over."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._failed = FailedPasses()

    def __len__(self) -> int:
        return len(self._failed)

    def next(self, compacted: Iterable[Compacted], now_ms: int) -> Candidate | None:
        """The filthiest log of those that are due and not paused."""
        rows = list(compacted)
        for name in self._failed.outlived(row.log for row in rows):
            self._forget(name)
        return filthiest(self._candidates(rows, now_ms))

    def _candidates(self, rows: Iterable[Compacted], now_ms: int) -> Iterator[Candidate]:
        for log, cleaned, high_watermark in rows:
            if self._failed.is_paused(log, now_ms):
                continue
            try:
                log.maybe_roll(now_ms)
                found = candidate(log, cleaned, high_watermark, now_ms)
            except FailedSyncError:
                raise  # the end of the log directory
            except (CorruptError, OSError) as error:
                self._note(log, now_ms, failure_of(error), log.end + 1)
            else:
                if found is not None:
                    yield found

    def passed(self, found: Candidate) -> None:
        """A pass over it came to its end."""
        self._forget(found.log.name)

    def failed(self, found: Candidate, done: int, failure: Failure, now_ms: int) -> bool:
        """A pass failed after it had replaced all below `done`; False if the log had only changed
        under it, so that what it read was no longer the log."""
        log = found.log
        if is_overtaken(found, done):
            self._failed.overtaken(log, now_ms)
            return False
        ends = {one.base: one.end for one in found.cleanable}
        end = ends.get(failure.segment, found.cleanable[-1].end)
        self._note(log, now_ms, failure, end)
        return True

    def overtaken(self, found: Candidate, now_ms: int) -> None:
        """What a pass made could not be used, for the log had changed meanwhile."""
        self._failed.overtaken(found.log, now_ms)

    def _note(self, log: Log, now_ms: int, failure: Failure, end: int) -> None:
        if self._failed.failed(log, now_ms, failure, end):
            self._tell(log.name, failure)

    def _forget(self, name: LogName) -> None:
        if self._failed.forget(name):
            self._tell(name, None)


def is_overtaken(found: Candidate, done: int) -> bool:
    """Whether segments of a pass were removed or cut since it was ordered, beside those below
    `done`, which it has replaced itself."""
    log = found.log
    if log.cuts != found.cuts:
        return True
    now = {segment.base: segment for segment in log.segments}
    return any(now.get(one.base) is not one for one in found.cleanable if one.base >= done)


def failure_of(error: CorruptError | OSError) -> Failure:
    """What is told of an error."""
    if isinstance(error, FileNotFoundError):
        return Failure(Cause.DAMAGED, str(error))
    if isinstance(error, OSError):
        return Failure(Cause.DISK, str(error))
    name = error.file.rpartition("/")[2].partition(".")[0]
    return Failure(Cause.DAMAGED, str(error), int(name) if name.isdecimal() else -1)
