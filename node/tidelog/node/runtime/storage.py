"""The log directories of a broker, each with its lock and with who keeps it. A shell.

Each has a flusher, a retention and a cleaner of its own, so that a slow or full disk holds up what
lies on it and nothing else. The first failure that is not just a lack of room is a directory's end;
the last directory's end is the broker's.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from msgspec.structs import replace

from tidelog.kernel.failures import CorruptError, FailedSyncError
from tidelog.kernel.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import ROOM_BYTES_MIN
from tidelog.node.api.broker import Space, Volume
from tidelog.node.log.contracts import LogName
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.failed_passes import Failure
from tidelog.node.log.log import Log
from tidelog.node.log.ownership import Owner
from tidelog.node.log.rounds import want_what_was_left
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.shortages import FULL, SHORT, is_shortage
from tidelog.node.replica.replicas import Replicas
from tidelog.node.runtime.cache_keeper import CacheKeeper, Kept
from tidelog.node.runtime.cleaner_thread import CleanerParts, CleanerThread, Retention
from tidelog.node.runtime.disk import DirectoryLock, DiskDirectory, probe
from tidelog.node.runtime.flush_threads import FlushThreads
from tidelog.node.runtime.flusher import Flusher, HighWatermarks
from tidelog.node.runtime.group_commit import NO_FLUSH, GroupCommit, Heard, LastFlush
from tidelog.node.runtime.process import EventLog

_NO_FAULT_OF_THE_DISK: Final = FULL | SHORT
_PROBE_AGAIN_S: Final = 1.0
_RESTING_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class StorageParts:
    """What it needs of the broker."""

    loop: asyncio.AbstractEventLoop
    replicas: Replicas
    settings: Mapping[str, Any]
    """Live: a change counts from the next turn on."""
    log: EventLog
    wall_ms: Callable[[], int]
    begins_later: Callable[[TopicPartition], None]
    """Told of a partition whose oldest records went: who waits for them must look again."""
    high_watermarks: Callable[[Iterable[TopicPartition]], HighWatermarks]
    on_lost: Callable[[list[TopicPartition]], None]
    """Told which replicas a directory took with it."""
    on_last_failed: Callable[[OSError], None]
    on_flushed: Callable[[Instant, TopicPartition], None]
    """Told of each log that a round flushed."""
    on_unreadable: Callable[[TopicPartition, Exception], None]
    """Told of a log that was to be flushed and could not even be read."""
    on_compaction: Callable[[LogName, Failure | None], None]
    """Told of a log that cannot be compacted, and with None when that is over."""


class _Kept:
    """One directory and its keepers. It is also what request handlers see of it."""

    def __init__(
        self,
        logs: LogDirectory,
        flusher: Flusher,
        commits: GroupCommit,
        cache: CacheKeeper,
        cleaner_parts: CleanerParts,
    ) -> None:
        self.logs = logs
        self.flusher = flusher
        self.commits = commits
        self._faults = cleaner_parts.faults
        self.cache = cache
        self.retention = Retention(cleaner_parts)
        self.cleaner = CleanerThread(cleaner_parts)
        self.path = os.path.abspath(logs.path)  # noqa: PTH100 -- a text for an answer
        self.probe_at = 0.0
        """Not before: one look at a time, and not many."""
        self.is_syncing = False
        """Whether directories at rest are being synced."""

    def space(self) -> Space:
        if self.logs.failure is not None:
            raise self.logs.failure
        volume = os.statvfs(self.path)
        # Not all that is free may be used: some of it is kept for the machine's owner.
        free = 0 if self._faults.is_full(self.logs.path) else volume.f_bavail * volume.f_frsize
        return Space(volume.f_blocks * volume.f_frsize, free)

    def holds(self, key: TopicPartition) -> bool:
        return key in self.logs

    def close(self) -> None:
        self.cleaner.close()
        self.flusher.abandon()
        self.commits.abandon()
        self.cache.abandon()


class Storage:
    """Invariant: what one directory does or fails to do reaches the logs of no other."""

    def __init__(self, parts: StorageParts, places: Iterable[DiskDirectory], owner: Owner) -> None:
        self._parts = parts
        self._locks: list[DirectoryLock] = []
        self._places = {
            LogDirectory(place, replace(owner, directory_id=new_uuid())): place for place in places
        }
        self.logs = LogDirectories([*self._places])
        self._kept: dict[LogDirectory, _Kept] = {}

    def open(self, defaults: LogSettings) -> None:
        """CannotStartError, or OSError, where no directory can be used or one must not be."""
        for one, place in self._places.items():
            self._lock(one, place)
        # The topics' own settings come with the metadata; recovery needs none of them.
        self.logs.open(lambda _topic: defaults, time.time_ns() // 1_000_000)
        for path in self.logs.strays:
            advice = "remove it, once nothing in it is missed"
            self._parts.log.warning("stray_log_put_aside", path=path, advice=advice)
        for one in self.logs.all:
            self._kept[one] = self._keep(one)
            if one.failure is not None:
                self._tell(one)
            else:
                want_what_was_left(one, Instant(time.monotonic_ns()))

    def _lock(self, directory: LogDirectory, place: DiskDirectory) -> None:
        try:
            self._locks.append(DirectoryLock(place))
        except OSError as failure:
            directory.fail(failure)

    def _keep(self, logs: LogDirectory) -> _Kept:
        parts = self._parts

        def failed(failure: OSError) -> None:
            if is_shortage(failure):
                self._full(logs, failure)
            else:
                self._failed(logs, failure)

        def unreadable(log: Log, error: Exception) -> None:
            parts.on_unreadable(log.name.key, error)

        flusher = Flusher(
            parts.loop, logs, failed, lambda error: self._full(logs, error), unreadable
        )
        cleaner_parts = CleanerParts(
            loop=parts.loop,
            logs=logs,
            share=1 / len(self.logs.all),
            replicas=parts.replicas,
            settings=parts.settings,
            flusher=flusher,
            wall_ms=parts.wall_ms,
            log=parts.log,
            on_disk_failed=failed,
            on_refused=lambda error: self._refused(logs, error),
            on_unreadable=unreadable,
            ledger=self._places[logs].ledger,
            faults=self._places[logs].faults,
            begins_later=parts.begins_later,
            on_compaction=parts.on_compaction,
        )
        heard = Heard(
            flushed=self._flushed,
            failed=failed,
            unreadable=unreadable,
            short=lambda error: self._full(logs, error),
        )
        threads = FlushThreads(parts.loop, logs.path.rpartition("/")[2])
        commits = GroupCommit(parts.loop, logs.rounds, threads, heard)
        cache = CacheKeeper(parts.loop, logs, failed)
        return _Kept(logs, flusher, commits, cache, cleaner_parts)

    def _flushed(self, now: Instant, logs: Sequence[Log]) -> None:
        on_flushed = self._parts.on_flushed
        for log in logs:
            on_flushed(now, log.name.key)

    def _working(self) -> list[_Kept]:
        return [self._kept[one] for one in self.logs.working]

    # -- now and then

    def turn(self, *, checkpoint: bool) -> None:
        """Begin a round of each flusher that has something to do."""
        for kept in self._working():
            waters = None
            if checkpoint:
                waters = self._parts.high_watermarks(kept.logs.unsettled())
            kept.flusher.turn(waters)

    def keep_small(self, *, compact: bool) -> None:
        """Retention, and compaction where asked."""
        now_ms = self._parts.wall_ms()
        for kept in self._working():
            try:
                kept.retention.turn(now_ms)
                if compact:
                    kept.cleaner.turn(now_ms)
            except OSError as error:
                self._refused(kept.logs, error)

    def keep_cache(self, now: Instant) -> None:
        """Hold logs to what their topics want of the page cache."""
        for kept in self._working():
            kept.cache.turn(now)

    def keep_house(self, resting_ns: int = _RESTING_NS) -> None:
        """Roll segments that are too old though nothing is written, remove files let go of, sync
        directories that were not changed for so long if files are kept until they are synced."""
        now_ms = self._parts.wall_ms()
        for kept in self._working():
            try:
                for log in kept.logs:
                    self._roll_aged(log, now_ms)
                kept.logs.purge(now_ms)
            except OSError as error:
                self._refused(kept.logs, error)
            self._sync_resting(kept, resting_ns)

    def _roll_aged(self, log: Log, now_ms: int) -> None:
        """A log that cannot be read is told of, and the others have their turn."""
        try:
            log.maybe_roll(now_ms)
        except CorruptError as error:
            self._parts.on_unreadable(log.name.key, error)

    def _sync_resting(self, kept: _Kept, resting_ns: int) -> None:
        if kept.is_syncing or kept.logs.failure is not None:
            return
        kept.is_syncing = True
        sync = self._places[kept.logs].sync_resting
        future = self._parts.loop.run_in_executor(None, sync, resting_ns)
        future.add_done_callback(lambda done: self._synced_resting(kept, done))

    def _synced_resting(self, kept: _Kept, done: "asyncio.Future[int]") -> None:
        kept.is_syncing = False
        error = done.exception()
        if isinstance(error, OSError):
            self._doubt_all_of(kept.logs, error)
        elif error is not None:
            raise error

    @property
    def flushes(self) -> int:
        """Rounds since the start, of all directories."""
        return sum(kept.commits.count for kept in self._kept.values())

    @property
    def not_compacted(self) -> int:
        """How many logs cannot be compacted at the moment."""
        return sum(kept.cleaner.failing for kept in self._working())

    @property
    def last_flush(self) -> LastFlush:
        """The latest of all directories, by a round or of sealed segments."""
        both = (one.last for kept in self._kept.values() for one in (kept.commits, kept.flusher))
        return max(both, default=NO_FLUSH)

    @property
    def cache(self) -> Kept:
        """Of all directories."""
        return reduce(Kept.plus, (kept.cache.done for kept in self._kept.values()), Kept())

    # -- what handlers ask

    def has_space(self, key: TopicPartition) -> bool:
        """Whether the disk that a log lies on says that there is some."""
        directory = self.logs.directory_of(key)
        if directory is None or directory.failure is not None:
            return True  # nothing is written there any more
        try:
            return self._kept[directory].space().usable_bytes >= ROOM_BYTES_MIN
        except OSError:
            return False  # it will show at the next append

    def volumes(self) -> list[Volume]:
        return list(self._kept.values())

    def keep_starts(self, done: Callable[[bool], None]) -> None:
        """`done` gets whether the starts of all logs that work are on disk."""
        working = self._working()
        answers: list[bool] = []

        def one_kept(is_kept: bool) -> None:  # noqa: FBT001 -- the flusher calls it
            answers.append(is_kept)
            if len(answers) == len(working):
                done(all(answers))

        for kept in working:
            kept.flusher.checkpoint(one_kept)

    # -- failures

    def doubt(self, key: TopicPartition, failure: Exception) -> None:
        """A log could not be read or written: perhaps nothing there can."""
        directory = self.logs.directory_of(key)
        if directory is not None and isinstance(failure, OSError):
            self._doubt_all_of(directory, failure)

    def _doubt_all_of(self, directory: LogDirectory, failure: OSError) -> None:
        kept, now = self._kept[directory], self._parts.loop.time()
        if directory.failure is not None:
            return
        if isinstance(failure, FailedSyncError):
            self._failed(directory, failure)  # whatever a look at it would say now
            return
        if failure.errno in _NO_FAULT_OF_THE_DISK:
            return
        if now < kept.probe_at:
            return
        kept.probe_at = now + _PROBE_AGAIN_S
        faults = self._places[directory].faults
        looking = self._parts.loop.run_in_executor(None, probe, directory.path, faults)
        looking.add_done_callback(lambda done: self._probed(directory, done))

    def _probed(self, directory: LogDirectory, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if isinstance(error, OSError):
            if error.errno not in _NO_FAULT_OF_THE_DISK:
                self._failed(directory, error)
        elif error is not None:
            raise error

    def _failed(self, directory: LogDirectory, failure: OSError) -> None:
        self.logs.fail(directory, failure)
        self.look()

    def look(self) -> None:
        """See to the directories that failed since the last look."""
        while failed := self.logs.take_failed():
            for directory in failed:
                self._tell(directory)
                self._kept[directory].close()
                if not self.logs.working:
                    assert directory.failure is not None
                    self._parts.on_last_failed(directory.failure)
                self._parts.on_lost(directory.keys())
            self.logs.write_marks()

    def _tell(self, directory: LogDirectory) -> None:
        self._parts.log.error(
            "log_directory_failed",
            path=directory.path,
            reason=str(directory.failure),
            advice="mend or replace its disk, then start the broker again",
        )

    def _refused(self, directory: LogDirectory, error: OSError) -> None:
        if not isinstance(error, FailedSyncError):
            self._full(directory, error)
        self._doubt_all_of(directory, error)

    def _full(self, directory: LogDirectory, error: OSError) -> None:
        """Nothing is lost: reads go on, produces are refused, and what failed is tried again."""
        if is_shortage(error):
            self._places[directory].give_back_descriptors()
            advice = "raise the limit of open files (ulimit -n), or have fewer connections"
            self._parts.log.warning(
                "few_descriptors", path=directory.path, reason=str(error), advice=advice
            )
            return
        self._parts.log.warning(
            "disk_full", path=directory.path, reason=str(error), advice="free some space"
        )

    # -- the end

    def stop_cleaning(self) -> None:
        for kept in self._working():
            kept.cleaner.close()

    def close(self, *, sync: bool, done: Callable[[], None]) -> None:
        """Once every round under way is over: flush all if asked, close every log, leave marks."""
        waiting = set(self._working())
        if not waiting:
            done()
        for kept in waiting:
            kept.cache.abandon()
        for kept in tuple(waiting):
            self._close_one(kept, waiting, sync=sync, done=done)

    def _close_one(
        self, kept: _Kept, waiting: set[_Kept], *, sync: bool, done: Callable[[], None]
    ) -> None:
        def high_watermarks() -> HighWatermarks:
            return self._parts.high_watermarks(kept.logs.unsettled())

        def closed() -> None:
            waiting.discard(kept)
            if not waiting:
                done()

        def no_more_rounds() -> None:
            kept.flusher.close(high_watermarks, sync=sync, done=closed)

        kept.commits.stop(no_more_rounds)


def new_uuid() -> Uuid:
    """A random id whose text no command line takes for a flag."""
    while True:
        made = Uuid(os.urandom(16))
        if made != ZERO_UUID and not uuid_text(made).startswith("-"):
            return made
