"""What the ledger records while a sync is under way, beside it, without room, and over lives."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import BOOT, OWNER, RecordedDisk, durable_tree
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import ledgers_directory, undo_directory
from tidelog.node.ipc import ledger_layout
from tidelog.node.ipc.ledger_layout import (
    FileRow,
    FlushedRow,
    NameRow,
    Rows,
    check_header,
    write_header,
)
from tidelog.node.ipc.ledger_memory import (
    LedgerMemory,
    read_ledger,
    remove_ledger,
    save_ledgers,
)
from tidelog.node.runtime.ledger import ASIDE_BYTES_MAX


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


def test_a_sync_covers_what_was_there_when_it_was_submitted(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.append([b"before"])
    disk.directory.sync()
    with disk.ledger.syncing(file.fileno()):
        file.append([b"meanwhile"])
    assert durable_tree(disk.survey()) == {"f": b"before"}


def test_a_sync_covers_nothing_above_a_cut_that_came_meanwhile(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.append([b"0123456789"])
    disk.directory.sync()
    with disk.ledger.syncing(file.fileno()):
        file.truncate(4)
        file.append([b"new"])
    assert durable_tree(disk.survey()) == {"f": b"0123"}


def test_a_sync_that_fails_covers_nothing(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.append([b"lost"])
    disk.directory.sync()
    with pytest.raises(OSError, match="EIO"), disk.ledger.syncing(file.fileno()):
        raise OSError("EIO")
    assert durable_tree(disk.survey()) == {"f": b""}


def test_a_name_that_changed_during_a_sync_is_as_it_was_when_that_began(
    disk: RecordedDisk,
) -> None:
    disk.directory.replace("a", b"content", durable=False)
    disk.directory.syncable("a").sync()
    place = os.open(disk.top, os.O_RDONLY)
    with disk.ledger.syncing_names(place):
        disk.directory.rename("a", "b")
    os.close(place)
    assert durable_tree(disk.survey()) == {"a": b"content"}
    disk.directory.sync()
    assert durable_tree(disk.survey()) == {"b": b"content"}


def test_a_large_file_that_goes_is_gone_for_good(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.append([bytes(ASIDE_BYTES_MAX + 1)])
    file.sync()
    disk.directory.sync()
    disk.directory.rename("f", "f.deleted")
    disk.directory.unlink("f.deleted")
    file.close()
    assert durable_tree(disk.survey()) == {}
    assert not Path(undo_directory(disk.top)).exists()


def test_what_one_life_made_durable_is_known_in_the_next(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.append([b"synced"])
    file.sync()
    disk.directory.sync()
    file.append([b"not"])
    disk.begin()
    disk.directory.open("f").append([b" this either"])
    disk.directory.rename("f", "g")
    disk.begin()
    assert durable_tree(disk.survey()) == {"f": b"synced"}


def test_a_ledger_outlives_its_run_as_the_page_cache_does(disk: RecordedDisk) -> None:
    data = str(Path(disk.top).parent)
    disk.directory.open("f").append([b"not synced"])
    save_ledgers(disk.run_id, data)
    remove_ledger(disk.run_id, OWNER)
    with RecordedDisk(Path(data)) as next_run:
        assert durable_tree(next_run.survey()) == {}
        assert list(Path(ledgers_directory(data)).iterdir()) == []


def test_after_a_new_start_of_the_machine_all_that_is_there_is_durable(disk: RecordedDisk) -> None:
    data = str(Path(disk.top).parent)
    disk.directory.open("f").append([b"read from the disk"])
    save_ledgers(disk.run_id, data)
    remove_ledger(disk.run_id, OWNER)
    memory = LedgerMemory.open(disk.run_id, OWNER, f"not {BOOT}", data)
    assert memory is not None
    assert durable_tree(disk.survey()) == {"f": b"read from the disk"}


def test_a_ledger_grows_by_another_part(disk: RecordedDisk) -> None:
    count = ledger_layout.FIRST_PART_BYTES // ledger_layout.CELL_BYTES
    for inode in range(1 << 40, (1 << 40) + count):
        disk.ledger.found(inode, inode)
    rows = list(ledger_layout.rows_of(read_ledger(disk.run_id, OWNER)))
    assert len(read_ledger(disk.run_id, OWNER)) == 2
    assert sum(isinstance(row, FileRow) and row.stable == row.inode for row in rows) == count
    disk.begin()
    assert not disk.survey().is_full


def test_without_room_it_says_so_once_and_what_it_does_not_know_is_lost(
    disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.node.ipc.ledger_layout.PARTS_MAX", 1)
    count = ledger_layout.FIRST_PART_BYTES // ledger_layout.CELL_BYTES
    for inode in range(1 << 40, (1 << 40) + count):
        disk.ledger.found(inode, inode)
    file = disk.directory.open("f")
    file.append([b"synced, but nobody knows"])
    file.sync()
    disk.directory.sync()
    assert disk.full == 1
    found = disk.survey()
    assert found.is_full
    assert durable_tree(found) == {"f": b""}


def test_a_row_half_written_is_not_read() -> None:
    part = memoryview(bytearray(ledger_layout.FIRST_PART_BYTES))
    write_header(part, BOOT)
    rows = Rows([part], lambda _number: None)
    name = b"00000000000000000000.timeindex.\xff"
    place = rows.put_name(1, name, 2, 3)
    assert place is not None
    rows.put_file(4, 5, 0)
    (first, second) = ledger_layout.rows_of([part])
    assert isinstance(first, NameRow)
    assert (first.name.encode("utf-8", "surrogateescape"), first.durable) == (name, 2)
    assert isinstance(second, FileRow)
    rows.free(place)  # as a writer leaves it that was killed before the first word
    assert list(ledger_layout.rows_of([part])) == [second]


@pytest.mark.parametrize("damage", [slice(0, 8), slice(16, 24), slice(24, 32)])
def test_what_is_no_ledger_is_refused(damage: slice) -> None:
    part = memoryview(bytearray(ledger_layout.FIRST_PART_BYTES))
    write_header(part, BOOT)
    part[damage] = b"\xff" * 8
    with pytest.raises(CorruptError):
        check_header(part, "ledger")


def test_garbage_in_a_ledger_ends_the_reading() -> None:
    part = memoryview(bytearray(ledger_layout.FIRST_PART_BYTES))
    write_header(part, BOOT)
    rows = Rows([part], lambda _number: None)
    rows.put_file(1, 1, 0)
    rows.put_file(2, 2, 0)
    part[ledger_layout.HEADER_BYTES + ledger_layout.CELL_BYTES :][:8] = b"\xff" * 8
    assert [row.place for row in ledger_layout.rows_of([part])] == [16]


def test_a_sync_need_not_cover_a_rename_that_has_not_returned(disk: RecordedDisk) -> None:
    disk.directory.replace("a", b"content", durable=False)
    disk.directory.syncable("a").sync()
    with disk.ledger.renaming(disk.top, "a", "b"):
        disk.directory.sync()
        Path(disk.top, "a").rename(Path(disk.top, "b"))
    assert durable_tree(disk.survey()) == {"a": b"content"}


def flushed(disk: RecordedDisk) -> list[FlushedRow]:
    rows = ledger_layout.rows_of(read_ledger(disk.run_id, OWNER))
    return [row for row in rows if isinstance(row, FlushedRow)]


def test_the_last_sync_of_each_file_is_told_with_how_long_it_took(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    inode = os.fstat(file.fileno()).st_ino
    file.append([b"one"])
    assert flushed(disk) == []
    file.sync()
    (first,) = flushed(disk)
    assert (first.inode, first.took_ns > 0) == (inode, True)
    file.append([b"two"])
    disk.begin()  # another life of the process
    disk.directory.open("f").sync()
    (second,) = flushed(disk)
    assert second.inode == inode
    assert second.at - second.took_ns > first.at


def test_a_sync_that_fails_is_not_the_last_one(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    with pytest.raises(OSError, match="EIO"), disk.ledger.syncing(file.fileno()):
        raise OSError("EIO")
    assert flushed(disk) == []


def test_a_file_that_goes_takes_its_last_sync_along(disk: RecordedDisk) -> None:
    file = disk.directory.open("f")
    file.sync()
    assert flushed(disk)
    disk.directory.unlink("f")
    disk.directory.sync()
    assert flushed(disk) == []


def test_where_a_last_sync_has_no_room_nothing_counts_as_lost() -> None:
    part = memoryview(bytearray(ledger_layout.FIRST_PART_BYTES))
    write_header(part, BOOT)
    rows = Rows([part], lambda _number: None)
    inode = 0
    while rows.put_flushed(inode, 1, 2) is not None:
        inode += 1
    assert inode > 1_000
    assert not ledger_layout.is_full(part)
