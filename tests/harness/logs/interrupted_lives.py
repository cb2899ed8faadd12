"""Random lives of a compacted log to which something else is done while a pass is under way.

Retention, DeleteRecords, a cut of the log's end, deletion of the topic, a roll, or other settings
may come whenever the worker reads, and around each step by which the broker puts its work in force;
the process may be killed, or lose power, at any call. A model knows what was written.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from harness.disks.mortal_disk import KilledError, MortalDisk, Trap, after_calls
from harness.logs.batches import NOW, NOW_MS, flush, open_logs
from harness.logs.compaction import batches_of, checkpoint
from tidelog.kernel.ids import Uuid
from tidelog.node.log.cleaner import Candidate, job_for
from tidelog.node.log.cleaning import Cleaned, Finished, clean
from tidelog.node.log.compactions import Compacted, Compactions, failure_of
from tidelog.node.log.contracts import LogName
from tidelog.node.log.failed_passes import Failure
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.swap import discard_unfinished, put_in_force
from tidelog.wire.records import Record, build_batch, place_batch

SETTINGS = LogSettings(
    segment_bytes=700,
    index_interval_bytes=200,
    compact=True,
    delete=True,
    delete_retention_ms=1_000,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)
OTHERS = (
    SETTINGS,
    LogSettings(segment_bytes=700, index_interval_bytes=200, file_delete_delay_ms=0),
    LogSettings(
        segment_bytes=5_000,
        index_interval_bytes=200,
        compact=True,
        file_delete_delay_ms=5,
        delete_retention_ms=0,
        min_cleanable_dirty_ratio=0.0,
    ),
)
KEYS = [b"k%d" % number for number in range(5)]


class ToldError(Exception):
    """A change of the log was taken for damage."""


class Life:
    """One topic, and those that are made again under its name."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = MortalDisk()
        self.boot = 1
        self.now_ms = NOW_MS
        self.epoch = 0
        self.values = 0
        self.topics = 0
        self.done: set[str] = set()
        """What happened during passes, for whoever wants to know that all of it does."""
        self.in_pass = False
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS)
        self.make_topic()
        self.compactions = Compactions(self.tell)

    def make_topic(self) -> None:
        self.topics += 1
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self.superseded: set[int] = set()
        """A later record of that key was there once: a pass may have dropped it."""
        self.floor = 0
        """The log began there at some moment."""
        self.flushed = 0
        self.known = 0
        """Records below are there for certain; who dies while it writes or cuts knows no better."""
        self.topic_id = Uuid(self.topics.to_bytes(16))
        self.log: Log = self.logs.create("t", 0, self.topic_id, SETTINGS)

    def tell(self, _name: LogName, failure: Failure | None) -> None:
        if failure is not None:
            raise ToldError(failure)

    def run(self) -> None:
        for _ in range(self.rng.randint(3, 6)):
            for _ in range(self.rng.randint(4, 12)):
                self.write()
            self.roll()
            trap = self.rng.choice([None, after_calls(self.rng.randint(0, 120))])
            if not self.survives(self.compact, trap):
                self.die(power=self.rng.random() < 0.5)
            self.check()
            self.now_ms += self.rng.choice([1, 1_001, 70_000])

    # -- what is done to it

    def write(self) -> None:
        rng, rows = self.rng, []
        for at in range(rng.choice([1, 2, 4])):
            self.values += 1
            value = b"%d" % self.values + bytes(rng.choice([0, 90]))
            is_tombstone = rng.random() < 0.15
            rows.append(Record(at, self.now_ms, rng.choice(KEYS), None if is_tombstone else value))
        view = memoryview(build_batch(rows))
        base = self.log.end
        place_batch(view, 0, base_offset=base, leader_epoch=self.epoch)
        for row in rows:
            assert row.key is not None
            self.superseded |= {at for at, (key, _) in self.records.items() if key == row.key}
            self.superseded.discard(base + row.offset)
            self.records[base + row.offset] = row.key, row.value
        self.known = base
        self.log.append_as_follower(NOW, self.now_ms, view)
        self.known = self.log.end

    def roll(self) -> None:
        if self.log.has_files:
            self.log.roll(self.now_ms)
            flush(self.log)
            self.flushed = self.log.end

    def expire(self) -> None:
        """As the broker's retention: the checkpoint first, the files last."""
        segments = self.log.segments
        if len(segments) < 2:
            return
        start = segments[self.rng.randrange(1, len(segments))].base
        self.logs.plan_starts({self.log.name.key: start})
        checkpoint(self.logs)
        self.logs.plan_starts({})
        self.delete_records(start)
        self.logs.purge(self.now_ms)

    def delete_some(self) -> None:
        self.delete_records(self.rng.randint(self.log.start, self.log.end))

    def delete_records(self, start: int) -> None:
        self.log.advance_start(min(start, self.log.end))
        self.floor = max(self.floor, self.log.start)

    def cut(self) -> None:
        """Also below what was flushed and compacted: an unclean leader's word.

        It leaves a batch in the segment that it cuts, or begins with it.
        """
        if not self.log.has_files:
            return
        bases = [segment.base for segment in self.log.segments]

        def segment_of(offset: int) -> int:
            return max(base for base in bases if base <= offset)

        ends = [
            header.next_offset
            for header, _ in batches_of(self.log)
            if header.next_offset in bases
            or segment_of(header.next_offset) == segment_of(header.base_offset)
        ]
        self.cut_to(self.rng.choice([self.log.end, *ends]))

    def cut_to(self, offset: int) -> None:
        self.begin_cut(offset)
        self.log.truncate_to(offset)
        self.forget_from(self.log.end)

    def begin_cut(self, offset: int) -> None:
        """Until it is over, a power loss may leave any of the segments behind it."""
        self.epoch += 1
        self.known = 0
        self.flushed = min(self.flushed, offset)
        self.superseded |= {at for at in self.records if at >= offset}

    def cut_all(self) -> None:
        if self.log.has_files:
            self.begin_cut(0)
            self.log.truncate_fully_and_start_at(self.log.end + self.rng.choice([0, 3]))
            self.forget_from(0)
            self.floor = max(self.floor, self.log.start)

    def forget_from(self, end: int) -> None:
        for at in [at for at in self.records if at >= end]:
            del self.records[at]
        self.known = end

    def write_and_roll(self) -> None:
        self.write()
        self.roll()

    def cut_and_write(self) -> None:
        """The new history takes the place of the old one, up to the same offsets."""
        before = len(self.log.segments)
        self.cut()
        while len(self.log.segments) < before:
            self.write_and_roll()

    def change_settings(self) -> None:
        self.log.settings = self.rng.choice(OTHERS)

    def checkpoint(self) -> None:
        checkpoint(self.logs)

    def purge(self) -> None:
        self.log.purge(self.now_ms)

    def delete_topic(self) -> None:
        self.logs.delete("t", 0)
        if self.rng.random() < 0.5:
            for removal in self.logs.take_removals():
                removal.run()
        self.make_topic()
        for _ in range(self.rng.randint(0, 6)):
            self.write_and_roll()

    def maybe(self) -> None:
        """Something, now and then."""
        if self.rng.random() > 0.06:
            return
        event = self.rng.choice(
            [
                self.expire,
                self.delete_some,
                self.cut,
                self.cut,
                self.cut_all,
                self.cut_and_write,
                self.write_and_roll,
                self.change_settings,
                self.checkpoint,
                self.purge,
                self.delete_topic,
            ]
        )
        event()
        self.done.add(event.__name__)

    # -- compaction

    def compact(self) -> None:
        """As the cleaner's thread does it, with a worker of its own."""
        row = Compacted(self.log, self.logs.cleaned(self.log.name.key), self.log.end)
        found = self.compactions.next([row] if self.log.settings.compact else [], self.now_ms)
        if found is None:
            return
        if self.logs.announces(found.log.name.key, found.dirty_start, found.cleanable[-1].end):
            checkpoint(self.logs)
        self.follow(found)

    def follow(self, found: Candidate) -> None:
        map_bytes_max = self.rng.choice([1_000, 1 << 20])
        job = job_for(found, map_bytes_max=map_bytes_max, now_ms=self.now_ms)
        folder = found.log.directory.path
        done = 0
        try:
            worker = clean(found.log.directory, job, lambda _size: self.maybe())
            while (result := self.next_of(worker)) is not None:
                if isinstance(result, Finished):
                    self.finished(found, result)
                    return
                if not put_in_force(found.log, result, found.cuts, self.now_ms, self.between):
                    discard_unfinished(found.log.directory)
                    self.compactions.overtaken(found, self.now_ms)
                    return
                done = result.old[-1].end
        except WorkerError as error:
            failure = failure_of(OSError(f"{folder}: {error}"))
            self.compactions.failed(found, done, failure, self.now_ms)

    def next_of(self, worker: Any) -> Cleaned | Finished | None:
        """What the worker says next; whatever it does not expect, it tells."""
        try:
            result: Cleaned | Finished | None = next(worker, None)
        except (KilledError, ToldError):
            raise
        except Exception as error:
            raise WorkerError(repr(error)) from error
        return result

    def finished(self, found: Candidate, result: Finished) -> None:
        if found.log.has_files and found.log.cuts == found.cuts:
            self.logs.note_cleaned(found.log.name.key, result.end)
        self.compactions.passed(found)
        checkpoint(self.logs)

    def between(self, call: Callable[[], Any]) -> Any:
        self.maybe()
        result = call()
        self.maybe()
        return result

    # -- ends

    def survives(self, what: Callable[[], None], trap: Trap | None) -> bool:
        """False where it was killed on the way."""
        self.disk.trap = trap
        try:
            what()
        except KilledError:
            return False
        finally:
            self.disk.trap = None
        return True

    def die(self, *, power: bool) -> None:
        if power:
            self.disk.lose_power(self.rng)
            self.boot += 1
            self.superseded |= {at for at in self.records if at >= self.flushed}
        else:
            self.disk.kill()
        self.logs = open_logs(
            self.disk.directory(), settings=LogSettings(), boot_id=f"boot-{self.boot}"
        )
        self.compactions = Compactions(self.tell)
        found = self.logs.log("t", 0)
        if found is None or found.name.topic_id != self.topic_id:
            # The topic was deleted, or a power loss has taken a new one's files.
            self.logs.delete("t", 0)
            self.make_topic()
            return
        self.log = found
        found.settings = SETTINGS
        self.epoch += 1
        left = found.directory.names()
        assert not [name for name in left if name.endswith((".swap", ".cleaned", ".deleted"))]
        if not power:
            assert found.end >= self.known, "a kill lost records"
        self.forget_from(found.end)

    def check(self) -> None:
        """No record of another history is there, and each key's last one is."""
        log = self.log
        if not log.has_files:
            return
        there = {}
        for _, rows in batches_of(log):
            for row in rows:
                there[row.offset] = row.key, row.value
        strange = {at: row for at, row in there.items() if self.records.get(at) != row}
        assert not strange, "a record that was cut off, or never written, is there"
        for at, (key, value) in self.records.items():
            if at >= max(log.start, self.floor) and at not in self.superseded and value is not None:
                assert at in there, f"the last value of {key!r} is gone"


class WorkerError(Exception):
    """What a worker process would say, or die of."""
