"""A process's durability ledger, with what its helpers knew of their files. (shell)"""

from collections.abc import Sequence

from tidelog.kernel.launch import Launch
from tidelog.node.ipc.board import no_room
from tidelog.node.ipc.ledger_layout import FIRST_PART_BYTES
from tidelog.node.ipc.ledger_memory import LedgerMemory, ledgers_left
from tidelog.node.runtime.ledger import Ledger
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.unrecorded import Unrecorded


def open_ledger(launch: Launch, owner: str, tops: Sequence[str], log: EventLog) -> Unrecorded:
    """A process's ledger of these directories; none where there is no room for one."""
    memory = LedgerMemory.open(launch.run_id, owner, launch.boot_id, launch.data_dir)

    def full() -> None:
        advice = f"{no_room(FIRST_PART_BYTES)}; `chaos power-loss` takes what it does not know of "
        log.warning("ledger_full", advice=f"{advice}for lost")

    if memory is None:
        full()
        return Unrecorded()
    ledger = Ledger(memory, tops, full)
    ledger.take_over(ledgers_left(launch.run_id, owner, launch.data_dir, launch.boot_id))
    return ledger
