"""Indexes of a log that is opened again with another index.interval.bytes, or could not roll."""

import errno

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, by_time, open_logs, produce
from tidelog.node.log.index import TIME_ENTRY
from tidelog.node.log.segments import SEGMENTS_KEPT_LOADED
from tidelog.node.log.settings import LogSettings


def test_a_cut_after_a_restart_keeps_the_times_of_earlier_batches() -> None:
    disk = MemoryDisk()
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, LogSettings())
    for late_by_ms in (50, 0, 90):
        produce(log, batch(1, timestamp=NOW_MS + late_by_ms))
    logs.close_clean({log.name.key: log.end})
    disk.kill()
    # With a smaller interval the same batches get entries in the offset index.
    opened = open_logs(disk.directory(), settings=LogSettings(index_interval_bytes=1))
    log = opened.create("t", 0, TOPIC_ID, LogSettings(index_interval_bytes=1))
    assert log.truncate_to(2) == 2
    found = by_time(log, NOW_MS + 1, log.end)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 50, 0)


def test_a_time_is_found_though_the_time_index_lacks_entries_for_earlier_rises() -> None:
    """Earlier versions left them out when a log was opened again with a smaller interval."""
    disk = MemoryDisk()
    settings = LogSettings(index_interval_bytes=100)
    logs = open_logs(disk.directory(), settings=settings)
    log = logs.create("t", 0, TOPIC_ID, settings)
    for at in range(200):
        produce(log, batch(1, size=1_000, timestamp=NOW_MS + at))
    logs.close_clean({log.name.key: log.end})
    times = log.directory.content(f"{0:020d}.timeindex")  # type: ignore[attr-defined] # MemoryDirectory
    del times[TIME_ENTRY.size : -TIME_ENTRY.size]
    disk.kill()
    log = open_logs(disk.directory(), settings=settings).create("t", 0, TOPIC_ID, settings)
    found = [by_time(log, NOW_MS + at, log.end) for at in range(200)]
    assert [one and one.offset for one in found] == list(range(200))


def test_a_segment_that_could_not_be_sealed_for_lack_of_room_keeps_its_indexes() -> None:
    """It goes on as the active one: they may not be let go of as those of a sealed segment."""
    disk = MemoryDisk()
    settings = LogSettings(index_interval_bytes=1)
    log = open_logs(disk.directory(), settings=settings).create("t", 0, TOPIC_ID, settings)
    for at in range(SEGMENTS_KEPT_LOADED + 1):
        produce(log, batch(1, timestamp=NOW_MS))
        log.roll(NOW_MS + at)
    produce(log, batch(1, timestamp=NOW_MS))
    log.segments[-1].write_indexes(final=True)  # there is room for these files, but no other one
    disk.failing["create"] = errno.ENOSPC
    with pytest.raises(OSError, match="sick"):
        log.roll(NOW_MS)
    disk.failing.clear()
    produce(log, batch(1, timestamp=NOW_MS + 500))
    for offset in range(SEGMENTS_KEPT_LOADED + 1):
        log.read(offset, 1, log.end, min_one=True)
    produce(log, batch(1, timestamp=NOW_MS + 500))
    assert len(log.segments[-1].offsets) == 2
    produce(log, batch(1, timestamp=NOW_MS + 900))
    found = by_time(log, NOW_MS + 300, log.end)
    assert found is not None
    assert found.offset == SEGMENTS_KEPT_LOADED + 2
