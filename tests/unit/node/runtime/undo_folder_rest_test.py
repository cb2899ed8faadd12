"""Files that a power loss would bring back are let go of when nothing changes any more."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import RecordedDisk, durable_tree
from harness.logs.batches import NOW_MS, owner
from tidelog.kernel.launch import undo_directory
from tidelog.node.ipc.ledger_memory import LedgerMemory
from tidelog.node.log.settings import LogSettings
from tidelog.node.replica.replicas import Replicas
from tidelog.node.runtime.disk import open_disk
from tidelog.node.runtime.ledger import Ledger
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.storage import Storage, StorageParts

LONG_AGO, NOW_OR_BEFORE = 10**18, 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


def kept(disk: RecordedDisk) -> list[str]:
    place = Path(undo_directory(disk.top))
    return sorted(entry.name for entry in place.iterdir()) if place.exists() else []


def remove_one(disk: RecordedDisk, partition: str) -> None:
    """A file that is durable, and removed without a sync of its directory."""
    place = disk.directory.directory(partition)
    place.make()
    disk.directory.sync()
    file = place.open("f")
    file.append([b"content"])
    file.sync()
    place.sync()
    file.close()
    place.unlink("f")


def test_directories_at_rest_are_synced_and_nothing_is_kept_any_more(disk: RecordedDisk) -> None:
    for partition in ("t-0", "t-1"):
        remove_one(disk, partition)
    assert len(kept(disk)) == 2
    assert durable_tree(disk.survey())["t-0"] == {"f": b"content"}
    assert disk.directory.sync_resting(NOW_OR_BEFORE) == 2
    assert kept(disk) == []
    assert durable_tree(disk.survey()) == {"t-0": {}, "t-1": {}}
    assert disk.directory.sync_resting(NOW_OR_BEFORE) == 0


def test_the_log_directory_itself_is_synced_as_well(disk: RecordedDisk) -> None:
    for content in (b"old", b"new"):
        disk.directory.replace("checkpoint", content, durable=False)
        disk.directory.syncable("checkpoint").sync()
        if content == b"old":
            disk.directory.sync()
    assert len(kept(disk)) == 1
    assert disk.directory.sync_resting(NOW_OR_BEFORE) == 1
    assert kept(disk) == []
    assert durable_tree(disk.survey()) == {"checkpoint": b"new"}


def test_what_changed_a_moment_ago_is_left_to_the_next_sync(disk: RecordedDisk) -> None:
    remove_one(disk, "t-0")
    assert disk.directory.sync_resting(LONG_AGO) == 0
    assert len(kept(disk)) == 1


def test_a_directory_without_kept_files_is_not_synced(disk: RecordedDisk) -> None:
    disk.directory.open("made").append([b"not removed"])
    assert disk.directory.sync_resting(NOW_OR_BEFORE) == 0


def test_what_a_helper_kept_goes_too(disk: RecordedDisk) -> None:
    """A worker that compacts writes into the same directory, by a ledger of its own."""
    place = disk.directory.directory("t-0")
    place.make()
    disk.directory.sync()
    told = disk.ledger.helper()
    memory = LedgerMemory.open(*told)
    assert memory is not None
    helper = Ledger(memory, [disk.top], lambda: None, tells_syncs=True)
    theirs = open_disk(disk.top, open_files_max=4, ledger=helper).directory("t-0")
    file = theirs.open("f")
    file.append([b"content"])
    file.sync()
    theirs.sync()
    file.close()
    theirs.unlink("f")
    assert len(kept(disk)) == 1
    disk.ledger.end_helper(told)
    assert durable_tree(disk.survey())["t-0"] == {"f": b"content"}
    assert disk.directory.sync_resting(NOW_OR_BEFORE) == 1
    assert kept(disk) == []


@pytest.mark.parametrize(("age_ns", "left"), [(LONG_AGO, 1), (NOW_OR_BEFORE, 0)])
def test_the_housekeeping_of_a_broker_syncs_them(
    disk: RecordedDisk, age_ns: int, left: int
) -> None:
    async def keep_house() -> None:
        storage = Storage(parts_of(asyncio.get_running_loop()), [disk.directory], owner())
        storage.open(LogSettings())
        disk.directory.sync()
        remove_one(disk, "t-0")
        storage.keep_house(age_ns)
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(keep_house())
    assert len(kept(disk)) == left


def parts_of(loop: asyncio.AbstractEventLoop) -> StorageParts:
    """Of a broker that has no replicas."""

    def unexpected(*what: object) -> None:
        raise AssertionError(what)

    return StorageParts(
        loop=loop,
        replicas=Replicas(),
        settings={},
        log=EventLog("test"),
        wall_ms=lambda: NOW_MS,
        begins_later=unexpected,
        high_watermarks=lambda _: {},
        on_lost=unexpected,
        on_last_failed=unexpected,
        on_flushed=unexpected,
        on_unreadable=unexpected,
        on_compaction=unexpected,
    )


def test_a_place_without_a_ledger_has_nothing_to_sync(tmp_path: Path) -> None:
    place = open_disk(str(tmp_path / "log0"), open_files_max=4)
    place.make()
    assert place.sync_resting(NOW_OR_BEFORE) == 0
    assert os.listdir(tmp_path) == ["log0"]  # noqa: PTH208 -- names only
