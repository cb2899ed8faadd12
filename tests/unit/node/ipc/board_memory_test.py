"""The board in shared memory: shared between mappings, reserved when made, removed by run."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.launch import MEMORY_FOLDER, board_name
from tidelog.node.ipc.board import Board, memory_of_run, remove_memory_of_run
from tidelog.node.ipc.layout import Role, Word, board_size_bytes


@pytest.fixture
def run() -> Iterator[str]:
    run_id = f"test{secrets.token_hex(4)}"
    yield run_id
    remove_memory_of_run(run_id)


def test_what_one_mapping_publishes_another_reads(run: str) -> None:
    with Board.create(board_name(run), slots=4) as mine, Board.open(board_name(run)) as other:
        writer = mine.writer(2)
        writer.begin(role=Role.BROKER, process_id=1, pid=5, incarnation=Incarnation(3))
        mine.fences.fence(BrokerId(1), Offset(3))
        seen = other.read_slot(2)
        assert seen is not None
        assert seen[Word.INCARNATION] == 3
        assert other.slots == 4
        assert other.fences.is_fenced(BrokerId(1), Offset(3))


def test_a_board_is_its_owners_alone_and_wholly_reserved(run: str) -> None:
    with Board.create(board_name(run), slots=4) as board:
        status = os.fstat(board.descriptor)
        assert status.st_mode & 0o777 == 0o600
        assert status.st_blocks * 512 >= board_size_bytes(4)


def test_a_second_board_of_the_same_name_is_refused(run: str) -> None:
    with Board.create(board_name(run), slots=1), pytest.raises(posix_ipc.ExistentialError):
        Board.create(board_name(run), slots=1)


def test_no_room_is_a_sentence_and_leaves_nothing(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CannotStartError, match="no room for 117 KiB of shared memory"):
        Board.create(board_name(run), slots=4)
    assert memory_of_run(run) == []


@pytest.mark.parametrize("content", [b"", b"short", bytes(70_000)])
def test_something_else_under_the_name_is_corrupt(run: str, content: bytes) -> None:
    Path(MEMORY_FOLDER + board_name(run)).write_bytes(content)
    with pytest.raises(CorruptError):
        Board.open(board_name(run))


def test_the_memory_of_one_run_is_removed_and_no_others(run: str) -> None:
    Board.create(board_name(run), slots=1).close()
    Path(f"{MEMORY_FOLDER}/tidelog-{run}-ring-0").write_bytes(b"x")
    other = Path(f"{MEMORY_FOLDER}/tidelog-{run}x-board")
    other.write_bytes(b"x")
    try:
        assert remove_memory_of_run(run) == [f"/tidelog-{run}-board", f"/tidelog-{run}-ring-0"]
        assert memory_of_run(run) == []
        assert other.exists()
    finally:
        other.unlink()
