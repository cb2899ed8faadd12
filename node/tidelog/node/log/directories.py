"""All log directories of one broker: which log lies where, and what is left when one of them fails.

Each directory says in its mark which ones it was used with. So the next life sees that one is gone,
and the cluster is told of every replica that may have lain there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import Offset, Partition, TopicPartition, Uuid
from tidelog.node.log.directory import LogDirectory, Recovered, SettingsOf
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.shortages import is_full, is_shortage

_WORST_LAST: Final = (LastStop.NEVER_RAN, LastStop.CLEAN, LastStop.KILLED, LastStop.POWER_LOSS)


class LogDirectories:
    """Invariant: a log is in one directory only, whatever a power loss brings back; what is made
    anew goes to one that works."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        assert directories
        self._all = tuple(directories)
        self._where: dict[TopicPartition, LogDirectory] = {}
        self._lacking: dict[TopicPartition, CorruptError] = {}
        """Logs that should be here, and are in no directory."""
        self._missing: frozenset[Uuid] = frozenset()
        """Directories that logs may have lain in, as long as the cluster was not told of it."""
        self._failed: list[LogDirectory] = []
        self.strays: list[str] = []
        """Logs that came back with their directory, and were put aside."""
        self.last_stop = LastStop.NEVER_RAN
        self.lost_files = True
        """Whether any log that is here may be less than it was, which the cluster must hear of."""

    # -- the directories

    @property
    def all(self) -> tuple[LogDirectory, ...]:
        return self._all

    @property
    def working(self) -> list[LogDirectory]:
        return [one for one in self._all if one.failure is None]

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        """Of those that work."""
        return tuple(one.directory_id for one in self.working)

    @property
    def recovered(self) -> list[Recovered]:
        return [done for one in self._all for done in one.recovered]

    def fail(self, directory: LogDirectory, failure: OSError) -> None:
        """It is at its end: its logs are offline until a later life can read it."""
        if directory.failure is None:
            directory.fail(failure)
            self._missing |= {directory.directory_id}
            self._failed.append(directory)

    def take_failed(self) -> list[LogDirectory]:
        """Those that failed since somebody asked last."""
        failed, self._failed = self._failed, []
        return failed

    # -- start

    def open(self, settings_of: SettingsOf, now_ms: int) -> None:
        """Load every log of every directory. One that cannot be read is offline, the others go on;
        where none is left the last one's failure is raised."""
        if not self.working:
            raise self._all[-1].failure or AssertionError("it did not fail")
        for one in self.working:
            self._try(one, one.claim)
        past = _past(self.working)
        self._missing = (past.together | past.untold) - set(self.directory_ids)
        self._settle_doubles(past.together)
        self._tell_each()
        for one in self.working:
            self._load(one, settings_of, now_ms, past)
        for one in self._all:
            self._where |= dict.fromkeys(one.keys(), one)
        self._judge(past)
        if len(self.working) < len(self._all):
            self.write_marks()

    def _load(
        self, directory: LogDirectory, settings_of: SettingsOf, now_ms: int, past: "_Past"
    ) -> None:
        away = directory.mark is not None and directory.directory_id not in past.together
        counted = past.counts(directory)
        self._try(
            directory, lambda: directory.load(settings_of, now_ms, away=away, counted=counted)
        )

    def _try(self, directory: LogDirectory, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as failure:
            if len(self.working) == 1:
                raise
            if directory.mark is not None:
                self._missing |= {directory.directory_id}
            directory.fail(failure)

    def _judge(self, past: "_Past") -> None:
        """How the last life ended, by the worst end of any directory it had. What lies in others
        nobody counts on, unless the cluster was not told."""
        ran = [one for one in self.working if past.counts(one)]
        self.last_stop = max(
            (one.last_stop for one in ran), key=_WORST_LAST.index, default=LastStop.NEVER_RAN
        )
        self.lost_files = not ran or any(one.lost_files for one in ran)

    def _settle_doubles(self, together: frozenset[Uuid]) -> None:
        """A log in two directories: which one counts must be beyond doubt."""
        seen: dict[TopicPartition, LogDirectory] = {}
        for one in sorted(self.working, key=lambda one: one.directory_id not in together):
            for key in one.keys_on_disk():
                first = seen.setdefault(key, one)
                if first is not one:
                    self._settle_double(key, first, one, together)

    def _settle_double(
        self,
        key: TopicPartition,
        first: LogDirectory,
        second: LogDirectory,
        together: frozenset[Uuid],
    ) -> None:
        """Where the broker had to do without a directory, the log was made anew in another: that
        one counts. The older one may still hold what was lost for good, so it is kept."""
        if first.directory_id in together and second.directory_id not in together:
            self.strays.append(second.put_aside(key))
            return
        name = f"{key[0]}-{key[1]}"
        raise CannotStartError(
            f"{name} is in two log directories, {first.path}/{name} and {second.path}/{name}: "
            "remove the one that is not wanted"
        )

    # -- the logs

    def __iter__(self) -> Iterator[Log]:
        for one in self.working:
            yield from one

    def __len__(self) -> int:
        return sum(len(one) for one in self.working)

    @property
    def offline(self) -> Mapping[TopicPartition, CorruptError]:
        """Logs that must not be used, and why."""
        found = dict(self._lacking)
        for one in self._all:
            found |= one.offline
        return found

    def directory_of(self, key: TopicPartition) -> LogDirectory | None:
        return self._where.get(key)

    def log(self, topic: str, partition: int) -> Log | None:
        """The log, None if there is none; CorruptError where it is offline."""
        key = topic, Partition(partition)
        if key in self._lacking:
            raise self._lacking[key]
        directory = self._where.get(key)
        return None if directory is None else directory.log(topic, partition)

    def create(self, topic: str, partition: int, topic_id: Uuid, settings: LogSettings) -> Log:
        """As `LogDirectory.create`; a new log goes where the fewest are."""
        key = topic, Partition(partition)
        if key in self._lacking:
            raise self._lacking[key]
        directory = self._where.get(key)
        if directory is None:
            directory = self._where[key] = self._place_for(key)
        try:
            return directory.create(topic, partition, topic_id, settings)
        except OSError as failure:
            self.fail(directory, failure)
            directory.leave_out(key)
            raise directory.offline[key] from failure

    def _place_for(self, key: TopicPartition) -> LogDirectory:
        """Where a log of that name was deleted and a power loss could bring it back, else where the
        fewest are. In one directory the name cannot stand for both."""
        deleted = (one for one in self.working if one.has_deleted(key))
        return next(deleted, None) or min(self.working, key=len)

    def delete(self, topic: str, partition: int) -> bool:
        """Forget a log and put its files aside. False where that could not be done: its directory
        is at its end then, and what is left there is seen to by the next life that can."""
        key = topic, Partition(partition)
        self._lacking.pop(key, None)
        directory = self._where.pop(key, None)
        if directory is None:
            return True
        try:
            directory.delete(topic, partition)
        except OSError as failure:
            self.fail(directory, failure)
            directory.delete(topic, partition)
            return False
        return True

    def begin_anew(self, topic: str, partition: int) -> bool:
        """As `delete`, for a log that is wanted again; where it fails the log stays offline."""
        key = topic, Partition(partition)
        directory = self._where.get(key)
        if self.delete(topic, partition):
            return True
        assert directory is not None, key
        self._where[key] = directory
        directory.leave_out(key)
        return False

    # -- logs that nobody finds

    @property
    def may_lack(self) -> bool:
        """Whether a log that is nowhere may have lain in a directory that cannot be read."""
        return bool(self._missing) or any(one.failure is not None for one in self._all)

    def lack(self, topic: str, partition: int) -> None:
        """It should be here: nobody must make an empty one in its place unasked."""
        key = topic, Partition(partition)
        assert key not in self._where, key
        reason = "it is in no log directory that can be read; put the missing one back"
        self._lacking[key] = CorruptError(file=f"{topic}-{partition}", position=0, reason=reason)

    def is_lacking(self, key: TopicPartition) -> bool:
        return key in self._lacking

    def is_out(self, key: TopicPartition) -> bool:
        """Whether its files may come back with a directory that failed: it waits for them."""
        directory = self._where.get(key)
        if directory is not None:
            return directory.failure is not None
        return any(one.failure is not None for one in self._all)

    # -- what is told to the cluster

    def heard(self, *, of_all: bool = True) -> None:
        """The cluster knows what this broker lost: the next life need not say it again. Not `of
        all`: but for logs that may come back with their directory, and if not, must be told then.
        """
        self.lost_files = False
        if of_all:
            self._missing = frozenset()
        full = None
        for one in self.working:
            try:
                one.heard(self._missing)
            except OSError as failure:
                if is_full(failure) or is_shortage(failure):
                    full = failure
                else:
                    self.fail(one, failure)
        if full is not None:
            raise full

    @property
    def has_untold(self) -> bool:
        return bool(self._missing)

    def write_marks(self) -> None:
        """Beside the logs: which directories this life has, which ones it misses."""
        self._tell_each()
        for one in self.working:
            try:
                one.write_mark()
            except OSError as failure:
                if not is_full(failure) and not is_shortage(failure):
                    self.fail(one, failure)

    def _tell_each(self) -> None:
        for one in self.working:
            one.together, one.missing = frozenset(self.directory_ids), self._missing

    def kept(self) -> Mapping[Uuid, Sequence[int]]:
        """Partitions by topic that lost nothing anyone counts on, whatever happened."""
        found: dict[Uuid, list[int]] = {}
        for one in self.working:
            for (topic, partition), topic_id in one.kept.rows.items():
                key = topic, partition
                log = one.log(*key) if key in one else None
                if log is not None and log.name.topic_id == topic_id and log.missing_from is None:
                    found.setdefault(topic_id, []).append(partition)
        return found

    def keep(self, key: TopicPartition, topic_id: Uuid) -> None:
        """All that was vouched for in this log is on stable storage, and will be."""
        directory = self._where.get(key)
        if directory is not None:
            directory.kept.add(key, topic_id)

    def strike(self, key: TopicPartition) -> None:
        """It will not be, as soon as that is written down."""
        directory = self._where.get(key)
        if directory is not None:
            directory.kept.strike(key)

    def may_be_kept(self, key: TopicPartition) -> bool:
        """Whether a start after a power loss may find that this log has all it vouched for."""
        directory = self._where.get(key)
        return directory is not None and directory.kept.holds(key)

    # -- high watermarks

    def high_watermark(self, topic: str, partition: int) -> Offset:
        """As checkpointed last, within the log."""
        return self._where[topic, Partition(partition)].high_watermark(topic, partition)

    def checkpointed_high_watermark(self, key: TopicPartition) -> Offset:
        """As it was written, though the log may have lost what lies below it."""
        directory = self._where.get(key)
        return Offset(0) if directory is None else directory.checkpointed_high_watermark(key)


class _Past(NamedTuple):
    """What the marks say of the last life."""

    together: frozenset[Uuid]
    """The directories it had to its end."""
    untold: frozenset[Uuid]
    """Those it had lost, and the cluster had not heard of it."""

    def counts(self, directory: LogDirectory) -> bool:
        """Whether the cluster may count on what lies there; at the first start, on all."""
        return directory.directory_id in self.together | self.untold or not self.together


def _past(directories: Sequence[LogDirectory]) -> _Past:
    marks = [(mark, one.directory_id) for one in directories if (mark := one.mark) is not None]
    if not marks:
        return _Past(frozenset(), frozenset())
    # One that failed in the last life does not know it, the others do.
    newest, its_own = max(marks, key=lambda one: (one[0].incarnation, -len(one[0].together)))
    # Before there were several, a mark did not say that it was the only one.
    return _Past(newest.together or frozenset({its_own}), newest.missing)
