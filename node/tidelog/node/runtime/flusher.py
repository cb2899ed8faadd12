"""Syncs sealed segments, writes checkpoints and removes deleted files, in a thread. A shell.

One round at a time: the loop collects what is to be done, a thread does it, the loop notes it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Syncable
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.log.directory import Checkpoint, LogDirectory, Removal
from tidelog.node.log.kept import KeptFile
from tidelog.node.log.log import Log
from tidelog.node.log.shortages import is_full, is_shortage
from tidelog.node.runtime.group_commit import NO_FLUSH, SHORT_AGAIN_S, LastFlush

HighWatermarks = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round does, collected on the loop so that the thread touches no log."""

    flushes: tuple[tuple[Log, int, tuple[Syncable, ...]], ...]
    """Log, up to which offset, its files."""
    removals: tuple[Removal, ...]
    checkpoint: Checkpoint | None
    kept: KeptFile | None


class Flusher:
    """The background work of a log directory.

    Invariant: at most one round is under way. The first sync that fails is the directory's end
    (the kernel may have dropped the pages): `on_failure` is called, nothing is tried again. A full
    disk is not: the checkpoints in force stay, and the next round tries again. Nor is a lack of
    descriptors: the same round is done once more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: LogDirectory,
        on_failure: Callable[[OSError], None],
        on_full: Callable[[OSError], None],
        on_unreadable: Callable[[Log, Exception], None],
    ) -> None:
        self._loop = loop
        self._logs = logs
        self._on_failure = on_failure
        self._on_full = on_full
        """Told once, and again after it went well in between; of descriptors each time."""
        self._on_unreadable = on_unreadable
        """Told of a log that could not be flushed, for it could not even be read."""
        self._flushed_all = True
        """Whether the last round, which flushes everything, could do so."""
        self._full = False
        self.last = NO_FLUSH
        """Of logs; checkpoints are none."""
        self._begun = Instant(0)
        self._under_way = False
        self._abandoned = False
        self._after: Callable[[], None] | None = None
        self._asked: list[Callable[[bool], None]] = []
        self._answering: list[Callable[[bool], None]] = []
        """Who asked for the round under way."""

    def turn(self, high_watermarks: HighWatermarks | None) -> None:
        """Begin a round if there is anything to do; with high watermarks it writes checkpoints."""
        if not self._under_way and not self._abandoned:
            self._begin(self._collect(high_watermarks, everything=False))

    def checkpoint(self, done: Callable[[bool], None]) -> None:
        """Write the checkpoints without waiting for their turn; `done` gets whether they are in
        force: then no kill takes back what they say. A round under way has begun too early."""
        if self._abandoned:
            done(False)  # noqa: FBT003 -- they never will be
            return
        self._asked.append(done)
        if not self._under_way:
            self._begin_asked()

    def abandon(self) -> None:
        """The directory is at its end: nothing is touched again, and nobody waits in vain."""
        if not self._abandoned:
            self._abandoned = True
            self._end_all()

    def _end_all(self) -> None:
        waiting, self._answering, self._asked = [*self._answering, *self._asked], [], []
        for done in waiting:
            done(False)  # noqa: FBT003 -- as it was asked
        after, self._after = self._after, None
        if after is not None:
            after()

    def close(
        self, high_watermarks: Callable[[], HighWatermarks], *, sync: bool, done: Callable[[], None]
    ) -> None:
        """Once the round under way is over: flush all if asked, else what a flush policy bounds;
        close every log, leave the mark."""

        def finish() -> None:
            if not self._abandoned:
                try:
                    self._logs.close_clean(high_watermarks(), synced=sync and self._flushed_all)
                except OSError as error:
                    self._on_full(error)  # no mark: the next start reads everything
            done()

        def last_round() -> None:
            if self._abandoned:
                done()
                return
            self._after = finish
            self._flushed_all = True
            self._begin(self._collect(None, everything=sync, is_last=True))

        if self._under_way:
            self._after = last_round
        else:
            last_round()

    def _collect(
        self, high_watermarks: HighWatermarks | None, *, everything: bool, is_last: bool = False
    ) -> _Round:
        wanted = dict(self._sealed())
        if everything or is_last:
            # Whoever is stopped for a while cannot keep to a limit of time or of records.
            wanted |= {log: log.end for log in self._logs if everything or log.owes_flush}
        checkpoint = None
        if high_watermarks is not None:
            checkpoint = self._logs.checkpoint(high_watermarks)
            if not checkpoint.tables:
                checkpoint = None
        return _Round(
            flushes=tuple(self._flushes(wanted.items(), everything=everything)),
            removals=tuple(self._logs.take_removals()),
            checkpoint=checkpoint,
            kept=self._logs.take_kept(),
        )

    def _flushes(
        self, wanted: Iterable[tuple[Log, int]], *, everything: bool
    ) -> Iterator[tuple[Log, int, tuple[Syncable, ...]]]:
        """What each of these logs must have synced. One that there is no descriptor for has its
        turn in the next round, unless all must be flushed. One that cannot be read is left out: the
        other logs are flushed all the same."""
        for log, upto in wanted:
            try:
                files = (*log.dirty_files(upto), *(log.settle() if everything else ()))
            except (CorruptError, OSError) as failure:
                if isinstance(failure, OSError) and is_shortage(failure) and not everything:
                    self._logs.rolled(log.name)
                    self._on_full(failure)
                else:
                    self._flushed_all = False
                    self._on_unreadable(log, failure)
            else:
                yield log, upto, files

    def _sealed(self) -> list[tuple[Log, int]]:
        """Whose sealed segments are to be flushed. What is flushed as it comes needs no second
        flush; and one that is in a round waits for its end."""
        rolled = self._logs.take_rolled()
        for log in rolled:
            if log.dirty.in_round:
                self._logs.rolled(log.name)
        return [
            (log, log.sealed_end)
            for log in rolled
            if not (log.dirty.in_round or log.settings.flush.commit)
        ]

    def _begin_asked(self) -> None:
        self._answering, self._asked = self._asked, []
        self._begin(self._collect({}, everything=False))

    def _begin(self, work: _Round) -> None:
        if not (work.flushes or work.removals or work.checkpoint or work.kept):
            self._ended()
            return
        self._under_way = True
        self._begun = Instant(time.monotonic_ns())
        for log, _, _ in work.flushes:
            log.dirty.in_round = True
        self._run(work)

    def _run(self, work: _Round) -> None:
        if self._abandoned:
            return
        future = self._loop.run_in_executor(None, _perform, work)
        future.add_done_callback(lambda done: self._performed(work, done))

    def _performed(self, work: _Round, done: "asyncio.Future[OSError | None]") -> None:
        short = done.exception()
        if isinstance(short, OSError) and is_shortage(short) and not self._abandoned:
            self._on_full(short)
            self._loop.call_later(SHORT_AGAIN_S, self._run, work)
            return
        self._under_way = False
        if self._abandoned:
            return
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        try:
            if error is not None:
                raise error
            now = Instant(time.monotonic_ns())
            for log, upto, _ in work.flushes:
                log.dirty.in_round = False
                log.flushed(upto)
                log.dirty.missed()
                log.look_for_flush(now)
            if work.flushes:
                self.last = LastFlush(now, now - self._begun)
            full = done.result()
            if work.kept is not None:
                self._logs.kept.ended(well=full is None)
            self._settle_checkpoint(work.checkpoint, full)
        except OSError as failure:
            self._on_failure(failure)
            self.abandon()
            return
        self._ended()

    def _settle_checkpoint(self, checkpoint: Checkpoint | None, full: OSError | None) -> None:
        if checkpoint is None:
            return
        if full is None:
            self._logs.checkpointed(checkpoint)
        elif not self._full:
            self._on_full(full)
        self._full = full is not None

    def _ended(self) -> None:
        answering, self._answering = self._answering, []
        for done in answering:
            done(not self._full)
        after, self._after = self._after, None
        if after is not None:
            after()
        elif self._asked and not self._under_way:
            self._begin_asked()


def _perform(work: _Round) -> OSError | None:
    """In a thread. Each file and directory once, files first, as they were named.

    What was raised is fatal; what is returned says that there was no room for the checkpoints.
    """
    for _, _, files in work.flushes:
        for dirty in files:
            # A topic deleted meanwhile took its files along: there is nothing left to keep.
            with contextlib.suppress(FileNotFoundError):
                dirty.sync()
    for removal in work.removals:
        with contextlib.suppress(FileNotFoundError):  # removed when the round was tried before
            removal.run()
    small = [file for file in (work.kept, work.checkpoint) if file is not None]
    for file in small:
        try:
            file.write()
        except OSError as error:
            if not is_full(error):
                raise
            return error
    return None
