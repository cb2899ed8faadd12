"""A segment flushed first and sealed later: its indexes must not be older than its batches."""

import pytest

from harness.log_batches import NOW_MS, TOPIC_ID, batch, by_time, flush, open_logs, produce
from harness.memory_disk import MemoryDisk
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings

SETTINGS = LogSettings(segment_bytes=4096)
LATER_MS = NOW_MS + 600
DIRECTORY = "t-0"


def opened(disk: MemoryDisk, boot: int = 1) -> tuple[LogDirectory, Log]:
    logs = open_logs(disk.directory(), settings=SETTINGS, boot_id=f"boot-{boot}")
    return logs, logs.create("t", 0, TOPIC_ID, SETTINGS)


def checkpoint(disk: MemoryDisk, logs: LogDirectory) -> None:
    written = logs.checkpoint({})
    written.write()
    logs.checkpointed(written)
    disk.directory().sync()


def sealed_after_its_flush() -> tuple[MemoryDisk, LogDirectory, Log]:
    """The indexes of the first segment are durable as of the first record only."""
    disk = MemoryDisk()
    logs, log = opened(disk)
    produce(log, batch(1))
    logs.close_clean({}, synced=True)
    for name in disk.directory().directory(DIRECTORY).names():
        disk.directory().directory(DIRECTORY).syncable(name).sync()
    disk.kill()
    logs, log = opened(disk)
    produce(log, batch(1, timestamp=LATER_MS))
    flush(log)
    log.roll(NOW_MS)
    checkpoint(disk, logs)
    disk.directory().directory(DIRECTORY).sync()  # as a flush of another log's names may
    return disk, logs, log


def look_up(disk: MemoryDisk) -> int | None:
    _, log = opened(disk, boot=2)
    found = by_time(log, LATER_MS, log.end)
    return None if found is None else found.offset


def test_a_power_loss_right_after_sealing_leaves_no_index_that_is_too_short() -> None:
    disk, _, _ = sealed_after_its_flush()
    disk.lose_power()
    assert look_up(disk) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_the_next_flush_brings_the_sealed_indexes_to_disk(*, killed: bool) -> None:
    disk, logs, log = sealed_after_its_flush()
    if killed:
        disk.kill()
        logs, log = opened(disk)
    produce(log, batch(1))
    flush(log)
    checkpoint(disk, logs)
    disk.lose_power()
    assert look_up(disk) == 1


def test_a_sealed_segment_that_is_written_to_again_keeps_its_times() -> None:
    disk = MemoryDisk()
    _, log = opened(disk)
    for _ in range(3):
        produce(log, batch(1))
        log.roll(NOW_MS)
    flush(log)
    place = disk.directory().directory(DIRECTORY)
    place.unlink(f"{1:020d}.log")
    place.sync()
    disk.directory().sync()
    disk.lose_power()
    _, log = opened(disk, boot=2)
    assert log.end == 1
    produce(log, batch(1, timestamp=LATER_MS))
    for _ in range(2):  # the first one reads the indexes
        found = by_time(log, LATER_MS, log.end)
        assert found is not None
        assert found.offset == 1
