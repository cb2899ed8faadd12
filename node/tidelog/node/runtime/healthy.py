"""What the disk is asked before each operation, where nobody makes it sick. `disk_faults.py` is
where somebody may. (shell)"""

# Each says what it is told, and does nothing with it:
# ruff: noqa: ARG002

from collections.abc import Sequence
from typing import Final

from tidelog.node.ipc.fault_layout import Operation

WELL: Final = (0,)


class Healthy:
    """No fault ever."""

    def __init__(self, on: Sequence[int] | memoryview = WELL) -> None:
        self.on = on
        """Its one element is 0 while the disks are well: nothing else needs to be asked then."""

    def strike(self, operation: Operation, path: str, size: int = 0) -> None:
        """Before an operation: wait if the disk is slow, raise OSError if it fails."""

    def strike_open(self, operation: Operation, fd: int, size: int = 0) -> None:
        """As `strike`, of an open file."""

    def hits_open(self, operation: Operation, fd: int) -> bool:
        """Whether `strike_open` would do anything."""
        return False

    def is_full(self, directory: str) -> bool:
        """Whether nothing more finds room there."""
        return False

    def close(self) -> None:
        """Nobody asks again."""

    def helper(self) -> list[str]:
        """What to tell a process that is to touch the same directories."""
        return []
