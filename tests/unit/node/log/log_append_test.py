"""Appending: offsets, one write, new segments, failing disks."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import (
    NOW,
    NOW_MS,
    batch,
    flush,
    new_log,
    open_logs,
    produce,
    values_of,
)
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.instant import Instant, ms
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.log.log import Log
from tidelog.node.log.producer_snapshot import encode_snapshot
from tidelog.node.log.settings import LogSettings
from tidelog.wire.records import read_header


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def log_on(disk: MemoryDisk, settings: LogSettings | None = None) -> Log:
    return new_log(disk.directory(), settings)


def segments_of(disk: MemoryDisk) -> list[int]:
    names = disk.directory().directory("t-0").names()
    return [int(name[:20]) for name in names if name.endswith(".log")]


def test_offsets_count_records_and_are_written_into_the_batch(disk: MemoryDisk) -> None:
    log = log_on(disk)
    assert produce(log, batch(3))[:2] == (0, 2)
    view = batch(2)
    assert produce(log, view, epoch=4)[:2] == (3, 4)
    assert log.end == 5
    header = read_header(view)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 4)


def test_a_partition_leaves_nothing_on_disk_before_its_first_append(disk: MemoryDisk) -> None:
    log = log_on(disk)
    log.begin_epoch(3)
    assert log.read(0, 1000, 0, min_one=True) is None
    assert not disk.directory().exists("t-0")
    assert (log.size_bytes, log.sealed_end, len(log.epochs), len(log.producers)) == (0, 0, 1, 0)
    produce(log, batch(), epoch=3)
    assert disk.directory().directory("t-0").names() == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_an_append_is_one_write_and_nothing_else(disk: MemoryDisk) -> None:
    log = log_on(disk)
    produce(log, batch())
    disk.calls.clear()
    for at in range(50):
        produce(log, batch(10, size=200, producer=(1, 0, at * 10)))
    assert disk.calls == [("append", "00000000000000000000.log")] * 50


def test_a_full_segment_gives_way_to_a_new_one(disk: MemoryDisk) -> None:
    size = len(batch(size=100))
    log = log_on(disk, LogSettings(segment_bytes=3 * size))
    for _ in range(7):
        produce(log, batch(size=100))
    assert segments_of(disk) == [0, 3, 6]
    assert values_of(log) == list(range(7))
    assert log.sealed_end == 6


def test_an_old_segment_gives_way_by_the_time_of_its_records(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(segment_ms=1000))
    produce(log, batch(timestamp=NOW_MS))
    produce(log, batch(timestamp=NOW_MS + 1000))
    produce(log, batch(timestamp=NOW_MS + 1001))
    assert segments_of(disk) == [0, 2]


def test_jitter_lets_a_segment_give_way_earlier_but_never_later(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(segment_ms=1000, segment_jitter_ms=900))
    produce(log, batch(timestamp=NOW_MS))
    assert not log.maybe_roll(NOW_MS + 99)
    assert log.maybe_roll(NOW_MS + 1001)
    assert not log.maybe_roll(NOW_MS + 9999), "an empty segment stays"


def test_without_timestamps_the_clock_decides(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(segment_ms=1000))
    produce(log, batch(timestamp=-1), now_ms=NOW_MS)
    produce(log, batch(timestamp=-1), now_ms=NOW_MS + 1000)
    produce(log, batch(timestamp=-1), now_ms=NOW_MS + 1001)
    assert segments_of(disk) == [0, 2]


def test_a_log_nobody_uses_has_nothing_to_roll(disk: MemoryDisk) -> None:
    assert not log_on(disk).maybe_roll(NOW_MS)


def test_a_full_index_ends_a_segment(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(index_bytes_max=24, index_interval_bytes=100))
    for _ in range(8):
        produce(log, batch(size=100))
    assert segments_of(disk) == [0, 3, 6]


def test_offsets_too_far_from_the_base_end_a_segment(disk: MemoryDisk) -> None:
    log = log_on(disk)
    produce(log, batch())
    log.truncate_fully_and_start_at(10)
    produce(log, batch())
    view = batch()
    view[:8] = (10 + 2**31).to_bytes(8, "big")
    log.append_as_follower(NOW, NOW_MS, view)
    assert segments_of(disk) == [10, 11]


def test_rolling_an_empty_segment_does_nothing(disk: MemoryDisk) -> None:
    log = log_on(disk)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert segments_of(disk) == [0]


def test_a_full_disk_leaves_the_log_as_it_was(disk: MemoryDisk) -> None:
    log = log_on(disk)
    produce(log, batch(2, producer=(1, 0, 0)))
    disk.fail_append_after = 10
    with pytest.raises(OSError, match="full"):
        produce(log, batch(2, producer=(1, 0, 2)))
    assert values_of(log) == [0, 1]
    again = produce(log, batch(2, producer=(1, 0, 2)))
    assert (again.first_offset, again.duplicate) == (2, False)


def test_a_leader_that_goes_back_is_a_bug(disk: MemoryDisk) -> None:
    log = log_on(disk)
    produce(log, batch(), epoch=5)
    with pytest.raises(AssertionError, match="goes back"):
        produce(log, batch(), epoch=4)


def test_append_time_is_in_the_answer(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(log_append_time=True))
    assert produce(log, batch(producer=(1, 0, 0))).log_append_time_ms == NOW_MS
    again = produce(log, batch(producer=(1, 0, 0)), now_ms=NOW_MS + 5)
    assert (again.duplicate, again.log_append_time_ms) == (True, NOW_MS)


def test_a_follower_appends_what_the_leader_wrote(disk: MemoryDisk) -> None:
    leader = log_on(disk)
    for epoch in (0, 0, 2):
        produce(leader, batch(3, producer=(9, 0, leader.end)), epoch=epoch)
    piece = leader.read(0, 10_000, leader.end, min_one=True)
    assert piece is not None
    other = MemoryDisk()
    follower = log_on(other)
    done = follower.append_as_follower(NOW, NOW_MS, piece.file.read(0, piece.size))
    assert done[:2] == (0, 8)
    assert follower.epochs == leader.epochs
    assert encode_snapshot(follower.producers) == encode_snapshot(leader.producers)
    assert other.directory().directory("t-0").content(
        "00000000000000000000.log"
    ) == disk.directory().directory("t-0").content("00000000000000000000.log")


@pytest.mark.parametrize(("at", "wrong"), [(0, 0xFF), (80, 0xFF), (23, 0xFF)])
def test_a_follower_takes_no_damaged_or_misplaced_batch(
    disk: MemoryDisk, at: int, wrong: int
) -> None:
    log = log_on(disk)
    view = batch(size=40)
    view[at] = wrong
    with pytest.raises(CorruptError):
        log.append_as_follower(NOW, NOW_MS, view)
    assert log.end == 0


def is_due(log: Log, now: Instant) -> bool:
    return log.dirty.is_due(now, log.end, log.settings.flush)


def test_a_flush_is_due_by_count_and_by_time(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(flush=FlushRules(messages=3, interval_ms=100)))
    assert not is_due(log, NOW)
    produce(log, batch(2))
    assert not is_due(log, Instant(ms(99)))
    assert is_due(log, Instant(ms(100)))
    produce(log, batch(1))
    assert is_due(log, NOW)
    flush(log)
    assert not is_due(log, Instant(ms(100)))
    assert log.recovery_point == 3


def test_a_flush_of_sealed_segments_leaves_the_rest_dirty(disk: MemoryDisk) -> None:
    log = log_on(disk, LogSettings(flush=FlushRules(interval_ms=100)))
    produce(log, batch(2))
    log.roll(NOW_MS)
    produce(log, batch(2))
    for file in log.dirty_files(log.sealed_end):
        file.sync()
    log.flushed(log.sealed_end)
    assert log.recovery_point == 2
    assert is_due(log, Instant(ms(100)))


def test_a_log_without_files_has_nothing_to_flush(disk: MemoryDisk) -> None:
    assert log_on(disk).dirty_files(0) == []


def test_a_cut_while_a_flush_is_under_way_is_not_taken_for_flushed(disk: MemoryDisk) -> None:
    log = log_on(disk)
    for _ in range(3):
        produce(log, batch())
    upto = log.end
    for file in log.dirty_files(upto):
        file.sync()
    log.truncate_to(1)
    for _ in range(5):
        produce(log, batch(), epoch=1)
    log.flushed(upto)
    assert log.recovery_point == 1


def test_what_a_clean_stop_left_unflushed_can_be_flushed_later(disk: MemoryDisk) -> None:
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, new_log(disk.directory()).name.topic_id, LogSettings())
    produce(log, batch(4))
    logs.close_clean({})
    disk.kill()
    reopened = open_logs(disk.directory()).log("t", 0)
    assert reopened is not None
    assert (reopened.recovery_point, reopened.end) == (0, 4)
    flush(reopened)
    assert reopened.recovery_point == 4
    assert reopened.dirty_files(4) == []
