"""Errors that say nothing bad of the disk: it has no room, or no file descriptor is left. Pure."""

import errno
from typing import Final

from tidelog.kernel.failures import FailedSyncError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A disk without room is no broken one: what failed is tried again."""


def is_full(failure: OSError) -> bool:
    """Nothing was written, for there is no room. A sync that finds none is another thing: what it
    was for was written once, and is lost."""
    return failure.errno in FULL and not isinstance(failure, FailedSyncError)


SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Too few descriptors say nothing of the disk: what failed is tried again."""


def is_shortage(failure: BaseException | None) -> bool:
    """Nothing was done, for a file could not even be opened. A sync that fails is another thing,
    whatever it fails of."""
    return (
        isinstance(failure, OSError)
        and failure.errno in SHORT
        and not isinstance(failure, FailedSyncError)
    )
