"""A segment flushed first and sealed later: its indexes must not be older than its batches."""

import errno

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, by_time, flush, open_logs, produce
from tidelog.kernel.failures import CorruptError
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


@pytest.mark.parametrize("has_log", [True, False], ids=["no descriptor", "no file"])
def test_a_segment_whose_index_cannot_be_made_again_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, *, has_log: bool
) -> None:
    """Readers and followers would skip its records, as if compaction had taken them."""
    disk = MemoryDisk()
    logs, log = opened(disk)
    produce(log, batch(1))
    log.roll(NOW_MS)
    produce(log, batch(1))
    logs.close_clean({})
    disk.kill()
    _, log = opened(disk)
    directory = log.directory
    directory.unlink(f"{0:020d}.index")

    def no_descriptor(name: str) -> object:
        raise OSError(errno.EMFILE, "too many open files", name)

    assert log.end == 2
    first = log.segments[0]
    if has_log:
        monkeypatch.setattr(directory, "open", no_descriptor)
        monkeypatch.setattr(directory, "open_existing", no_descriptor)
    else:
        directory.unlink(first.name)
    for _ in range(2):
        with pytest.raises((OSError, CorruptError)):
            log.read(0, 1_000_000, 2, min_one=True)
    assert directory.exists(first.name) == has_log
    if has_log:
        monkeypatch.undo()
        found = log.read(0, 1_000_000, 2, min_one=True)
        assert found is not None
        assert found.file.name == first.name
