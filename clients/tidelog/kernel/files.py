"""The file system as the log engine sees it. `node/runtime/disk.py` is the real one."""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class Syncable(Protocol):
    """What can be forced to stable storage: a file, or a directory (its names)."""

    def sync(self) -> None:
        """Block until it is on stable storage; never on an event loop, safe in any thread."""
        ...


class Held(Syncable, Protocol):
    """What is kept for one sync."""

    def let_go(self) -> None:
        """Once, when nobody will sync it any more; in the thread that asked for it."""
        ...


class File(Syncable, Protocol):
    """One append-mostly file. Nothing is durable before `sync`.

    A real file may be closed between two calls and opened again (the number of open files is
    bounded); its user never notices.
    """

    readers: int
    """Answers on their way that are made of it: its name must stay until they are out."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write at the end, all parts by one call; the position after the write.

        All or nothing while the process lives: an error leaves the size as it was.
        """
        ...

    def read(self, position: int, size: int) -> memoryview:
        """At most `size` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill a buffer the caller keeps for many reads; how many bytes it holds now."""
        ...

    def write_at(self, position: int, part: Bytes) -> None: ...

    def truncate(self, size: int) -> None: ...

    def held(self) -> Held | None:
        """To be synced in another thread, soon; None where only its name can be given for that."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile; good until the next call that opens another file."""
        ...

    def renamed(self, name: str) -> None:
        """Its directory gave it another name: from now on it is found under that."""
        ...

    def close(self) -> None: ...


class Directory(Syncable, Protocol):
    """One directory. Creations, renames and removals are durable only after its own `sync`."""

    @property
    def path(self) -> str: ...

    @property
    def parent(self) -> "Directory":
        """The directory that holds it; the topmost one knows none and gives itself."""
        ...

    def names(self) -> list[str]:
        """What it holds, sorted; empty where it does not exist yet."""
        ...

    def exists(self, name: str) -> bool: ...

    def make(self) -> None:
        """Create it where it is missing, with its parents."""
        ...

    def move(self, name: str) -> None:
        """Rename it within its parent; open files of it stay good."""
        ...

    def directory(self, name: str) -> "Directory": ...

    def open(self, name: str) -> File:
        """For reading and appending; created where it is missing."""
        ...

    def open_existing(self, name: str) -> File:
        """As `open`, but FileNotFoundError if it is missing: reading must not make a file."""
        ...

    def syncable(self, name: str) -> Syncable:
        """Forces out what a file of that name holds, without opening it now."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file, without opening it; None where it is missing."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """When a file was last written to, on the wall clock; None where it is missing."""
        ...

    def read_all(self, name: str) -> bytes | None:
        """A small file's content; None where it is missing."""
        ...

    def read_part(self, name: str, position: int, size: int) -> bytes | None:
        """A part of a file that another process may be writing to; None where it is missing.

        Makes nothing and keeps nothing open; fewer bytes only at the end of the file.
        """
        ...

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Old content or new, never a mix: temporary file, sync, rename, directory sync.

        Not `durable`: without the two syncs; whole after a kill, anything after a power loss.
        """
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, name: str) -> None:
        """Remove a file; no error where it is missing already."""
        ...

    def remove_tree(self, name: str) -> None:
        """Remove a directory of this one with all it holds."""
        ...
