"""A log is cut while its disk is sick: what is gone is forgotten all the same."""

import errno

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import TOPIC_ID, batch, flush, open_logs, produce, values_of
from harness.logs.one_log import Broker
from harness.logs.transactions import Writer, known_of
from tidelog.kernel.failures import FailedSyncError
from tidelog.kernel.ids import BrokerId, Epoch, Offset
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.replica.follower import Follower


@pytest.mark.parametrize("operation", ["replace", "sync"])
def test_who_wrote_what_is_cut_is_forgotten_though_the_disk_is_sick(operation: str) -> None:
    """Else its next batch would be refused as one that is there already, or has a gap before it."""
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    writer = Writer()
    writer.write(log, plain=True, epoch=0)
    before = known_of(log.producers)
    writer.write(log, plain=True, epoch=1)
    if operation == "sync":  # else nothing of it is durable, and no sync is wanted
        flush(log)
    disk.failing[operation] = errno.ENOSPC
    with pytest.raises(FailedSyncError if operation == "sync" else OSError, match="sick"):
        log.truncate_to(1)
    assert log.end == 1
    assert known_of(log.producers) == before


@pytest.mark.parametrize("to", [13, 0])
def test_what_was_flushed_is_not_cut_before_that_is_written_down(to: int) -> None:
    """Else a start would find less than its checkpoint vouches for, and give the log up; so where
    there is no room for that the second attempt must be refused as the first one was."""
    broker = Broker(12, flushed=12)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.advance_start(2)
    broker.disk.failing["replace"] = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(OSError, match="sick"):
            log.truncate_to(to)
        assert (log.start, log.end) == (2, 24)
    broker.disk.kill()
    broker.disk.failing.clear()
    assert values_of(broker.restart())[-1] == 23


def test_what_was_cut_stays_cut_though_there_was_no_room_for_the_epochs() -> None:
    """Were it to come back after a power loss, it might lie behind what was written since."""
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    produce(log, batch(1))
    produce(log, batch(1), epoch=1)
    flush(log)  # without a checkpoint: the next life does not know of it
    disk.kill()
    log = _started(disk)
    disk.failing["replace"] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        log.truncate_to(1)
    disk.failing.clear()
    disk.lose_power()
    assert values_of(_started(disk, "boot-2")) == [0]


@pytest.mark.parametrize("to", [0, 7])
def test_a_full_cut_without_room_changes_nothing_and_is_tried_again(to: int) -> None:
    """Its segments were removed first, and then there was none: the next cut ended the broker."""
    disk = MemoryDisk()
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, LogSettings(segment_bytes=200))
    for _ in range(4):
        produce(log, batch(1))
    assert len(log.segments) > 1
    log.advance_start(1)
    disk.failing["create"] = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(OSError, match="sick"):
            log.truncate_fully_and_start_at(to)
        assert (log.start, log.end, values_of(log)) == (1, 4, [1, 2, 3])
    disk.failing.clear()
    log.truncate_fully_and_start_at(to)
    assert (log.start, log.end, len(log.segments)) == (to, to, 1)
    assert produce(log, batch(1), epoch=1).first_offset == to
    disk.kill()
    assert values_of(_started(disk)) == [to]


def test_what_a_full_cut_had_begun_when_its_process_died_is_no_part_of_the_log() -> None:
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    produce(log, batch(3))
    disk.failing["unlink"] = errno.EIO
    with pytest.raises(OSError, match="sick"):
        log.truncate_fully_and_start_at(100)
    disk.kill()
    disk.failing.clear()
    found = _started(disk)
    assert (found.start, found.end) == (0, 3)
    assert not any(name.endswith(".tmp") for name in found.directory.names())


def _started(disk: MemoryDisk, boot_id: str = "boot-1") -> Log:
    log = open_logs(disk.directory(), boot_id=boot_id).log("t", 0)
    assert log is not None
    return log


@pytest.mark.parametrize("operation", ["replace", "sync"])
def test_no_high_watermark_stays_above_a_cut_that_the_disk_did_not_end(operation: str) -> None:
    """Else all that is written there next would be read as committed."""
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    produce(log, batch(1))
    produce(log, batch(1), epoch=1)
    if operation == "sync":  # else nothing of it is durable, and no sync is wanted
        flush(log)
    follower = Follower(BrokerId(1), Epoch(2), Offset(2))
    disk.failing[operation] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        follower.cut(log, Offset(1))
    assert (log.end, follower.high_watermark) == (1, 1)


def test_no_high_watermark_stays_below_a_log_that_started_anew_as_its_disk_failed() -> None:
    disk = MemoryDisk()
    log = open_logs(disk.directory()).create("t", 0, TOPIC_ID, LogSettings())
    produce(log, batch(3))
    follower = Follower(BrokerId(1), Epoch(2), Offset(2))
    disk.failing["replace"] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        follower.start_anew(log, Offset(100))
    assert (log.start, log.end, follower.high_watermark) == (100, 100, 100)
