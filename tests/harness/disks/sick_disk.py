"""A real folder as a broker has it, whose disk can be made sick: no process runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board, remove_memory_of_run
from tidelog.node.ipc.fault_layout import Ailment, DiskFault, Operation
from tidelog.node.runtime.disk import DiskDirectory, open_disks
from tidelog.node.runtime.disk_faults import DiskFaults
from tidelog.tools.chaos.sick_disks import Sick, fault_of, heal, make_sick, sick_disks

BROKER = 1
DIRECTORIES = ("near", "far")
EVERYTHING = Operation(0)
for _one in Operation:
    EVERYTHING |= _one


class SickDisk:
    """Broker 1's log directories, `near` and `far`."""

    def __init__(self, folder: Path, run_id: str, board: Board) -> None:
        self.run_id = run_id
        self.paths = [str(folder / name) for name in DIRECTORIES]
        self.waited_s = 0.0
        """So long a slow disk would have had somebody wait."""
        self.heals_after_s = float("inf")
        self.faults = DiskFaults(board, run_id, BROKER, self.paths, sleep=self._waits)
        self.places: list[DiskDirectory] = open_disks(self.paths, 64, None, self.faults)
        for place in self.places:
            place.make()

    def _waits(self, seconds: float) -> None:
        self.waited_s += seconds
        if self.waited_s >= self.heals_after_s:
            self.heal()

    def took_s(self) -> float:
        """Since somebody asked last."""
        took, self.waited_s = round(self.waited_s, 2), 0.0
        return took

    def fails(self, on: Operation = EVERYTHING, **more: object) -> DiskFault:
        """From now on, with EIO unless it is said otherwise."""
        fault = fault_of(Ailment.IO_ERROR, on, **{"error": 5, **more})  # type: ignore[arg-type] # whatever a test wants
        self.put(fault)
        return fault

    def put(self, *faults: DiskFault) -> None:
        make_sick(self.run_id, BROKER, faults)

    def heal(self) -> None:
        heal(self.run_id, [BROKER])

    def found(self) -> list[Sick]:
        return sick_disks(self.run_id, lambda _broker: self.paths)

    def struck(self) -> list[int]:
        return [one.struck for one in self.found()]


@contextmanager
def sick_disk(folder: Path) -> Iterator[SickDisk]:
    run_id = os.urandom(4).hex()
    try:
        with Board.create(board_name(run_id)) as board:
            disk = SickDisk(folder, run_id, board)
            yield disk
            disk.faults.close()
    finally:
        remove_memory_of_run(run_id)
