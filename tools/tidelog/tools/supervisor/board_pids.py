"""Which of the processes that have a place on a run's board live."""

import posix_ipc
from msgspec import structs

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Word
from tidelog.node.runtime.lives import Life, Verdict


def any_lives(run_id: str, supervisor: Life) -> bool:
    """Whether one of them lives; their pids count where the supervisor's does."""
    try:
        board = Board.open(board_name(run_id))
    except (OSError, posix_ipc.Error, CorruptError):
        return False
    with board:
        slots = [board.read_slot(number) for number in range(board.slots)]
    return any(
        structs.replace(supervisor, pid=slot[Word.PID], started=slot[Word.STARTED]).verdict()
        is Verdict.LIVES
        for slot in slots
        if slot is not None and slot[Word.PID]
    )
