"""A stop that flushes everything leaves nothing that a power loss could take."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import RecordedDisk
from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.flusher import Flusher

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=100)


def unreadable(log: Log, error: Exception) -> None:
    raise AssertionError(log.name) from error


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


def stop(logs: LogDirectory, *, sync: bool) -> None:
    def failed(error: OSError) -> None:
        raise error

    async def run() -> None:
        flusher = Flusher(asyncio.get_running_loop(), logs, failed, failed, unreadable)
        closed = asyncio.Event()
        flusher.close(dict, sync=sync, done=closed.set)
        await closed.wait()

    asyncio.run(run())


def written(disk: RecordedDisk) -> LogDirectory:
    logs = open_logs(disk.directory, settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    for number in range(20):
        produce(log, batch(3, size=100, producer=(7, 0, number * 3)))
    return logs


def unstable(disk: RecordedDisk) -> list[str]:
    """Files, and names, that a power loss could change."""
    found = disk.survey()
    files = [file.path for file in found.files.values() if not file.is_stable]
    return files + [seen.path for seen in found.directories.values() if seen.now != seen.durable]


def test_after_a_stop_that_flushes_everything_all_of_it_is_on_stable_storage(
    disk: RecordedDisk,
) -> None:
    stop(written(disk), sync=True)
    assert unstable(disk) == []
    disk.lose_power(seed=1)
    again = open_logs(disk.directory, settings=SETTINGS, boot_id="boot-2")
    assert again.last_stop is LastStop.CLEAN


def test_also_of_logs_that_were_not_used_since_a_stop_that_did_not(disk: RecordedDisk) -> None:
    stop(written(disk), sync=False)
    assert unstable(disk)
    stop(open_logs(disk.directory, settings=SETTINGS), sync=True)
    assert unstable(disk) == []


def test_also_of_a_log_whose_batches_were_flushed_before(disk: RecordedDisk) -> None:
    logs = written(disk)
    for log in logs:
        upto = log.end
        for file in log.dirty_files(upto):
            file.sync()
        log.flushed(upto)
    stop(logs, sync=False)
    stop(open_logs(disk.directory, settings=SETTINGS), sync=True)
    assert unstable(disk) == []
