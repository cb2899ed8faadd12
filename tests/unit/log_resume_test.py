"""A log that is opened again with another index.interval.bytes, and is cut."""

from harness.log_batches import NOW_MS, TOPIC_ID, batch, by_time, open_logs, produce
from harness.memory_disk import MemoryDisk
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
