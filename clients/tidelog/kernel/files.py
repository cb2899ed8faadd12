"""The file system as the log engine sees it. `node/runtime/disk.py` is the real one."""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    """One append-mostly file. Nothing is durable before `sync`.

    A real file may be closed between two calls and opened again (the number of open files is
    bounded); its user never notices.
    """

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write at the end, all parts by one call; the position after the write."""
        ...

    def read(self, position: int, size: int) -> memoryview:
        """At most `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, part: Bytes) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Block until the bytes are on stable storage (fdatasync); never on an event loop."""
        ...

    def close(self) -> None: ...


class Mapped(Protocol):
    """An index file mapped into memory: it grows by `append` without a system call."""

    @property
    def size(self) -> int:
        """Bytes that are entries; the file itself may be longer until it is sealed."""
        ...

    @property
    def view(self) -> memoryview:
        """The entries."""
        ...

    def append(self, entry: bytes) -> None: ...

    def truncate(self, size: int) -> None: ...

    def seal(self) -> None:
        """Cut the file to its entries and let go of spare room."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Directory(Protocol):
    """One directory. Creations, renames and removals are durable only after its own `sync`."""

    @property
    def path(self) -> str: ...

    def names(self) -> list[str]:
        """What it holds, sorted; empty where it does not exist yet."""
        ...

    def exists(self, name: str) -> bool: ...

    def make(self) -> None:
        """Create it where it is missing, with its parents."""
        ...

    def directory(self, name: str) -> "Directory": ...

    def open(self, name: str) -> File:
        """For reading and appending; created where it is missing."""
        ...

    def map(self, name: str, *, capacity_bytes: int, used_bytes: int | None = None) -> Mapped:
        """Map an index file with room for so many bytes; `used_bytes` None: the file's size."""
        ...

    def read_all(self, name: str) -> bytes | None:
        """A small file's content; None where it is missing."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Old content or new, never a mix: temporary file, sync, rename, directory sync."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, name: str) -> None: ...

    def remove_tree(self, name: str) -> None:
        """Remove a directory of this one with all it holds."""
        ...

    def sync(self) -> None: ...
