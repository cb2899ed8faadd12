"""Housekeeping and retention meet a bad log, or a sick disk: that is told, and the broker lives."""

import asyncio
import errno
from pathlib import Path

import pytest

from harness.logs.batches import NOW, NOW_MS, TOPIC_ID, batch, open_logs, owner, produce
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.storage import Storage, StorageParts
from tidelog.wire.records import place_batch

SETTINGS = LogSettings()
FAR = 2**30 + 10
DAY_MS = 86_400_000
RETENTION = {"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 1}


class Broker:
    """The storage of one life, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.unread: list[tuple[TopicPartition, Exception]] = []
        self.now_ms = NOW_MS
        self.replicas = Replicas()
        self.expired: list[TopicPartition] = []
        parts = StorageParts(
            loop=asyncio.get_running_loop(),
            replicas=self.replicas,
            settings=RETENTION,
            log=EventLog("test"),
            wall_ms=lambda: self.now_ms,
            begins_later=self.expired.append,
            high_watermarks=lambda _: {},
            on_lost=_unexpected,
            on_last_failed=_unexpected,
            on_flushed=lambda *_: None,
            on_unreadable=lambda key, error: self.unread.append((key, error)),
            on_compaction=_unexpected,
        )
        self.storage = Storage(parts, [open_disk(str(folder / "log0"))], owner(incarnation=2))
        self.storage.open(SETTINGS)

    def log(self, partition: int, settings: LogSettings = SETTINGS) -> Log:
        log = self.storage.logs.create("t", partition, TOPIC_ID, settings)
        replica = Replica("t", Partition(partition), TOPIC_ID, log, rules_of(settings))
        self.replicas.add(replica)
        return log

    def advance(self, logs: list[Log]) -> None:
        """All there is has been copied to every in-sync replica."""
        for log in logs:
            replica = self.replicas.get(log.name.key)
            assert replica is not None
            replica.kept = Offset(log.end)


def _unexpected(*what: object) -> None:
    raise AssertionError(what)


def batch_at(offset: int) -> bytearray:
    """As a follower gets it from a log that was compacted."""
    content = bytearray(batch(1))
    place_batch(memoryview(content), 0, base_offset=offset, leader_epoch=0)
    return content


def stopped_cleanly(folder: Path) -> None:
    """Two logs, each with a sealed segment."""
    logs = open_logs(open_disk(str(folder / "log0")), settings=SETTINGS)
    for partition in range(2):
        log = logs.create("t", partition, TOPIC_ID, SETTINGS)
        produce(log, batch(10))
        log.roll(NOW_MS)
    logs.close_clean({})


def test_housekeeping_goes_on_where_a_log_lacks_a_file(tmp_path: Path) -> None:
    """Before a log rolls a segment that spans a far gap, it forces out all its files: one of them
    is missing."""
    stopped_cleanly(tmp_path)

    async def run() -> None:
        broker = Broker(tmp_path)
        for partition in range(2):
            log = broker.log(partition)
            assert log.segments, "it is read before the file goes"
            log.append_as_follower(NOW, NOW_MS, memoryview(batch_at(12)))
            log.append_as_follower(NOW, NOW_MS, memoryview(batch_at(FAR)))
        (tmp_path / "log0/t-0/00000000000000000000.log").unlink()
        broker.now_ms = NOW_MS + 30 * DAY_MS
        broker.storage.keep_house()
        ((key, error),) = broker.unread
        assert key == ("t", 0)
        assert isinstance(error, CorruptError)
        rolled = broker.storage.logs.log("t", 1)
        assert rolled is not None
        assert rolled.segments[-1].size == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("operation", "number"),
    [("names", errno.EMFILE), ("rename", errno.ENOSPC)],
)
def test_retention_goes_on_where_the_disk_refuses_to_tidy_up_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, number: int
) -> None:
    """The records are gone when the checkpoint says so; what stays behind goes later."""
    settings = LogSettings(delete=True, retention_ms=1000)

    async def run() -> None:
        broker = Broker(tmp_path)
        logs = [broker.log(partition, settings) for partition in range(2)]
        for log in logs:
            produce(log, batch(10, timestamp=NOW_MS - DAY_MS))
            log.roll(NOW_MS)
            produce(log, batch(1))
        broker.storage.turn(checkpoint=True)
        broker.advance(logs)
        put_aside = asyncio.Event()
        make_sick(monkeypatch, operation, number, put_aside)
        for _ in range(2):
            broker.storage.keep_small(compact=False)
        await asyncio.wait_for(put_aside.wait(), 20)
        assert [log.start for log in logs] == [10, 10]

    asyncio.run(run())


def make_sick(
    monkeypatch: pytest.MonkeyPatch, operation: str, number: int, put_aside: asyncio.Event
) -> None:
    """What is done to the first log fails; tells when the other one's segment is out of the way."""
    names, rename = DiskDirectory.names, DiskDirectory.rename

    def strike(directory: DiskDirectory, what: str) -> None:
        if what == operation and directory.path.endswith("t-0"):
            raise OSError(number, "the disk is sick", directory.path)

    def sick_names(directory: DiskDirectory) -> list[str]:
        strike(directory, "names")
        return names(directory)

    def sick_rename(directory: DiskDirectory, old: str, new: str) -> None:
        strike(directory, "rename")
        rename(directory, old, new)
        if directory.path.endswith("t-1") and new.endswith(".log.deleted"):
            put_aside.set()

    monkeypatch.setattr(DiskDirectory, "names", sick_names)
    monkeypatch.setattr(DiskDirectory, "rename", sick_rename)
