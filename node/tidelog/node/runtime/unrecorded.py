"""What the disk tells of stable storage, where nobody keeps it. `ledger.py` does. (shell)"""

# Each says what it is told, and does nothing with it:
# ruff: noqa: ARG002

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

_Context = AbstractContextManager[None]


class Unrecorded:
    """No ledger: nobody will ask."""

    def found(self, inode: int, size: int) -> None:
        """A file that was there was opened."""

    def made(self, inode: int) -> None:
        """A file was made; `creating` was told before."""

    def creating(self, path: str, name: str) -> _Context:
        """A file or directory comes into being there, if none is."""
        return nullcontext()

    def renaming(self, path: str, old: str, new: str) -> _Context:
        return nullcontext()

    def removing(self, path: str, name: str) -> _Context:
        return nullcontext()

    def removing_tree(self, path: str, name: str) -> _Context:
        return nullcontext()

    def changing_from(self, path: str, fd: int, position: int) -> None:
        """The file's bytes from there on are about to be cut off, or written over."""

    def syncing(self, fd: int) -> _Context:
        return nullcontext()

    def syncing_names(self, fd: int) -> _Context:
        return nullcontext()

    def resting(self, age_ns: int) -> list[str]:
        """Directories of which files are kept aside, that were changed so long ago."""
        return []

    def helper(self) -> list[str]:
        """What to tell a process that is to write into the same directories."""
        return []

    def end_helper(self, told: Sequence[str]) -> None:
        """It has ended, which was told that."""
