"""All logs of one broker, and what is kept once for them: its owner, marks, checkpoints."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import (
    ZERO_UUID,
    Offset,
    Partition,
    TopicPartition,
    Uuid,
    uuid_text,
)
from tidelog.kernel.instant import Instant
from tidelog.node.log.cache_rules import KERNEL
from tidelog.node.log.contracts import LogName
from tidelog.node.log.directory_names import (
    DELETED_SUFFIX,
    PENDING_SUFFIX,
    STRAY_SUFFIX,
    key_of,
)
from tidelog.node.log.kept import Kept, KeptFile
from tidelog.node.log.log import Log, is_only_the_start
from tidelog.node.log.marks import (
    MARK_NAME,
    ClosedLog,
    LastStop,
    Mark,
    decode_mark,
    encode_mark,
)
from tidelog.node.log.offset_tables import NAMES, OffsetTables, Table
from tidelog.node.log.ownership import Owner, claim
from tidelog.node.log.recovery import Cut, Expected, is_as_closed, recover
from tidelog.node.log.rounds import Rounds
from tidelog.node.log.settings import LogSettings
from tidelog.wire import checkpoints
from tidelog.wire.errors import ErrorCode, Rejected

NAME_BYTES_MAX = 255

SettingsOf = Callable[[str], LogSettings]


class Recovered(NamedTuple):
    """What was done for one log that was not closed."""

    name: str
    bytes_scanned: int
    cut: Cut | None


class Checkpoint(NamedTuple):
    """What changed of the checkpoints, as of one moment. `write` may run in any thread."""

    directory: Directory
    generation: int
    versions: Mapping[str, int]
    tables: Mapping[str, Table]
    """By file name; none where the ones in force are still true."""

    def write(self) -> None:
        """Bring them to stable storage beside the ones in force."""
        for name, table in self.tables.items():
            self.directory.replace(name + PENDING_SUFFIX, checkpoints.encode_offsets(table))


class Removal(NamedTuple):
    """The files of a deleted log. `run` may run in any thread."""

    directory: Directory
    name: str

    def run(self) -> None:
        self.directory.remove_tree(self.name)


class LogDirectory:
    """Invariant: at most one log for each topic and partition, and each in its own directory."""

    def __init__(self, directory: Directory, owner: Owner) -> None:
        self.directory_id = owner.directory_id
        self.last_stop = LastStop.NEVER_RAN
        self.lost_files = True
        """Whether something that was there is gone, which the cluster must hear of."""
        self.failure: OSError | None = None
        """Why nothing in here can be used any more."""
        self.mark: Mark | None = None
        """What the last life left."""
        self.together: frozenset[Uuid] = frozenset()
        self.missing: frozenset[Uuid] = frozenset()
        """What its mark shall say of the broker's other directories."""
        self.offline: dict[TopicPartition, CorruptError] = {}
        """Logs that must not be used, and why."""
        self.recovered: list[Recovered] = []
        self.rounds = Rounds()
        self.kept = Kept()
        self._directory = directory
        self._owner = owner
        self._logs: dict[TopicPartition, Log] = {}
        self._tables = OffsetTables({})
        self._touched: dict[LogName, None] = {}
        """Logs whose rows in the tables may be old."""
        self._cleaned: dict[TopicPartition, int] = {}
        self._planned_starts: Mapping[TopicPartition, int] = {}
        self._rolled: dict[TopicPartition, None] = {}
        self._grown: dict[Log, None] = {}
        """Whose pages are not left to the kernel."""
        self._names: list[str] = []
        self._removals: list[str] = []
        self._gone: set[TopicPartition] = set()
        self._generation = 0
        self._checkpoints_damaged = False
        self._lost_waters: dict[TopicPartition, int] = {}
        """High watermarks beyond what is left of a log, which no file tells any more."""

    # -- the logs

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._logs

    @property
    def path(self) -> str:
        return self._directory.path

    def keys(self) -> list[TopicPartition]:
        """Of all logs, also of those that are offline."""
        return [*self._logs, *self.offline]

    def log(self, topic: str, partition: int) -> Log | None:
        """The log, None if there is none; CorruptError where it is offline."""
        key = topic, Partition(partition)
        if key in self.offline:
            raise self.offline[key]
        return self._logs.get(key)

    def create(self, topic: str, partition: int, topic_id: Uuid, settings: LogSettings) -> Log:
        """The log, made if need be; on disk it comes into being at its first append.

        Rejected where the place is taken by an older topic of that name: delete that first.
        """
        log = self.log(topic, partition)
        if log is None:
            name = LogName(topic, Partition(partition), topic_id)
            log = self._logs[name.key] = self._new_log(name, settings)
        elif ZERO_UUID in {log.name.topic_id, topic_id}:
            log.take_topic_id(max(log.name.topic_id, topic_id))
        elif log.name.topic_id != topic_id:
            raise Rejected(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.name.directory} belongs to {uuid_text(log.name.topic_id)}",
            )
        log.settings = settings
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Forget a log and put its files aside; `take_removals` gives them to be removed."""
        key = topic, Partition(partition)
        log = self._logs.get(key)
        if log is not None:
            # Without files it may have a directory: making the files may have failed.
            topic_id, has_files = log.name.topic_id, True
        elif key in self.offline:
            topic_id, has_files = ZERO_UUID, self.failure is None
        else:
            return
        if has_files:
            self._move_aside(f"{topic}-{partition}", topic_id)
        if log is not None:
            self.rounds.forget(log)
            log.delete()
        self._logs.pop(key, None)
        self.offline.pop(key, None)
        self._gone.add(key)
        self.kept.strike(key)
        self._rolled.pop(key, None)
        self._cleaned.pop(key, None)
        self._tables.drop(key)
        self._lost_waters.pop(key, None)

    def has_deleted(self, key: TopicPartition) -> bool:
        """Whether a log of that name was deleted here, and that may not be durable yet."""
        return key in self._gone

    def _move_aside(self, name: str, topic_id: Uuid) -> None:
        if self._directory.exists(name):  # somebody may have removed it by hand
            aside = self._free_name_aside(name, topic_id, DELETED_SUFFIX)
            self._directory.directory(name).move(aside)
            self._removals.append(aside)

    def _free_name_aside(self, name: str, topic_id: Uuid, suffix: str) -> str:
        """Kafka's name for a directory on its way out; another one while that is taken."""
        number = int.from_bytes(topic_id, "big")
        while self._directory.exists(aside := _aside(name, number, suffix)):
            number = (number + 1) % (1 << 128)
        return aside

    def _new_log(self, name: LogName, settings: LogSettings) -> Log:
        return Log(self._directory.directory(name.directory), name, settings, self)

    # -- what a log asks of its keeper

    def files_wanted(self, name: LogName) -> None:
        """A new log must not inherit the offsets of a deleted one of its name."""
        if name.key in self._gone:
            self._write_checkpoints()
            self._gone.clear()

    def checkpoint_first(self) -> None:
        self._write_checkpoints()

    def keep_start(self, name: LogName, start: int) -> None:
        # The write covers all logs: when a thousand followers attach, the first one pays for all.
        if self._tables.get_in_force(checkpoints.LOG_STARTS, name.key) < start:
            self._write_checkpoints()

    def committed_beyond(self, name: LogName, end: int) -> bool:
        known = self.checkpointed_high_watermark(name.key)
        in_force = self._tables.get_in_force(checkpoints.HIGH_WATERMARKS, name.key)
        return max(known, in_force) > end

    def forget_committed(self, name: LogName, end: int) -> None:
        if not self.committed_beyond(name, end):
            return
        names = checkpoints.HIGH_WATERMARKS, name.key
        if max(self._tables.get(*names), self._tables.get_in_force(*names)) > end:
            self._forget_lost_waters()
        self._lost_waters.pop(name.key, None)

    def _forget_lost_waters(self) -> None:
        # Of all logs at once: after a power loss each of a thousand may come by here.
        for key, log in self._logs.items():
            known = self._tables.get(checkpoints.HIGH_WATERMARKS, key)
            if known > log.end:
                self._lost_waters[key] = known
                self._tables.put(checkpoints.HIGH_WATERMARKS, key, log.end)
        self._write_checkpoints()

    def rolled(self, name: LogName) -> None:
        self._rolled[name.key] = None

    def flush_wanted(self, log: Log, when: Instant) -> None:
        self.rounds.want(log, when)

    def grew(self, log: Log) -> None:
        self._touched[log.name] = None
        if log.settings.cache is not KERNEL:
            self._grown[log] = None

    def touched(self, name: LogName) -> None:
        self._touched[name] = None

    # -- work for the shell

    def take_rolled(self) -> list[Log]:
        """Logs with newly sealed segments: flush them in the background."""
        keys, self._rolled = self._rolled, {}
        return [self._logs[key] for key in keys if key in self._logs]

    def take_grown(self) -> list[Log]:
        """Logs that were appended to, of those whose pages are not left to the kernel."""
        grown, self._grown = self._grown, {}
        return [log for log in grown if log.has_files]

    def take_removals(self) -> list[Removal]:
        names, self._removals = self._removals, []
        return [Removal(self._directory, name) for name in names]

    def purge(self, now_ms: int | None = None) -> None:
        """Remove segments that left their logs; call it now and then, never twice in a minute.

        A power loss may bring a removed file back: it is known for what it is by the log's start,
        so that must be durable first. Blocks for a sync where there is something to remove.
        """
        retired = self.retired()
        if retired:
            self._directory.sync()
        for log, start in retired.items():
            log.put_aside(start, now_ms or 0)
        self.purge_aside(now_ms)

    def purge_aside(self, now_ms: int | None) -> None:
        """Remove files put aside long enough ago that nobody reads any more."""
        for log in self._logs.values():
            if log.has_aside:
                log.purge(now_ms)

    def retired(self) -> dict[Log, int]:
        """Logs that segments left, and their starts in force: below these the files may go, once
        `sync` has made it durable that they are in force."""
        in_force = self._tables.get_in_force
        return {
            log: in_force(checkpoints.LOG_STARTS, log.name.key)
            for log in self._logs.values()
            if log.has_retired
        }

    def plan_starts(self, starts: Mapping[TopicPartition, int]) -> None:
        """The next checkpoint tells these log starts, of records nobody lost yet: only when it is
        in force may they be taken away, else a kill would bring them back. {} ends the plan."""
        for key in {*self._planned_starts, *starts} & self._logs.keys():
            self.touched(self._logs[key].name)
        self._planned_starts = starts

    def cleaned(self, key: TopicPartition) -> int | None:
        """Up to where a log was compacted; None where it never was."""
        return self._cleaned.get(key)

    def take_kept(self) -> KeptFile | None:
        """The file of what a power loss leaves whole, where it is to be written."""
        return self.kept.begin(self._directory)

    def sync(self) -> None:
        """Force out which checkpoints are in force; in any thread."""
        self._directory.sync()

    def announces(self, key: TopicPartition, dirty_start: int, end: int) -> bool:
        """Before a pass over a log up to `end`; whether a checkpoint must be in force first.

        That the log is compacted must be durable, and that all below `end` was flushed: a start
        after a power loss takes a gap between two segments for one of compaction only there.
        """
        is_known = key in self._cleaned
        if not is_known:
            self.note_cleaned(key, dirty_start)
        point = self._tables.get_in_force(checkpoints.RECOVERY_POINTS, key)
        return not is_known or point < end

    def note_cleaned(self, key: TopicPartition, end: int) -> None:
        """The next checkpoint tells it."""
        if key in self._logs:
            self._cleaned[key] = end
            self.touched(self._logs[key].name)

    def unsettled(self) -> list[TopicPartition]:
        """Logs whose high watermarks the next checkpoint should be given.

        All others' are at their ends, as the tables say: nothing changes there before the end does.
        """
        return [name.key for name in self._touched]

    def checkpoint(self, high_watermarks: Table) -> Checkpoint:
        """What to write now: `write` it in a thread, then hand it to `checkpointed`."""
        self._note(high_watermarks)
        versions = self._tables.changed()
        tables = {name: self._tables.copy(name) for name in versions}
        return Checkpoint(self._directory, self._generation, versions, tables)

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Put written checkpoints in force, unless newer ones are."""
        if checkpoint.generation != self._generation:
            for name in checkpoint.tables:
                self._directory.unlink(name + PENDING_SUFFIX)
            return
        for name in checkpoint.tables:
            self._directory.rename(name + PENDING_SUFFIX, name)
        self._tables.put_in_force(checkpoint.versions, checkpoint.tables)

    def high_watermark(self, topic: str, partition: int) -> Offset:
        """As checkpointed last, within the log."""
        log = self.log(topic, partition)
        assert log is not None
        known = self.checkpointed_high_watermark(log.name.key)
        return Offset(min(max(known, log.start), log.end))

    def checkpointed_high_watermark(self, key: TopicPartition) -> Offset:
        """As it was written, though the log may have lost what lies below it."""
        known = self._tables.get(checkpoints.HIGH_WATERMARKS, key)
        return Offset(max(known, self._lost_waters.get(key, 0)))

    def _note(self, high_watermarks: Table) -> None:
        """Bring the tables up to date."""
        for key, offset in high_watermarks.items():
            log = self._logs.get(key)
            if log is not None and log.has_files and not is_only_the_start(log, offset):
                self._tables.put(checkpoints.HIGH_WATERMARKS, key, offset)
        touched, self._touched = self._touched, {}
        for name in touched:
            log = self._logs.get(name.key)
            if log is not None:
                self._note_log(log)

    def _note_log(self, log: Log) -> None:
        key, tables = log.name.key, self._tables
        if not log.has_files:
            tables.drop(key)
            return
        known = tables.get(checkpoints.HIGH_WATERMARKS, key)
        if known != log.end:
            self.touched(log.name)  # it will move, though nothing is done to the log
        start = max(log.start, self._planned_starts.get(key, 0))
        if log.missing_from is not None and key not in self._planned_starts:
            start = log.missing_from  # the next life must miss it, too
        cleaned = self._cleaned.get(key)
        if cleaned is not None:
            # Never above the recovery point, which only a cut lowers, with a checkpoint. What is
            # written where something was cut off is not clean, however far the log grows again.
            self._cleaned[key] = cleaned = min(cleaned, log.recovery_point)
        tables.put(checkpoints.RECOVERY_POINTS, key, log.recovery_point)
        tables.put(checkpoints.HIGH_WATERMARKS, key, known)
        tables.put(checkpoints.LOG_STARTS, key, start or None)
        tables.put(checkpoints.CLEANED, key, cleaned)

    def _note_all(self) -> None:
        """After a start. Of a log that is offline nothing is known but what was read then."""
        there = {*self._logs, *self.offline}
        self._gone |= self._tables.keep_only(there)  # the files have them still
        self._cleaned = {key: end for key, end in self._cleaned.items() if key in there}
        for key in self.offline:
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
                self._tables.put(name, key, self._tables.get(name, key))
        for log in self._logs.values():
            self._note_log(log)

    def _write_checkpoints(self) -> None:
        """At once, and always durably: half of it would be worse than what was there before."""
        self._generation += 1
        self._note({})
        tables = {name: self._tables.copy(name) for name in NAMES}
        for name, table in tables.items():
            self._directory.replace(name, checkpoints.encode_offsets(table))
        self._tables.put_in_force(self._tables.versions(), tables)

    def heard(self, still_missing: frozenset[Uuid] = frozenset()) -> None:
        """The cluster knows what this broker lost before this life: the next one need not say it
        again."""
        if self.lost_files or self.missing != still_missing:
            self.lost_files, self.missing = False, still_missing
            self.write_mark()

    def fail(self, failure: OSError) -> None:
        """Nothing in here can be read or written any more, or trusted if it can: all logs go
        offline, and no file is touched again."""
        self.failure = failure
        self.offline |= {
            key: CorruptError(file=self.path, position=0, reason=f"its log directory: {failure}")
            for key in self._logs
        }
        for key, log in self._logs.items():
            log.fail(self.offline[key])
        self._logs.clear()
        self.rounds.forget_all()
        self._touched.clear()
        self._rolled.clear()
        self._grown.clear()
        self._removals.clear()

    def leave_out(self, key: TopicPartition) -> None:
        """Of a directory that failed: this log is there too."""
        assert self.failure is not None
        reason = f"its log directory: {self.failure}"
        self.offline[key] = CorruptError(file=self.path, position=0, reason=reason)

    def close_clean(
        self, high_watermarks: Mapping[TopicPartition, int], *, synced: bool = False
    ) -> None:
        """Close every log and leave the mark for a quick start; `synced`: all was flushed."""
        checkpoint = self.checkpoint(high_watermarks)
        closed: dict[str, ClosedLog] = {}
        for log in self._logs.values():
            left = log.close_clean()
            if left is not None:
                closed[log.name.directory] = left
        for name, table in checkpoint.tables.items():
            self._directory.replace(name, checkpoints.encode_offsets(table))
        incarnation = self._owner.incarnation
        self._directory.replace(
            checkpoints.CLEAN_SHUTDOWN,
            f'{{"version":0,"brokerEpoch":{incarnation}}}'.encode("ascii"),
            durable=synced,
        )
        self.write_mark(clean=True, synced=synced, logs=closed)

    def write_mark(
        self,
        *,
        clean: bool = False,
        synced: bool = False,
        logs: Mapping[str, ClosedLog] | None = None,
    ) -> None:
        """For the next start: how this life ended, or that it had not when this was written."""
        owner = self._owner
        mark = Mark(
            clean=clean,
            synced=synced,
            boot_id=owner.boot_id,
            disk_generation=owner.disk_generation,
            incarnation=owner.incarnation,
            logs=logs or {},
            lost_files=self.lost_files,
            together=self.together,
            missing=self.missing,
        )
        self._directory.replace(MARK_NAME, encode_mark(mark))

    # -- start

    def open(self, settings_of: SettingsOf, now_ms: int) -> None:
        """Claim the directory and load every log; a damaged one goes offline, the others go on."""
        self.claim()
        self.load(settings_of, now_ms)

    def claim(self) -> None:
        """See whose it is, and how it was left."""
        self._directory.make()
        self._names = self._directory.names()
        self.directory_id = claim(
            self._directory, self._owner, has_logs=any(map(key_of, self._names))
        )
        self.mark = decode_mark(self._directory.read_all(MARK_NAME))

    def keys_on_disk(self) -> list[TopicPartition]:
        return [key for name in self._names if (key := key_of(name)) is not None]

    def topic_id_on_disk(self, key: TopicPartition) -> Uuid:
        directory = self._directory.directory(f"{key[0]}-{key[1]}")
        content = directory.read_all(checkpoints.PARTITION_METADATA)
        return checkpoints.decode_partition_metadata(content)

    def put_aside(self, key: TopicPartition) -> str:
        """Before they are loaded: this log is not the one that counts. What it is called now;
        nobody removes it but who looked into it."""
        name = f"{key[0]}-{key[1]}"
        aside = self._free_name_aside(name, self.topic_id_on_disk(key), STRAY_SUFFIX)
        self._directory.directory(name).move(aside)
        self._names = self._directory.names()
        return f"{self.path}/{aside}"

    def load(
        self, settings_of: SettingsOf, now_ms: int, *, away: bool = False, counted: bool = True
    ) -> None:
        """Every log. `away`: the broker lived without this directory meanwhile, or gave it up; its
        memory of it is worth nothing. `counted`: the cluster counts on what was here."""
        names = self._names
        found = {name: key for name in names if (key := key_of(name)) is not None}
        mark = self.mark
        self.last_stop = LastStop.POWER_LOSS if away else self._left(has_logs=bool(found))
        unheard = mark is not None and mark.lost_files
        lost = unheard or self.last_stop in {LastStop.NEVER_RAN, LastStop.POWER_LOSS}
        self.lost_files = counted and lost
        offsets = self._read_checkpoints()
        self._tables = OffsetTables(offsets)
        self.kept.load(self._directory, trusted=not away)
        closed = mark.logs if mark is not None and self.last_stop is LastStop.CLEAN else {}
        self._cleaned = dict(offsets.get(checkpoints.CLEANED, {}))
        for name, key in found.items():
            self._load(name, key, closed.get(name), settings_of(key[0]), now_ms)
        self._note_all()
        self._removals = [name for name in names if name.endswith(DELETED_SUFFIX)]
        if self._checkpoints_damaged:
            self._write_checkpoints()
        self.write_mark()
        self._directory.unlink(checkpoints.CLEAN_SHUTDOWN)

    def _left(self, *, has_logs: bool) -> LastStop:
        if self.mark is None:
            # With logs in it: nobody knows better.
            return LastStop.POWER_LOSS if has_logs else LastStop.NEVER_RAN
        owner = self._owner
        return self.mark.last_stop(boot_id=owner.boot_id, disk_generation=owner.disk_generation)

    def _read_checkpoints(self) -> dict[str, Table]:
        """Nothing is lost with one: without recovery points all is read, and the rest is found."""
        found: dict[str, Table] = {}
        for name in NAMES:
            content = self._directory.read_all(name)
            if content is None:
                continue
            try:
                found[name] = checkpoints.decode_offsets(content, place=name)
            except CorruptError:
                self._checkpoints_damaged = True
        return found

    def _load(
        self,
        directory_name: str,
        key: TopicPartition,
        closed: ClosedLog | None,
        settings: LogSettings,
        now_ms: int,
    ) -> None:
        directory = self._directory.directory(directory_name)
        point = self._tables.get(checkpoints.RECOVERY_POINTS, key)
        try:
            promised = int(point)
            if closed is not None and not is_as_closed(directory, closed):
                # With less than its stop vouched for it could lead, and shorten the others.
                promised, closed = max(point, closed.end), None
            topic_id = ZERO_UUID if closed is None else closed.topic_id
            if topic_id == ZERO_UUID:
                content = directory.read_all(checkpoints.PARTITION_METADATA)
                topic_id = checkpoints.decode_partition_metadata(content)
            log = self._new_log(LogName(*key, topic_id), settings)
            if closed is not None:
                log.adopt_closed(closed, point, now_ms)
            else:
                start = self._tables.get(checkpoints.LOG_STARTS, key)
                compacted = key in self._cleaned
                settled = self.checkpointed_high_watermark(key)
                expected = Expected(self.last_stop, promised, start, now_ms, settled, compacted)
                loaded = recover(directory, expected, settings)
                log.adopt(loaded, point, now_ms)
                self.recovered.append(Recovered(directory_name, loaded.bytes_scanned, loaded.cut))
        except CorruptError as error:
            self.offline[key] = error
        except OSError as error:
            place = f"{self._directory.path}/{directory_name}"
            self.offline[key] = CorruptError(file=place, position=0, reason=str(error))
        else:
            self._logs[key] = log


def _aside(name: str, number: int, suffix: str) -> str:
    end = f".{number:032x}{suffix}"
    return name[: NAME_BYTES_MAX - len(end)] + end
