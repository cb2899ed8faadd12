"""How the log's owner puts a compacted segment in force while the log is in use.

A worker has written the segment; only its log file is still called `.cleaned`, so it counts for
nothing (`swap.py`). From here on each step is the owner's, so that it knows at any moment what a
start would find. Before the log's end is cut off, `settle` ends what was begun: the old history
must not come back from a `.swap` file that a start after a crash finds.
"""

from enum import Enum
from typing import TYPE_CHECKING

from tidelog.kernel.files import Directory
from tidelog.wire.log_files import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, file_name

if TYPE_CHECKING:
    from tidelog.node.log.segment import Segment
    from tidelog.node.log.segments import SegmentList


class Step(Enum):
    """How far it has come."""

    BEGUN = 0
    """The log file is called `.swap`: a start puts it in force."""
    TAKEN = 1
    """It is in the log, and the old files are on their way out; their names may not be gone yet."""
    RENAMED = 2
    """Its files have the names that they keep; a power loss may still bring the old names back."""
    OVER = 3


class Swap:
    """One compacted segment on its way into a log. Used by the log's owner only."""

    def __init__(self, directory: Directory, segments: "SegmentList", bases: list[int]) -> None:
        self._directory = directory
        self._segments = segments
        self._bases = bases
        self._step = Step.OVER
        self._size = 0
        self._new: Segment | None = None

    def begin(self, size: int) -> None:
        """From now on a start puts it in force, but for a power loss before the next sync."""
        name = file_name(self._bases[0], LOG_SUFFIX)
        self._directory.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
        self._size = size
        self._step = Step.BEGUN

    def take(self, remove_at_ms: int) -> bool:
        """After a sync: take it in, and put the old ones aside. False if the log has changed."""
        if self._step is not Step.BEGUN:
            return False
        self._new = self._segments.replace(self._bases, self._size, remove_at_ms)
        if self._new is None:
            self._undo()
            return False
        self._step = Step.TAKEN
        return True

    def finish(self) -> None:
        """After another sync the old names are gone for good, and the new files may have them."""
        new, self._new = self._new, None
        if self._step is Step.TAKEN and new is not None and new.name.endswith(SWAP_SUFFIX):
            new.rename("")  # else retention has put it aside meanwhile
        self._step = Step.OVER

    def settle(self) -> None:
        """Before a cut: finish it if it is in the log, undo it if not. Blocks for a sync or two.

        An attempt that fails, for example because no descriptor is left, is continued by the next.
        """
        if self._step is Step.TAKEN:
            self._directory.sync()
            self.finish()
            self._step = Step.RENAMED
        self._undo()

    def leave(self) -> None:
        """The log was closed: the next start ends it."""
        self._step = Step.OVER

    def _undo(self) -> None:
        """Make sure that no start puts it in force that is not in the log."""
        if self._step is Step.BEGUN:
            name = file_name(self._bases[0], LOG_SUFFIX)
            self._directory.rename(name + SWAP_SUFFIX, name + CLEANED_SUFFIX)
            self._step = Step.RENAMED
        if self._step is Step.RENAMED:
            self._directory.sync()
            self._step = Step.OVER
