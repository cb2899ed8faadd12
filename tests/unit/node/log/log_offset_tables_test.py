"""Checkpoints of many logs: only what changed is looked at and written."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.offset_tables import NAMES, OffsetTables
from tidelog.node.log.settings import LogSettings
from tidelog.wire.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
)
from tidelog.wire.records import place_batch

SETTINGS = LogSettings()
LOGS = 50


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def logs(disk: MemoryDisk) -> LogDirectory:
    """Fifty logs of two records, their checkpoints in force."""
    made = open_logs(disk.directory())
    for partition in range(LOGS):
        produce(made.create("t", partition, TOPIC_ID, SETTINGS), batch(2))
    checkpoint(made)
    return made


def key(partition: int) -> TopicPartition:
    return "t", Partition(partition)


def at(logs: LogDirectory, partition: int) -> Log:
    log = logs.log("t", partition)
    assert log is not None
    return log


def checkpoint(logs: LogDirectory) -> set[str]:
    """As a broker that leads all logs and has no followers; which files it wrote."""
    ends = {log.name.key: log.end for log in logs}
    made = logs.checkpoint({one: ends[one] for one in logs.unsettled()})
    made.write()
    logs.checkpointed(made)
    return {*made.tables}


def in_force(disk: MemoryDisk, name: str) -> dict[TopicPartition, int]:
    return {**decode_offsets(disk.directory().read_all(name) or b"", place=name)}


def test_nothing_is_written_where_nothing_changed(disk: MemoryDisk, logs: LogDirectory) -> None:
    disk.calls.clear()
    assert logs.unsettled() == []
    assert checkpoint(logs) == set()
    assert disk.calls == []


def test_one_append_is_one_row_of_one_table(disk: MemoryDisk, logs: LogDirectory) -> None:
    produce(at(logs, 7), batch(3))
    assert logs.unsettled() == [key(7)]
    assert checkpoint(logs) == {HIGH_WATERMARKS}
    assert in_force(disk, HIGH_WATERMARKS) == {
        key(one): 5 if one == 7 else 2 for one in range(LOGS)
    }
    assert logs.unsettled() == []


def test_what_a_leader_sends_is_noted_too(logs: LogDirectory) -> None:
    view = batch(3)
    place_batch(view, 0, base_offset=2, leader_epoch=1)
    at(logs, 7).append_as_follower(NOW, NOW_MS, view)
    assert logs.unsettled() == [key(7)]


def test_a_start_after_a_clean_stop_has_nothing_to_write(
    disk: MemoryDisk, logs: LogDirectory
) -> None:
    produce(at(logs, 7), batch(3))
    logs.close_clean({key(7): 5})
    logs = open_logs(disk.directory())
    assert logs.unsettled() == []
    assert checkpoint(logs) == set()


def test_each_change_writes_its_own_table(logs: LogDirectory) -> None:
    flush(at(logs, 1))
    assert checkpoint(logs) == {RECOVERY_POINTS}
    at(logs, 2).advance_start(1)
    assert checkpoint(logs) == {LOG_STARTS}
    logs.note_cleaned(key(3), 0)
    assert checkpoint(logs) == {CLEANED}
    logs.plan_starts({key(4): 2})
    assert checkpoint(logs) == {LOG_STARTS}
    logs.plan_starts({})
    assert checkpoint(logs) == {LOG_STARTS}, "the plan was given up"
    logs.delete("t", 5)
    assert checkpoint(logs) == {RECOVERY_POINTS, HIGH_WATERMARKS}


def test_one_write_makes_the_starts_of_all_logs_durable(
    disk: MemoryDisk, logs: LogDirectory
) -> None:
    for log in logs:
        log.advance_start(1)
    disk.calls.clear()
    at(logs, 7).keep_start()
    assert disk.calls
    disk.calls.clear()
    for log in logs:
        log.keep_start()
    assert disk.calls == []
    disk.lose_power()
    assert {log.start for log in open_logs(disk.directory())} == {1}


def test_a_log_is_looked_at_until_its_high_watermark_is_at_its_end(
    disk: MemoryDisk, logs: LogDirectory
) -> None:
    produce(at(logs, 7), batch(3))
    for known in (2, 4, 5):
        assert logs.unsettled() == [key(7)]
        made = logs.checkpoint({key(7): known})
        made.write()
        logs.checkpointed(made)
        assert in_force(disk, HIGH_WATERMARKS)[key(7)] == known
    assert logs.unsettled() == []
    at(logs, 7).truncate_to(3)
    assert logs.unsettled() == [key(7)], "it is to be told that it lies behind the end"


def test_a_start_after_a_kill_looks_at_logs_whose_high_watermarks_lie_behind(
    disk: MemoryDisk, logs: LogDirectory
) -> None:
    produce(at(logs, 7), batch(3))
    disk.kill()
    assert open_logs(disk.directory()).unsettled() == [key(7)]


def test_a_checkpoint_that_was_not_written_is_due_again(logs: LogDirectory) -> None:
    produce(at(logs, 7), batch(3))
    given_up = logs.checkpoint({key(7): 5})
    assert {*given_up.tables} == {HIGH_WATERMARKS}
    assert checkpoint(logs) == {HIGH_WATERMARKS}
    assert checkpoint(logs) == set()


def test_what_changes_while_a_checkpoint_is_written_is_due_again(
    disk: MemoryDisk, logs: LogDirectory
) -> None:
    produce(at(logs, 7), batch(3))
    made = logs.checkpoint({key(7): 5})
    produce(at(logs, 8), batch(1))
    early = logs.checkpoint({key(8): 3})
    made.write()
    logs.checkpointed(made)
    assert in_force(disk, HIGH_WATERMARKS)[key(8)] == 2
    assert checkpoint(logs) == {HIGH_WATERMARKS}
    assert in_force(disk, HIGH_WATERMARKS)[key(8)] == 3
    assert early.versions != made.versions


def test_a_checkpoint_overtaken_by_a_cut_leaves_nothing_due(logs: LogDirectory) -> None:
    flush(at(logs, 7))
    made = logs.checkpoint({})
    made.write()
    at(logs, 7).truncate_to(1)
    logs.checkpointed(made)
    assert checkpoint(logs) <= {HIGH_WATERMARKS}, "the cut wrote all tables at once"


def test_a_table_without_a_file_is_due(disk: MemoryDisk, logs: LogDirectory) -> None:
    for name in (LOG_STARTS, HIGH_WATERMARKS):
        disk.directory().unlink(name)
    logs.close_clean({})
    logs = open_logs(disk.directory())
    assert checkpoint(logs) == {LOG_STARTS, HIGH_WATERMARKS}


def test_a_log_that_went_by_hand_leaves_no_row(disk: MemoryDisk, logs: LogDirectory) -> None:
    logs.close_clean({})
    disk.directory().remove_tree("t-7")
    checkpoint(open_logs(disk.directory()))
    assert key(7) not in in_force(disk, HIGH_WATERMARKS)
    assert len(in_force(disk, HIGH_WATERMARKS)) == LOGS - 1


def test_what_a_cut_took_is_not_clean_any_more(disk: MemoryDisk, logs: LogDirectory) -> None:
    log = at(logs, 7)
    for _ in range(3):
        produce(log, batch(2))
    flush(log)
    logs.note_cleaned(key(7), 6)
    checkpoint(logs)
    assert in_force(disk, CLEANED) == {key(7): 6}
    log.truncate_to(4)
    assert in_force(disk, CLEANED) == {key(7): 4}


def test_rows_of_logs_that_are_not_there_are_dropped() -> None:
    gone, there = key(1), key(2)
    tables = OffsetTables({name: {gone: 4, there: 5} for name in NAMES})
    assert tables.changed() == {}
    tables.keep_only({there})
    assert {*tables.changed()} == {*NAMES}
    assert all(tables.copy(name) == {there: 5} for name in NAMES)
