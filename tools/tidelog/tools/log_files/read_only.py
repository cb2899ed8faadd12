"""Directories and files that can only be read, behind the contracts of the log engine.

The engine's own directories create what they open. Here a running broker's files are looked at:
nothing is created, changed or locked, and whatever would is a bug of ours.
"""

import fcntl
import os
from typing import NoReturn

from tidelog.node.runtime.disk import LOCK_NAME, DiskDirectory, DiskFile, OpenFiles, read_into
from tidelog.node.runtime.page_cache import cached_from, evict

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_OPEN_FILES_MAX = 64
PAGE_BYTES = 4096


class ReadOnlyFile(DiskFile):
    """One file, as long as it was when it was opened; the kernel refuses to write to it.

    What comes from the disk for it leaves the page cache again. A broker sends unread what it wrote
    itself and what has stayed there since: it would take for that what somebody else had read.
    """

    __slots__ = ()

    def _open(self, flags: int) -> int:  # noqa: ARG002 -- whatever the engine would ask for
        fd = super()._open(_FLAGS)
        # Nothing is read ahead, which nobody would make the kernel forget.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def read(self, position: int, size: int) -> memoryview:
        buffer = memoryview(bytearray(min(size, max(self.size - position, 0))))
        return buffer[: self.read_into(position, buffer)]

    def read_into(self, position: int, buffer: memoryview) -> int:
        if not buffer:
            return 0
        fd = self.fileno()
        start = position + _in_memory(fd, position, buffer)
        filled = read_into(fd, position, buffer)
        if position + filled > start:
            page = start // PAGE_BYTES * PAGE_BYTES
            end = -(-(position + filled) // PAGE_BYTES) * PAGE_BYTES
            evict(fd, page, end - page)
        return filled

    def truncate(self, size: int) -> None:
        _refuse(self.name, size)


class ReadOnlyDirectory(DiskDirectory):
    """One directory."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        parent: "ReadOnlyDirectory | None" = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        super().__init__(name, parent, open_files or OpenFiles(_OPEN_FILES_MAX))

    def directory(self, name: str) -> "ReadOnlyDirectory":
        return ReadOnlyDirectory(name, self, self._open_files)

    def open(self, name: str) -> ReadOnlyFile:
        return ReadOnlyFile(self, name, self._open_files)

    def open_existing(self, name: str) -> ReadOnlyFile:
        return self.open(name)

    def is_in_use(self) -> bool:
        """Whether a process has this log directory; asked without taking the lock from it."""
        try:
            fd = os.open(f"{self.path}/{LOCK_NAME}", _FLAGS)
        except OSError:
            return False
        try:
            # Shared, so that two readers never mistake each other for a broker.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    # -- what a reader never does

    def make(self) -> None:
        _refuse(self.path)

    def move(self, name: str) -> None:
        _refuse(self.path, name)

    def syncable(self, name: str) -> NoReturn:
        _refuse(self.path, name)

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        _refuse(self.path, name, content, durable)

    def rename(self, old: str, new: str) -> None:
        _refuse(self.path, old, new)

    def unlink(self, name: str) -> None:
        _refuse(self.path, name)

    def remove_tree(self, name: str) -> None:
        _refuse(self.path, name)

    def sync(self) -> None:
        _refuse(self.path)


def _in_memory(fd: int, position: int, buffer: memoryview) -> int:
    """How many of the first bytes the page cache has."""
    found = cached_from(fd, position, len(buffer))
    if found is not None:
        return found
    try:  # an older kernel
        return os.preadv(fd, (buffer,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return 0
    except OSError:
        return len(buffer)  # this file system cannot tell: it has no disk, or hides it


def _refuse(place: str, *_arguments: object) -> NoReturn:
    raise AssertionError(f"a reader wanted to change {place}")
