"""The log directories of a simulated broker, kept as its shell keeps them, but in no thread."""

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, flush
from harness.machines.controllers import CLUSTER
from harness.simulation.world import World
from tidelog.kernel.failures import FailedSyncError
from tidelog.kernel.ids import BrokerId, Incarnation, TopicPartition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.kept import KeptFile
from tidelog.node.log.ownership import Owner
from tidelog.node.log.rounds import Round, want_what_was_left
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.shortages import FULL, is_full

FLUSH_TAKES_MS = (0.1, 0.1, 0.3, 1.0, 20.0)


class LastDirectoryFailed(BaseException):
    """As the shell, which ends its process then."""


class _Process(Protocol):
    me: BrokerId
    alive: bool

    @property
    def world(self) -> World: ...


def lives_on(process: _Process, action: Callable[[], None]) -> bool:
    """Whether it still lives when it has done that."""
    try:
        action()
    except LastDirectoryFailed:
        process.world.kill(process.me)
    return process.alive


class Loop(NamedTuple):
    """What it needs of its broker's."""

    now: Callable[[], Instant]
    at: Callable[[Instant, Callable[[], None]], None]
    """Have something done in a turn of its own, if the broker still lives."""
    flushed: Callable[[TopicPartition], None]


class SimulatedStorage:
    """Of one life of a broker."""

    def __init__(
        self,
        disk: MemoryDisk,
        me: BrokerId,
        incarnation: Incarnation,
        *,
        disk_generation: int,
        directories: int,
        on_lost: Callable[[list[TopicPartition]], None],
        loop: Loop,
    ) -> None:
        self._disk = disk
        self._on_lost = on_lost
        self._loop = loop
        self._rng = Random(me << 16 | incarnation)
        self._held: list[Callable[[], None]] | None = None
        self._writing: set[LogDirectory] = set()
        """What becomes of the file of kept logs is not known yet."""
        self._under_way: dict[LogDirectory, Sequence[Callable[[], None]]] = {}

        def directory(number: int) -> LogDirectory:
            made = b"log%02d-%02d-%d" % (me, number, incarnation)
            owner = Owner(
                cluster_id=CLUSTER,
                node_id=me,
                boot_id="boot-1",
                disk_generation=disk_generation,
                incarnation=incarnation,
                directory_id=Uuid(made.ljust(16, b".")),
            )
            return LogDirectory(disk.directory(f"log{number}"), owner)

        self.logs = LogDirectories([directory(number) for number in range(directories)])

    def open(self, defaults: LogSettings) -> None:
        self.logs.open(lambda _: defaults, NOW_MS)
        for one in self.logs.working:
            one.rounds.wake = partial(self._wake, one)
            want_what_was_left(one, self._loop.now())

    # -- rounds, as the shell's threads make them

    def _wake(self, directory: LogDirectory, when: Instant) -> None:
        at = max(when, self._loop.now())
        self._loop.at(at, partial(self._begin, directory))

    def _begin(self, directory: LogDirectory) -> None:
        rounds = directory.rounds
        work = rounds.begin(self._loop.now())
        if work is None:
            deadline = rounds.next_after(self._loop.now())
            if not rounds.is_under_way and deadline is not None:
                self._wake(directory, deadline)
            return
        try:
            under_way = [file.submit() for file in _files_of(work)]
        except OSError as failure:
            self._give_up(directory, failure)
            return
        takes = self._rng.choice(FLUSH_TAKES_MS) * self._rng.uniform(0.5, 1.5)
        self._under_way[directory] = under_way
        done = partial(self._end, directory, under_way)
        self._loop.at(Instant(self._loop.now() + ms(takes)), done)

    def hold(self) -> None:
        """The disk does not answer: rounds begin and do not end."""
        if self._held is None:
            self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for end in held:
            self._loop.at(self._loop.now(), end)

    def _end(self, directory: LogDirectory, under_way: Sequence[Callable[[], None]]) -> None:
        if self._held is not None:
            self._held.append(partial(self._end, directory, under_way))
            return
        if directory.failure is not None:
            return
        for done in under_way:
            done()
        for log in directory.rounds.ended(self._loop.now()):
            self._loop.flushed(log.name.key)
        self._begin(directory)

    def without(self, keys: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that may have been here once, and this life knows that it has not got."""
        logs = self.logs
        lacking = {key for key in keys if logs.may_lack and logs.directory_of(key) is None}
        return lacking | logs.offline.keys()

    def flush(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Everything is on stable storage, as after a round of the flusher."""
        for one in self.logs.working:
            for done in self._under_way.get(one, ()):
                done()  # it took along what is noted as being flushed
            try:
                for log in one:
                    flush(log)
            except OSError as failure:
                self.logs.fail(one, failure)
        self.checkpoint(high_watermarks)
        self.sync()

    def sync(self) -> None:
        for one in self.logs.working:
            try:
                one.sync()
            except OSError as failure:
                self.logs.fail(one, failure)
        self.look()

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for one in self.logs.working:
            checkpoint = one.checkpoint(high_watermarks)
            try:
                checkpoint.write()
                one.checkpointed(checkpoint)
            except OSError as failure:
                if not is_full(failure):  # else those in force stay
                    self.logs.fail(one, failure)
        self.look()

    def write_kept(self) -> None:
        """It takes its time, as everything that is synced."""
        for one in self.logs.working:
            if one not in self._writing:
                file = one.take_kept()
                if file is not None:
                    self._writing.add(one)
                    when = Instant(self._loop.now() + ms(self._rng.uniform(0.5, 20.0)))
                    self._loop.at(when, partial(self._write_kept, one, file))

    def _write_kept(self, directory: LogDirectory, file: KeptFile) -> None:
        self._writing.discard(directory)
        if directory.failure is None:
            try:
                file.write()
                directory.kept.ended(well=True)
            except OSError as failure:
                if is_full(failure):
                    directory.kept.ended(well=False)
                else:
                    self._give_up(directory, failure)

    def close_clean(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for one in self.logs.working:
            try:
                for log in one:
                    if log.owes_flush:
                        flush(log)
                one.close_clean(high_watermarks)
            except OSError as failure:
                one.fail(failure)

    def has_space(self, _key: TopicPartition) -> bool:
        return not FULL & set(self._disk.failing.values())

    def doubted(self, key: TopicPartition, failure: Exception) -> Callable[[], None] | None:
        """What to do when the shell has looked at the directory, if it is at its end."""
        directory = self.logs.directory_of(key)
        if directory is None or not isinstance(failure, OSError):
            return None
        if failure.errno != errno.EIO and not isinstance(failure, FailedSyncError):
            return None
        return partial(self._give_up, directory, failure)

    def _give_up(self, directory: LogDirectory, failure: OSError) -> None:
        self.logs.fail(directory, failure)
        self.look()

    def heard(self, *, of_all: bool) -> None:
        with contextlib.suppress(OSError):  # no room for the mark: the next life says it once more
            self.logs.heard(of_all=of_all)
        self.look()

    def look(self) -> None:
        """See to directories that failed."""
        while failed := self.logs.take_failed():
            for directory in failed:
                if not self.logs.working:
                    raise LastDirectoryFailed
                self._on_lost(directory.keys())
            self.logs.write_marks()


def _files_of(work: Round) -> list[Any]:
    return [file for chain in (*work.chains, work.last) for file in chain]
