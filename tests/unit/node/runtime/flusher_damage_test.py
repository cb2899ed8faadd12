"""A log directory's background work meets logs that cannot be read: it goes on with the others, and
the broker lives."""

import asyncio
import errno
from pathlib import Path

import pytest

from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.kernel.ids import Partition
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.marks import MARK_NAME, Mark, decode_mark
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.flusher import Flusher
from tidelog.wire import checkpoints

SETTINGS = LogSettings()


def fail(error: OSError) -> None:
    raise error


def stopped_cleanly(folder: Path) -> None:
    """Two logs that nobody has flushed."""
    logs = open_logs(open_disk(str(folder)), settings=SETTINGS)
    for partition in range(2):
        produce(logs.create("t", partition, TOPIC_ID, SETTINGS), batch(10))
    logs.close_clean({})


def opened(folder: Path) -> LogDirectory:
    """Both logs are known from the mark of the clean stop; nobody has read them yet."""
    logs = open_logs(open_disk(str(folder)), settings=SETTINGS)
    assert all(log.closed is not None for log in logs)
    return logs


def stop(logs: LogDirectory) -> list[tuple[Log, Exception]]:
    """Flush everything and close; what could not be read."""
    unread: list[tuple[Log, Exception]] = []

    async def run() -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        flusher = Flusher(loop, logs, fail, fail, lambda *what: unread.append(what))
        flusher.close(dict, sync=True, done=done.set)
        await asyncio.wait_for(done.wait(), 10)

    asyncio.run(run())
    return unread


def mark_in(folder: Path) -> Mark:
    mark = decode_mark((folder / MARK_NAME).read_bytes())
    assert mark is not None
    return mark


def points_in(folder: Path) -> checkpoints.Offsets:
    content = (folder / checkpoints.RECOVERY_POINTS).read_bytes()
    return checkpoints.decode_offsets(content, place="points")


def test_a_stop_flushes_the_other_logs_where_one_has_changed_under_it(tmp_path: Path) -> None:
    stopped_cleanly(tmp_path)
    logs = opened(tmp_path)
    with (tmp_path / "t-0/00000000000000000000.log").open("r+b") as file:
        file.truncate(7)
    unread = stop(logs)
    assert [log.name.partition for log, _ in unread] == [0]
    mark = mark_in(tmp_path)
    assert (mark.clean, mark.synced) == (True, False), "not all of it was flushed"
    assert list(mark.logs) == ["t-1"], "the next start must read the other one"
    assert points_in(tmp_path)["t", Partition(1)] == 10
    again = open_logs(open_disk(str(tmp_path)), settings=SETTINGS)
    assert again.log("t", 1) is not None


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_stop_goes_on_where_the_disk_cannot_read_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    stopped_cleanly(tmp_path)
    logs = opened(tmp_path)
    names = DiskDirectory.names

    def sick(directory: DiskDirectory) -> list[str]:
        if directory.path.endswith("t-0"):
            raise OSError(number, "the disk is sick", directory.path)
        return names(directory)

    monkeypatch.setattr(DiskDirectory, "names", sick)
    unread = stop(logs)
    assert [log.name.partition for log, _ in unread] == [0]
    assert not mark_in(tmp_path).synced
    assert points_in(tmp_path)["t", Partition(1)] == 10


def test_a_sealed_segment_of_a_sick_directory_is_told_and_the_others_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        logs = open_logs(open_disk(str(tmp_path)), settings=SETTINGS)
        both = [logs.create("t", number, TOPIC_ID, SETTINGS) for number in range(2)]
        for log in both:
            produce(log, batch(10))
            log.roll(0)
        unread: list[Log] = []
        flusher = Flusher(
            asyncio.get_running_loop(), logs, fail, fail, lambda log, _: unread.append(log)
        )
        names = DiskDirectory.names

        def sick(directory: DiskDirectory) -> list[str]:
            if directory.path.endswith("t-0"):
                raise OSError(errno.EIO, "the disk is sick", directory.path)
            return names(directory)

        with monkeypatch.context() as patch:
            patch.setattr(DiskDirectory, "names", sick)
            flusher.turn(None)
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        flusher.checkpoint(told.set_result)
        assert await told is True
        assert unread == both[:1]
        assert [log.recovery_point for log in both] == [0, 10]

    asyncio.run(run())
