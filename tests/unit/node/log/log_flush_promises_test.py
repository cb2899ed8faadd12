"""What must be on stable storage before something else is said or done: a power loss in between."""

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs, produce, values_of
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.log.log import Log
from tidelog.node.log.rounds import want_what_was_left
from tidelog.node.log.settings import LogSettings

COMMIT = LogSettings(flush=FlushRules(commit=True))
INDEXED = LogSettings(index_interval_bytes=100)


class Life:
    """One log on a disk that loses what was not synced."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.disk = MemoryDisk()
        self.boot = 1
        self.settings = settings or LogSettings()
        self.open()

    def open(self) -> None:
        self.logs: LogDirectory = open_logs(self.disk.directory(), boot_id=f"boot-{self.boot}")
        assert self.logs.offline == {}
        self.log: Log = self.logs.create("t", 0, TOPIC_ID, self.settings)

    def kill(self) -> None:
        self.disk.kill()
        self.open()

    def lose_power(self) -> None:
        self.disk.lose_power()
        self.boot += 1
        self.open()

    def checkpoint(self, *, synced: bool = True) -> None:
        made = self.logs.checkpoint({})
        made.write()
        self.logs.checkpointed(made)
        if synced:
            self.logs.sync()

    @property
    def place(self) -> MemoryDirectory:
        return self.disk.directory().directory("t-0")


def test_a_flush_after_a_kill_covers_the_snapshot_that_the_start_wrote() -> None:
    """Retention may leave nothing else that knows what older producers wrote."""
    life = Life()
    produce(life.log, batch(2, producer=(7, 0, 0)))
    produce(life.log, batch(2, producer=(8, 0, 0)))
    life.log.roll(NOW_MS)
    produce(life.log, batch(2, producer=(7, 0, 2)))
    flush(life.log)
    life.checkpoint()
    life.kill()
    produce(life.log, batch(2, producer=(7, 0, 4)))
    flush(life.log)
    life.checkpoint()
    life.log.advance_start(4)
    life.checkpoint()
    life.logs.purge()
    life.lose_power()
    assert life.log.start == 4
    assert life.log.producers.get(8) is not None


def test_a_cut_of_what_a_flush_may_have_covered_is_forced_to_disk() -> None:
    """A flush covers what is appended while it is under way, though nobody counts on that."""
    life = Life()
    produce(life.log, batch(4))
    upto = life.log.end
    files = life.log.dirty_files(upto)
    produce(life.log, batch(2))
    for file in files:
        file.sync()
    life.log.flushed(upto)
    assert life.log.truncate_to(upto) == upto
    life.lose_power()
    assert values_of(life.log) == [0, 1, 2, 3], "what was cut is back"


def test_a_log_that_another_flush_has_is_in_no_round() -> None:
    """The second would claim what the first has not forced out yet."""
    life = Life(COMMIT)
    log, rounds = life.log, life.logs.rounds
    produce(log, batch(2))
    log.dirty.in_round = True
    produce(log, batch(2))
    rounds.want(log, NOW)
    assert rounds.begin(NOW) is None
    assert log.recovery_point == 0
    log.dirty.in_round = False
    log.dirty.missed()
    work = rounds.begin(NOW)
    assert work is not None
    assert work.logs == ((log, 4),)


def test_a_log_that_nobody_wants_flushed_any_more_is_in_no_round() -> None:
    life = Life(COMMIT)
    produce(life.log, batch(2))
    life.logs.rounds.want(life.log, NOW)
    life.logs.rounds.forget(life.log)
    assert life.logs.rounds.begin(NOW) is None


def test_what_a_killed_process_owed_is_flushed_after_the_start() -> None:
    life = Life(COMMIT)
    produce(life.log, batch(2))
    life.kill()
    assert life.log.owes_flush
    want_what_was_left([life.log], NOW)
    work = life.logs.rounds.begin(NOW)
    assert work is not None
    assert work.logs == ((life.log, 2),)


def test_a_log_that_is_flushed_owes_nothing_at_the_start() -> None:
    life = Life(COMMIT)
    produce(life.log, batch(2))
    flush(life.log)
    life.checkpoint()
    life.kill()
    assert not life.log.owes_flush
    want_what_was_left([life.log], NOW)
    assert life.logs.rounds.begin(NOW) is None


def test_a_log_that_begins_again_elsewhere_is_flushed_up_to_there() -> None:
    """Its replica vouches for what is flushed. Nothing may ever be appended to ask for a flush: the
    leader of an empty log may lack in-sync replicas for that."""
    life = Life(COMMIT)
    produce(life.log, batch(2))
    flush(life.log)
    rounds = life.logs.rounds
    rounds.forget_all()
    life.log.truncate_fully_and_start_at(10)
    work = rounds.begin(NOW)
    assert work is not None
    assert rounds.ended(NOW) == [life.log]
    assert life.log.recovery_point == 10


@pytest.mark.parametrize("target", [9, 20, 33])
def test_a_cut_leaves_no_index_entry_of_what_was_cut(target: int) -> None:
    """Else the indexes would be made again, or times be looked for behind the log's end."""
    life = Life(INDEXED)
    for at in range(40):
        produce(life.log, batch(1, size=120, timestamp=NOW_MS + at))
    segment = life.log.segments[0]
    entries = len(segment.times)
    life.disk.calls.clear()
    life.log.truncate_to(target)
    assert len(segment.times) < entries
    assert max(segment.times.offsets) < target
    assert not [call for call in life.disk.calls if call[1].endswith("index")]
    assert segment.max_timestamp == NOW_MS + target - 1


def test_a_cut_below_the_start_is_known_to_a_start_after_a_kill() -> None:
    """Also where nothing was flushed: the log's start was in a checkpoint, and lies above its end
    now."""
    life = Life()
    for _ in range(10):
        produce(life.log, batch(2))
    life.log.advance_start(12)
    life.checkpoint()
    assert life.log.recovery_point == 0
    life.log.truncate_to(6)
    life.kill()
    assert (life.log.start, life.log.end) == (6, 6)


def test_files_of_deleted_records_go_only_when_the_start_is_durable() -> None:
    """A flush of the partition's directory may make their removal durable at once."""
    life = Life()
    produce(life.log, batch(4))
    life.log.roll(NOW_MS)
    produce(life.log, batch(4))
    flush(life.log)
    life.checkpoint()
    life.log.advance_start(4)
    life.checkpoint(synced=False)
    life.logs.purge()
    life.place.sync()
    life.lose_power()
    assert (life.log.start, life.log.missing_from) == (4, None)
