"""Begins the flush rounds of a log directory and ends them, on the event loop. A shell."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.instant import Instant
from tidelog.node.log.log import Log
from tidelog.node.log.rounds import Round, Rounds
from tidelog.node.log.shortages import is_shortage
from tidelog.node.runtime.alarm import Alarm
from tidelog.node.runtime.flush_threads import FlushThreads


class Heard(NamedTuple):
    """Whom it tells."""

    flushed: Callable[[Instant, Sequence[Log]], None]
    failed: Callable[[OSError], None]
    unreadable: Callable[[Log, Exception], None]
    short: Callable[[OSError], None] = lambda _failure: None
    """Told that a round waits, for there are too few descriptors: some should be given back."""


class LastFlush(NamedTuple):
    """One that went well."""

    at: Instant
    """When it was over."""
    took_ns: int
    """From when it was begun until the loop heard of its end."""


SHORT_AGAIN_S: Final = 0.5
"""So long a round waits for descriptors."""
_SHORT_AGAIN_NS: Final = int(SHORT_AGAIN_S * 1e9)
NO_FLUSH: Final = LastFlush(Instant(0), 0)


class GroupCommit:
    """Invariant: what is wanted while no round is under way begins with the next turn of the loop,
    so that all that came in this one is in it; what comes during a round begins when it ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rounds: Rounds,
        threads: FlushThreads,
        heard: Heard,
    ) -> None:
        self._loop = loop
        self._rounds = rounds
        self._threads = threads
        self._heard = heard
        self._alarm = Alarm(loop, self._ring)
        self._soon = False
        self._after: Callable[[], None] | None = None
        self._over = self._abandoned = False
        self.count = 0
        """Rounds that ended well."""
        self.last = NO_FLUSH
        self._begun = Instant(0)
        rounds.wake = self.wake

    def wake(self, when: Instant) -> None:
        """A round is wanted then."""
        if self._soon or self._over:
            return
        if when <= time.monotonic_ns():
            self._soon = True
            self._loop.call_soon(self._begin)
        else:
            self._alarm.set(when)

    def _ring(self, now: Instant) -> Instant | None:
        self.wake(now)
        return None

    def _begin(self) -> None:
        self._soon = False
        if self._over or self._rounds.is_under_way:
            return
        self._begun = Instant(time.monotonic_ns())
        work = self._rounds.begin(self._begun)
        self._tell_unreadable()
        if work is None:
            self._look_ahead()
        elif work.chains or work.last:
            self._threads.flush(work, partial(self._done, work))
        else:
            self._ended(None)

    def _tell_unreadable(self) -> None:
        failed, self._rounds.failed = self._rounds.failed, []
        for log, failure in failed:
            if isinstance(failure, OSError) and is_shortage(failure):
                # Else who waits for this flush would wait for the log's next batch.
                self._heard.short(failure)
                self._rounds.want(log, Instant(self._begun + _SHORT_AGAIN_NS))
            else:
                self._heard.unreadable(log, failure)

    def _look_ahead(self) -> None:
        # Not after this very moment: what became due since the round was looked for would wait for
        # whoever is appended to next.
        deadline = self._rounds.next_after(self._begun)
        if deadline is not None:
            self._alarm.set(deadline)

    def _done(self, work: Round, failure: BaseException | None) -> None:
        if isinstance(failure, OSError) and is_shortage(failure) and not self._abandoned:
            self._heard.short(failure)
            self._loop.call_later(SHORT_AGAIN_S, self._again, work)
            return
        if self._abandoned or failure is not None:
            work.let_go()
        if failure is None:
            now = Instant(time.monotonic_ns())
            self.last = LastFlush(now, now - self._begun)
        if not self._abandoned:
            self._ended(failure)

    def _again(self, work: Round) -> None:
        """No sync of it has failed, and none is claimed: all of it is done once more."""
        if self._abandoned:
            work.let_go()
        else:
            self._threads.flush(work, partial(self._done, work))

    def _ended(self, failure: BaseException | None) -> None:
        if isinstance(failure, OSError):
            # The kernel may have dropped the pages, and would say next time that all is well.
            self.abandon()
            self._heard.failed(failure)
            return
        if failure is not None:
            raise failure
        now = Instant(time.monotonic_ns())
        logs = self._rounds.ended(now)
        self.count += 1
        self._heard.flushed(now, logs)
        if self._over:
            self._tell_over()
        elif not self._soon:
            # Not at once: what has come by now is taken along, and who was answered asks again.
            self._soon = True
            self._loop.call_soon(self._begin)

    def abandon(self) -> None:
        """The directory is at its end: nothing is touched again."""
        self._over = self._abandoned = True
        self._alarm.cancel()
        self._tell_over()

    def stop(self, done: Callable[[], None]) -> None:
        """Begin no round any more; `done` when the one under way is over."""
        self._over = True
        self._after = done
        self._alarm.cancel()
        if self._abandoned or not self._rounds.is_under_way:
            self._tell_over()

    def _tell_over(self) -> None:
        after, self._after = self._after, None
        if after is not None:
            after()
