"""Why a pass of compaction failed."""

from enum import IntEnum


class Cause(IntEnum):
    """A number is never used again for something else."""

    DAMAGED = 1
    """A file holds something else than what was written, or is missing."""
    DISK = 2
    """The disk, or the operating system, refused something."""
    WORKER_DIED = 3
    BUG = 4
    """The worker met something that its code does not expect."""
