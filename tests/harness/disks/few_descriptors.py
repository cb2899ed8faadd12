"""A directory that finds no descriptor left for one of its syncs."""

import errno
from collections.abc import Callable


class FewDescriptors:
    """Takes the place of `Directory.sync`: the sync of this number fails, all others are done."""

    def __init__(self, number: int, sync: Callable[[], None]) -> None:
        self._left = number
        self._sync = sync

    def __call__(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise OSError(errno.EMFILE, "too many open files")
        self._sync()
