"""A disk whose user dies at a chosen call, and the points of a compaction where that hurts most."""

from collections.abc import Callable
from enum import Enum
from random import Random

from harness.disks.memory_disk import MemoryDisk
from tidelog.wire.checkpoints import CLEANED


class KilledError(Exception):
    """The process ends here."""


Trap = Callable[[str, str], bool]
"""Whether to die before a call, which is told by its operation and the file's name."""


class Point(Enum):
    """Where in a pass the process dies."""

    WRITTEN = "after the cleaned segment is written"
    SYNCED = "after its sync"
    RENAMING = "between the renames"
    UNLINKING = "before the unlink"
    CHECKPOINTING = "before the checkpoint"

    def trap(self, rng: Random) -> Trap:
        """Springs when the point is reached first."""
        match self:
            case Point.WRITTEN:
                return lambda operation, name: operation == "sync" and _is_new(name)
            case Point.SYNCED:
                return lambda operation, name: operation == "rename" and ".cleaned" in name
            case Point.RENAMING:
                # The log is renamed last: the new one's indexes have, or the old ones' have, or the
                # first of the new ones have got their names.
                suffix = rng.choice([".log.cleaned", ".log", ".log.swap", ".index.swap"])
                return lambda operation, name: operation == "rename" and name.endswith(suffix)
            case Point.UNLINKING:
                return lambda operation, name: operation == "unlink" and name.endswith(".deleted")
            case Point.CHECKPOINTING:
                return _checkpoint_after_a_swap()


def _is_new(name: str) -> bool:
    return name.endswith(".log.cleaned")


def _checkpoint_after_a_swap() -> Trap:
    """There is a checkpoint before the first pass, too."""
    swapped = False

    def springs(operation: str, name: str) -> bool:
        nonlocal swapped
        swapped |= operation == "rename" and name.endswith(".log.swap")
        return swapped and operation == "replace" and name.startswith(CLEANED)

    return springs


class MortalDisk(MemoryDisk):
    """Its user is killed before the call that the trap springs at; it sees those that change
    something."""

    def __init__(self) -> None:
        super().__init__()
        self.trap: Trap | None = None

    def note(self, operation: str, name: str) -> None:
        if operation not in {"read", "open"} and self.trap is not None:
            trap, self.trap = self.trap, None
            if trap(operation, name):
                raise KilledError(operation, name)
            self.trap = trap


def after_calls(count: int) -> Trap:
    """Springs before the call after so many."""
    left = count

    def springs(_operation: str, _name: str) -> bool:
        nonlocal left
        left -= 1
        return left < 0

    return springs
