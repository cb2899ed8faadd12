"""What `tidelog metrics` knows: the board, the metadata, and all that `tidelog disk` looks at.

Nobody is asked: it is shared memory and files, so a cluster that is down has metrics too.
"""

import time
from pathlib import Path

import posix_ipc

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import board_name
from tidelog.kernel.limits import STANDBYS_MAX
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Slot, Word, slot_of
from tidelog.node.runtime.page_cache import kernel_view
from tidelog.tools.disk_look import Wanted, look
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.metrics_rows import Facts
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.folder import is_held, run_in


def look_around(path: Path) -> Facts:
    """At a cluster's data folder, and what runs in it."""
    folder = open_folder(path)
    brokers = look(folder, Wanted())
    living = _living(path, [one.broker_id for one in brokers])
    leaders = [living[slot] for slot in _coordinators() if slot in living]
    return Facts(
        brokers=brokers,
        slots={
            one.broker_id: living[at]
            for one in brokers
            if (at := slot_of(Role.BROKER, one.broker_id)) in living
        },
        coordinator=max(leaders, key=lambda slot: slot[Word.CONTROLLER_EPOCH], default=None),
        transactions=living.get(slot_of(Role.TRANSACTION_COORDINATOR)),
        image=folder.image,
        kernel=kernel_view(),
        now_ms=time.time_ns() // 1_000_000,
        now_ns=time.monotonic_ns(),
    )


def _coordinators() -> list[int]:
    return [slot_of(Role.COORDINATOR, number) for number in range(STANDBYS_MAX + 1)]


def _living(path: Path, brokers: list[int]) -> dict[int, Slot]:
    """What those processes published that live, by slot."""
    run = run_in(path) if is_held(path) else None
    if run is None:
        return {}
    wanted = [slot_of(Role.TRANSACTION_COORDINATOR), *_coordinators()]
    wanted += [slot_of(Role.BROKER, one) for one in brokers]
    try:
        board = Board.open(board_name(run.run_id))
    except (posix_ipc.ExistentialError, CorruptError):
        return {}  # the run has just ended
    with board:
        read = {at: board.read_slot(at) for at in wanted}
    return {
        at: slot
        for at, slot in read.items()
        if slot is not None and slot[Word.PID] and not proc.is_gone(slot[Word.PID])
    }
