"""After a start a broker takes for committed only what was: a checkpoint of the high watermark that
lies beyond the end of a log must not outlive what comes next in that log."""

from collections.abc import Callable

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Partition
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings

COMMITTED = 6
ANOTHER_BOOT = "boot-2"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def written(disk: MemoryDisk, partitions: int = 1, *, flushed: bool = True) -> LogDirectory:
    """Logs with six records each, all of them committed, as the checkpoint in force says."""
    logs = open_logs(disk.directory())
    for partition in range(partitions):
        log = logs.create("t", Partition(partition), TOPIC_ID, LogSettings())
        for _ in range(3):
            produce(log, batch(2))
        if flushed:
            flush(log)
    settle(logs, {("t", Partition(partition)): COMMITTED for partition in range(partitions)})
    logs.sync()
    return logs


def settle(logs: LogDirectory, high_watermarks: dict[tuple[str, Partition], int]) -> None:
    checkpoint = logs.checkpoint(high_watermarks)
    checkpoint.write()
    logs.checkpointed(checkpoint)


def log_of(logs: LogDirectory, partition: int = 0) -> Log:
    log = logs.log("t", Partition(partition))
    assert log is not None
    return log


def cut_to_2(log: Log) -> None:
    log.truncate_to(2)


def start_anew(log: Log) -> None:
    log.truncate_fully_and_start_at(0)


def cut_and_write_epochs(log: Log) -> None:
    log.truncate_to(2)
    log.begin_epoch(1)
    log.advance_start(1)


@pytest.mark.parametrize("cut", [cut_to_2, start_anew, cut_and_write_epochs])
@pytest.mark.parametrize("batches", [1, 4])
def test_what_follows_a_cut_below_the_high_watermark_is_not_committed_after_a_kill(
    disk: MemoryDisk, cut: Callable[[Log], None], batches: int
) -> None:
    """An unclean election chose a leader that lacks what was committed."""
    log = log_of(written(disk))
    cut(log)
    end = log.end
    for _ in range(batches):
        produce(log, batch(2), epoch=1)
    disk.kill()
    assert open_logs(disk.directory()).high_watermark("t", 0) <= end


def test_a_checkpoint_that_is_being_written_does_not_bring_it_back(disk: MemoryDisk) -> None:
    logs = written(disk)
    settle(logs, {("t", Partition(0)): 0})
    pending = logs.checkpoint({("t", Partition(0)): COMMITTED})
    pending.write()
    log = log_of(logs)
    log.truncate_to(2)
    produce(log, batch(2), epoch=1)
    logs.checkpointed(pending)
    disk.kill()
    assert open_logs(disk.directory()).high_watermark("t", 0) <= 2


def test_what_follows_what_a_power_loss_took_is_not_committed_after_a_kill(
    disk: MemoryDisk,
) -> None:
    written(disk, flushed=False)
    disk.lose_power()
    logs = open_logs(disk.directory(), boot_id=ANOTHER_BOOT)
    log = log_of(logs)
    assert log.end < COMMITTED
    end = log.end
    produce(log, batch(2), epoch=log.latest_epoch)
    disk.kill()
    assert open_logs(disk.directory(), boot_id=ANOTHER_BOOT).high_watermark("t", 0) == end


def test_the_coordinator_is_told_what_was_committed_of_logs_nobody_wrote_to(
    disk: MemoryDisk,
) -> None:
    """Though the first log that grows has the checkpoints of all written."""
    written(disk, partitions=3, flushed=False)
    disk.lose_power()
    logs = open_logs(disk.directory(), boot_id=ANOTHER_BOOT)
    produce(log_of(logs, 0), batch(2), epoch=1)
    told = [logs.checkpointed_high_watermark(("t", Partition(at))) for at in range(3)]
    assert told == [0, COMMITTED, COMMITTED]


def test_a_thousand_logs_that_lost_their_ends_write_their_checkpoint_once(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(disk, partitions=50, flushed=False)
    disk.lose_power()
    logs = open_logs(disk.directory(), boot_id=ANOTHER_BOOT)
    write, writes = logs._write_checkpoints, 0

    def counted() -> None:
        nonlocal writes
        writes += 1
        write()

    monkeypatch.setattr(logs, "_write_checkpoints", counted)
    for partition in range(50):
        produce(log_of(logs, partition), batch(2), epoch=1)
    assert writes == 1


def test_without_room_for_the_checkpoint_the_log_does_not_grow(disk: MemoryDisk) -> None:
    log = log_of(written(disk))
    log.truncate_to(2)
    disk.failing["replace"] = 28
    for _ in range(2):
        with pytest.raises((OSError, CorruptError)):
            produce(log, batch(2), epoch=1)
        assert log.end == 2
    disk.failing.clear()
    produce(log, batch(2), epoch=1)
    disk.kill()
    assert open_logs(disk.directory()).high_watermark("t", 0) <= 2
