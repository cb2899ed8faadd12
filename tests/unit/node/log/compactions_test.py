"""Which log is compacted next while passes over some of them fail."""

import errno
from collections.abc import Iterator

import pytest
from msgspec import structs

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, at_once
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Uuid
from tidelog.node.log.causes import Cause
from tidelog.node.log.cleaner import Candidate, job_for
from tidelog.node.log.cleaning import Cleaned, clean
from tidelog.node.log.compactions import Compacted, Compactions, failure_of
from tidelog.node.log.contracts import LogName
from tidelog.node.log.failed_passes import Failure
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.swap import put_in_force

SETTINGS = LogSettings(
    compact=True, delete=False, segment_ms=10_000_000, min_cleanable_dirty_ratio=0.0
)
DIED = Failure(Cause.WORKER_DIED, "the worker process died (signal 9)")
FIRST_PAUSE_MS = 15_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Bench:
    """Compacted logs on a disk in memory, and what is told of them."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS)
        self.told: list[tuple[str, Cause | None]] = []
        self.compactions = Compactions(self._tell)
        self.now_ms = NOW_MS

    def _tell(self, name: LogName, failure: Failure | None) -> None:
        self.told.append((name.topic, None if failure is None else failure.cause))

    def log(self, topic: str, records: int, topic_id: Uuid = TOPIC_ID) -> Log:
        """Each record lies in a sealed segment of its own."""
        log = self.logs.create(topic, 0, topic_id, SETTINGS)
        for number in range(records):
            append(log, [(b"k", b"%d" % number)])
            log.roll(NOW_MS)
        flush(log)
        return log

    def next(self) -> Candidate | None:
        rows = [
            Compacted(log, self.logs.cleaned(log.name.key), log.end)
            for log in self.logs
            if log.settings.compact
        ]
        return self.compactions.next(rows, self.now_ms)

    def due(self, topic: str) -> Candidate:
        found = self.next()
        assert found is not None
        assert found.log.name.topic == topic
        return found

    def passed(self, found: Candidate) -> None:
        self.logs.note_cleaned(found.log.name.key, found.log.end)
        self.compactions.passed(found)

    def fail(self, found: Candidate, failure: Failure = DIED) -> bool:
        return self.compactions.failed(found, 0, failure, self.now_ms)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_log_whose_pass_fails_lets_the_others_go_on(bench: Bench) -> None:
    bench.log("bad", 3)
    assert bench.fail(bench.due("bad"))
    bench.log("good", 3)
    for number in range(3):
        bench.passed(bench.due("good"))
        bench.log("good", 4 + number)
    assert bench.told == [("bad", Cause.WORKER_DIED)]
    assert len(bench.compactions) == 1


def pauses(bench: Bench) -> Iterator[int]:
    """How long it takes after each failure until the log is tried again."""
    while True:
        assert bench.fail(bench.due("t"))
        failed_ms = bench.now_ms
        while bench.next() is None:
            bench.now_ms += FIRST_PAUSE_MS
        yield bench.now_ms - failed_ms


def test_the_pauses_grow_up_to_an_hour_and_the_failure_is_told_once_a_day(bench: Bench) -> None:
    bench.log("t", 2)
    rounds = pauses(bench)
    found = [next(rounds) for _ in range(10)]
    assert found[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert found[-1] == HOUR_MS
    assert bench.told == [("t", Cause.WORKER_DIED)]
    while len(bench.told) == 1:
        next(rounds)
    assert DAY_MS <= bench.now_ms - NOW_MS <= DAY_MS + 2 * HOUR_MS
    assert bench.told == [("t", Cause.WORKER_DIED)] * 2


def test_another_cause_is_told_at_once(bench: Bench) -> None:
    bench.log("t", 2)
    bench.fail(bench.due("t"))
    bench.now_ms += FIRST_PAUSE_MS
    bench.fail(bench.due("t"), Failure(Cause.DISK, "no room"))
    assert bench.told == [("t", Cause.WORKER_DIED), ("t", Cause.DISK)]


def test_a_pass_that_ends_well_ends_the_record(bench: Bench) -> None:
    bench.log("t", 2)
    bench.fail(bench.due("t"))
    bench.now_ms += FIRST_PAUSE_MS
    bench.passed(bench.due("t"))
    assert bench.told == [("t", Cause.WORKER_DIED), ("t", None)]
    assert len(bench.compactions) == 0


def test_a_topic_made_again_under_its_name_begins_without_a_record(bench: Bench) -> None:
    bench.log("t", 2)
    bench.fail(bench.due("t"))
    bench.logs.delete("t", 0)
    bench.log("t", 2, Uuid(b"another topic id"))
    bench.due("t")
    assert bench.told == [("t", Cause.WORKER_DIED), ("t", None)]


def test_a_topic_that_is_not_compacted_any_more_has_no_record(bench: Bench) -> None:
    log = bench.log("t", 2)
    bench.fail(bench.due("t"))
    log.settings = LogSettings()
    assert bench.next() is None
    assert len(bench.compactions) == 0
    assert bench.told[-1] == ("t", None)


def test_the_record_goes_when_the_damaged_segment_does(bench: Bench) -> None:
    log = bench.log("t", 5)
    damaged = failure_of(CorruptError(file=f"/d/t-0/{1:020d}.log", position=7, reason="bad"))
    assert bench.fail(bench.due("t"), damaged)
    log.advance_start(1)
    assert bench.next() is None, "the segment is still there"
    log.advance_start(2)
    bench.due("t")
    assert bench.told == [("t", Cause.DAMAGED), ("t", None)]


def test_a_change_of_settings_ends_the_pause(bench: Bench) -> None:
    log = bench.log("t", 2)
    bench.fail(bench.due("t"))
    assert bench.next() is None
    log.settings = LogSettings(compact=True, delete=False, delete_retention_ms=5)
    bench.due("t")


def expire(bench: Bench, log: Log) -> None:
    log.advance_start(1)
    bench.logs.purge()


def cut(_bench: Bench, log: Log) -> None:
    log.truncate_to(1)


def cut_all(_bench: Bench, log: Log) -> None:
    log.truncate_fully_and_start_at(7)


def delete(bench: Bench, _log: Log) -> None:
    bench.logs.delete("t", 0)


def make_again(bench: Bench, _log: Log) -> None:
    bench.logs.delete("t", 0)
    bench.log("t", 3, Uuid(b"another topic id"))


@pytest.mark.parametrize("change", [expire, cut, cut_all, delete, make_again])
def test_what_a_changed_log_says_is_no_damage(bench: Bench, change: object) -> None:
    log = bench.log("t", 3)
    found = bench.due("t")
    assert callable(change)
    change(bench, log)
    gone = FileNotFoundError(errno.ENOENT, "no such file", "0.log")
    assert not bench.fail(found, failure_of(gone))
    assert not bench.fail(found, Failure(Cause.DAMAGED, "wrong checksum", 0))
    assert bench.told == []
    assert len(bench.compactions) == 0


def test_a_log_that_changed_under_a_pass_waits_a_little(bench: Bench) -> None:
    log = bench.log("t", 4)
    found = bench.due("t")
    log.advance_start(1)
    bench.fail(found)
    assert bench.next() is None
    bench.now_ms += 1_000
    bench.due("t")


def cleaned_first(bench: Bench, found: Candidate) -> Cleaned:
    """What a worker makes of the first segment."""
    job = job_for(found, map_bytes_max=1 << 20, now_ms=bench.now_ms)
    done = next(clean(found.log.directory, structs.replace(job, segment_bytes=1)))
    assert isinstance(done, Cleaned)
    return done


def test_a_segment_that_a_pass_replaced_itself_does_not_excuse_a_later_one(bench: Bench) -> None:
    log = bench.log("t", 4)
    found = bench.due("t")
    assert put_in_force(log, cleaned_first(bench, found), found.cuts, NOW_MS, at_once)
    assert bench.compactions.failed(found, 1, Failure(Cause.DAMAGED, "bad", 2), NOW_MS)
    assert bench.told == [("t", Cause.DAMAGED)]


def test_a_damaged_header_stops_neither_the_broker_nor_the_other_logs(bench: Bench) -> None:
    """It is read already where the next log is chosen."""
    bad, good = bench.log("bad", 3), bench.log("good", 2)
    for segment in bad.segments:
        segment.first_timestamp = -1
    bad.directory.content(f"{0:020d}.log")[16] = 9  # type: ignore[attr-defined] # MemoryDirectory
    assert bench.due("good").log is good
    assert bench.told == [("bad", Cause.DAMAGED)]
    bench.passed(bench.due("good"))
    assert bench.next() is None
    assert len(bench.told) == 1


def test_a_disk_without_room_for_a_new_segment_stops_nobody(bench: Bench) -> None:
    aged = bench.log("aged", 2)
    append(aged, [(b"k", b"v")])
    bench.log("good", 2)
    aged.settings = LogSettings(compact=True, delete=False, segment_ms=1)
    bench.now_ms += 1_000
    bench.disk.failing["create"] = errno.ENOSPC
    bench.due("good")
    assert bench.told == [("aged", Cause.DISK)]
