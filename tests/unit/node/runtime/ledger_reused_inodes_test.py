"""The number of a removed file goes to the next one that is made, perhaps by another process: then
the ledgers of both have a row for it, and only one of the rows is about the file of now."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.disks.recorded_disk import OWNER, RecordedDisk
from tidelog.node.ipc.ledger_memory import LedgerMemory, ledgers_left, read_ledger
from tidelog.node.runtime.ledger import Ledger
from tidelog.tools.chaos.survey import recorded

CONTENT = b"content"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file that stands for each of those which have its number, one after the other."""
    descriptor = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, CONTENT)
    yield descriptor
    os.close(descriptor)


@contextmanager
def helping(disk: RecordedDisk) -> Iterator[Ledger]:
    """The ledger of a worker; its broker's takes it over at the end."""
    told = disk.ledger.helper()
    memory = LedgerMemory.open(*told)
    assert memory is not None
    try:
        yield Ledger(memory, [disk.top], lambda: None, tells_syncs=True)
    finally:
        disk.ledger.end_helper(told)


def make(ledger: Ledger, fd: int, *, synced: bool) -> None:
    ledger.made(os.fstat(fd).st_ino)
    if synced:
        with ledger.syncing(fd):
            pass


def stable(disk: RecordedDisk, fd: int) -> int:
    """As all ledgers together say it."""
    others = [parts for _, parts in ledgers_left(disk.run_id, OWNER)]
    said = recorded([read_ledger(disk.run_id, OWNER), *others])
    return said.files[os.fstat(fd).st_ino].stable


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_the_broker_made_later_counts(disk: RecordedDisk, fd: int, *, synced: bool) -> None:
    with helping(disk) as helper:
        make(helper, fd, synced=not synced)
        make(disk.ledger, fd, synced=synced)
        assert stable(disk, fd) == (len(CONTENT) if synced else 0)
    assert stable(disk, fd) == (len(CONTENT) if synced else 0)


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_the_worker_made_later_counts(disk: RecordedDisk, fd: int, *, synced: bool) -> None:
    with helping(disk) as helper:
        make(disk.ledger, fd, synced=not synced)
        make(helper, fd, synced=synced)
        assert stable(disk, fd) == (len(CONTENT) if synced else 0)
    assert stable(disk, fd) == (len(CONTENT) if synced else 0)


def test_who_only_found_a_file_does_not_know_better_than_who_made_it(
    disk: RecordedDisk, fd: int
) -> None:
    make(disk.ledger, fd, synced=False)
    with helping(disk) as helper:
        helper.found(os.fstat(fd).st_ino, len(CONTENT))
        assert stable(disk, fd) == 0
    assert stable(disk, fd) == 0


def test_a_file_of_the_worker_that_the_broker_cuts_is_what_the_broker_says(
    disk: RecordedDisk, fd: int
) -> None:
    with helping(disk) as helper:
        make(helper, fd, synced=True)
        disk.ledger.changing_from(disk.top, fd, 3)
        assert stable(disk, fd) == 3
    assert stable(disk, fd) == 3


def test_a_file_that_a_worker_made_is_known_to_the_next_life_as_it_was(
    disk: RecordedDisk, fd: int
) -> None:
    with helping(disk) as helper:
        make(disk.ledger, fd, synced=True)
        make(helper, fd, synced=False)
    disk.begin()
    with helping(disk) as helper:
        helper.found(os.fstat(fd).st_ino, len(CONTENT))
        assert stable(disk, fd) == 0
