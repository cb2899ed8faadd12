"""What is left of ledgers whose writers died while they made them, or that nobody could save whole:
a start takes nothing from them, and goes on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import BOOT, OWNER, RecordedDisk
from tidelog.kernel.launch import ledger_name, ledgers_directory
from tidelog.node.ipc.board import create_memory, remove_memory
from tidelog.node.ipc.ledger_layout import FIRST_PART_BYTES, part_bytes, write_header
from tidelog.node.ipc.ledger_memory import (
    LedgerMemory,
    ledgers_left,
    read_ledger,
    remove_ledger,
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


def header(boot: str) -> bytes:
    content = bytearray(FIRST_PART_BYTES)
    write_header(memoryview(content), boot)
    return bytes(content)


@pytest.mark.parametrize("size", [0, FIRST_PART_BYTES])
def test_a_worker_that_died_before_its_ledger_had_a_header_has_told_nothing(
    disk: RecordedDisk, size: int
) -> None:
    told = disk.ledger.helper()
    name = ledger_name(disk.run_id, told[1], 0)
    make(name, size)
    try:
        assert [parts for _, parts in ledgers_left(disk.run_id, OWNER)] == [[]]
        disk.ledger.end_helper(told)
        assert ledgers_left(disk.run_id, OWNER) == []
    finally:
        remove_memory(name)


def make(name: str, size: int) -> None:
    """As its maker leaves it where it dies before the first word."""
    descriptor = create_memory(name, max(size, 1))
    os.ftruncate(descriptor, size)
    os.close(descriptor)


def test_a_ledger_whose_next_part_has_no_header_yet_goes_on_without_it(tmp_path: Path) -> None:
    with RecordedDisk(tmp_path) as disk:
        disk.ledger.made(77)
        make(ledger_name(disk.run_id, OWNER, 1), part_bytes(1))
        memory = LedgerMemory.open(disk.run_id, OWNER, BOOT)
        assert memory is not None
        assert len(memory.parts) == 1
        assert memory.grow(1) is not None
        assert len(read_ledger(disk.run_id, OWNER)) == 2
        memory.close()
        remove_ledger(disk.run_id, OWNER)


@pytest.mark.parametrize(
    "content",
    [b"", b"torn", bytes(FIRST_PART_BYTES), header(BOOT)[:-3], header("another boot")],
    ids=["empty", "torn", "zeros", "cut", "another boot"],
)
def test_what_was_saved_of_a_worker_and_is_not_whole_is_left_out(
    tmp_path: Path, content: bytes
) -> None:
    folder = Path(ledgers_directory(str(tmp_path)))
    folder.mkdir()
    bad, good = folder / f"{OWNER}-helper-1-0", folder / f"{OWNER}-helper-2-0"
    bad.write_bytes(content)
    good.write_bytes(header(BOOT))
    found = ledgers_left("no-run", OWNER, str(tmp_path), boot_id=BOOT)
    assert [name for name, _ in found] == [good.name]
    assert list(folder.iterdir()) == []
