"""A disk in memory that knows what was synced: it survives kills whole, and power losses in part.

It behaves as `kernel/files.py` asks, counts what is done to it, and fails when told to.
"""

import errno
from collections.abc import Callable, Sequence
from random import Random

from harness.disks.platter import Inode, Node
from tidelog.kernel.failures import FailedSyncError
from tidelog.kernel.files import Bytes, Syncable
from tidelog.kernel.ids import TopicPartition
from tidelog.node.api.broker import Space


class MemoryDisk:
    """The whole disk. Handles from before a kill or a power loss refuse to work."""

    seen_through = False
    """While a test looks what is there, whether its user still could or not."""

    def __init__(self) -> None:
        self.root = Node()
        self.life = 0
        self.calls: list[tuple[str, str]] = []
        """(operation, file name) of everything that would be a system call, but for the looks."""
        self.looks: list[tuple[str, str]] = []
        """As `calls`: which names there are, sizes, and small files read whole."""
        self.now_ms = 0
        """What a file that is written to shows as its time."""
        self.broken: set[str] = set()
        """Topmost directories that nothing can be done with any more."""
        self.failing: dict[str, int] = {}
        """By operation, as `calls` has them, what becomes of each until it is healed: an `errno`.
        `create` is the first opening of a file."""
        self.fail_append_after: int | None = None
        """The next append writes so many bytes and then finds the disk full."""

    def directory(self, name: str = "log0") -> "MemoryDirectory":
        return MemoryDirectory(self, None, name)

    def kill(self) -> None:
        """The process dies; every byte it wrote is still there."""
        self.life += 1

    def lose_power(self, rng: Random | None = None) -> None:
        """Without `rng` all that was not synced is gone; with it, any legal part of it stays."""
        self.life += 1
        # The supervisor made and synced the topmost directory long ago.
        self.root.sync()
        self.root.lose(rng)

    def note(self, operation: str, name: str) -> None:
        self.calls.append((operation, name))
        self.strike(operation, name)

    def strike(self, operation: str, name: str) -> None:
        code = self.failing.get(operation)
        if code is not None and not MemoryDisk.seen_through:
            kind = FailedSyncError if operation == "sync" else OSError
            raise kind(code, "the disk is sick", name)

    def check(self, topmost: str) -> None:
        if topmost in self.broken and not MemoryDisk.seen_through:
            raise OSError(errno.EIO, "the disk is broken", topmost)


class MemoryFile:
    """An open file."""

    def __init__(self, disk: MemoryDisk, topmost: str, name: str, inode: Inode) -> None:
        self.name = name
        self.readers = 0
        self._disk = disk
        self._topmost = topmost
        self._life = disk.life
        self._inode = inode

    def _use(self, operation: str) -> Inode:
        assert self._life == self._disk.life, f"{self.name} was opened by a process that is dead"
        self._disk.check(self._topmost)
        self._disk.note(operation, self.name)
        return self._inode

    @property
    def size(self) -> int:
        return len(self._inode.content)

    def append(self, parts: Sequence[Bytes]) -> int:
        inode = self._use("append")
        inode.modified_ms = self._disk.now_ms
        content = inode.content
        limit, self._disk.fail_append_after = self._disk.fail_append_after, None
        if limit is not None:
            raise OSError(errno.ENOSPC, "disk is full", self.name)
        for part in parts:
            content += part
        return len(content)

    def read(self, position: int, size: int) -> memoryview:
        return memoryview(bytes(self._use("read").content[position : position + size]))

    def read_into(self, position: int, buffer: memoryview) -> int:
        content = self._use("read").content[position : position + len(buffer)]
        buffer[: len(content)] = content
        return len(content)

    def write_at(self, position: int, part: Bytes) -> None:
        content = self._use("write").content
        assert position + len(part) <= len(content)
        content[position : position + len(part)] = part

    def truncate(self, size: int) -> None:
        content = self._use("truncate").content
        del content[size:]
        content += bytes(size - len(content))

    def sync(self) -> None:
        self._use("sync").sync()

    def submit(self) -> Callable[[], None]:
        """Begin a sync that ends with the call of what this gives."""
        return self._use("sync").submit()

    def renamed(self, name: str) -> None:
        self.name = name

    def held(self) -> "MemoryFile":
        return self

    def let_go(self) -> None:
        """There is no descriptor to close."""

    def fileno(self) -> int:
        raise AssertionError("a file in memory has no descriptor")

    def close(self) -> None:
        """A closed file opens again by itself: nothing to do."""


class NamedFile:
    """A file to be synced, if it is there."""

    def __init__(self, directory: "MemoryDirectory", name: str) -> None:
        self._directory = directory
        self._name = name

    def sync(self) -> None:
        inode = self._found()
        if inode is not None:
            inode.sync()

    def submit(self) -> Callable[[], None]:
        """Begin a sync that ends with the call of what this gives."""
        inode = self._found()
        return _nothing_left if inode is None else inode.submit()

    def _found(self) -> Inode | None:
        self._directory.disk.note("sync", self._name)
        node = self._directory.node
        found = None if node is None else node.names.get(self._name)
        return found if isinstance(found, Inode) else None


class MemoryDirectory:
    """A directory; its path follows when it or its parent moves."""

    def __init__(self, disk: MemoryDisk, parent: "MemoryDirectory | None", name: str) -> None:
        self.disk = disk
        self._parent = parent
        self._name = name

    @property
    def path(self) -> str:
        return self._name if self._parent is None else f"{self._parent.path}/{self._name}"

    @property
    def parent(self) -> "MemoryDirectory":
        return self if self._parent is None else self._parent

    @property
    def topmost(self) -> str:
        return self._name if self._parent is None else self._parent.topmost

    @property
    def node(self) -> Node | None:
        self.disk.check(self.topmost)
        above = self.disk.root if self._parent is None else self._parent.node
        found = None if above is None else above.names.get(self._name)
        return found if isinstance(found, Node) else None

    def _existing(self) -> Node:
        node = self.node
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", self.path)
        return node

    def _inode(self, name: str) -> Inode | None:
        node = self.node
        found = None if node is None else node.names.get(name)
        return found if isinstance(found, Inode) else None

    def names(self) -> list[str]:
        self.disk.looks.append(("names", self._name))
        node = self.node
        return [] if node is None else sorted(node.names)

    def exists(self, name: str) -> bool:
        self.disk.looks.append(("exists", name))
        node = self.node
        return node is not None and name in node.names

    def make(self) -> None:
        self.disk.check(self.topmost)
        if self._parent is not None:
            self._parent.make()
        above = self.disk.root if self._parent is None else self._parent._existing()
        above.names.setdefault(self._name, Node())

    def move(self, name: str) -> None:
        assert self._parent is not None
        self._parent.rename(self._name, name)
        self._name = name

    def directory(self, name: str) -> "MemoryDirectory":
        return MemoryDirectory(self.disk, self, name)

    def open(self, name: str) -> MemoryFile:
        self.disk.note("open", name)
        names = self._existing().names
        if name not in names:
            self.disk.strike("create", name)
        inode = names.setdefault(name, Inode())
        assert isinstance(inode, Inode), name
        return MemoryFile(self.disk, self.topmost, name, inode)

    def open_existing(self, name: str) -> MemoryFile:
        if self._inode(name) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.open(name)

    def syncable(self, name: str) -> Syncable:
        return NamedFile(self, name)

    def size(self, name: str) -> int | None:
        self.disk.looks.append(("size", name))
        inode = self._inode(name)
        return None if inode is None else len(inode.content)

    def modified_ms(self, name: str) -> int | None:
        self.disk.looks.append(("modified", name))
        inode = self._inode(name)
        return None if inode is None else inode.modified_ms

    def read_part(self, name: str, position: int, size: int) -> bytes | None:
        self.disk.looks.append(("read_part", name))
        inode = self._inode(name)
        return None if inode is None else bytes(inode.content[position : position + size])

    def read_all(self, name: str) -> bytes | None:
        self.disk.looks.append(("read_all", name))
        inode = self._inode(name)
        return None if inode is None else bytes(inode.content)

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        self.disk.note("replace", name)
        inode = Inode()
        inode.content[:] = content
        node = self._existing()
        node.names[name] = inode
        if durable:
            inode.sync()
            node.sync()

    def rename(self, old: str, new: str) -> None:
        self.disk.note("rename", old)
        names = self._existing().names
        names[new] = names.pop(old)

    def unlink(self, name: str) -> None:
        self.disk.note("unlink", name)
        self._existing().names.pop(name, None)

    def remove_tree(self, name: str) -> None:
        self.disk.note("remove", name)
        del self._existing().names[name]

    def sync(self) -> None:
        self.disk.note("sync", self._name)
        node = self.node
        if node is not None:
            node.sync()

    def submit(self) -> Callable[[], None]:
        """Begin a sync that ends with the call of what this gives."""
        self.disk.note("sync", self._name)
        node = self.node
        return _nothing_left if node is None else node.submit()

    # -- for tests that damage files

    def content(self, name: str) -> bytearray:
        """The very bytes of a file, to be changed behind the back of whoever uses it."""
        inode = self._inode(name)
        assert inode is not None, name
        return inode.content


def _nothing_left() -> None:
    """It was removed meanwhile."""


class MemoryVolume:
    """As a broker asks about it; nothing here asks how full it is, and starts are kept at once."""

    path = "/data"

    def volumes(self) -> list["MemoryVolume"]:
        return [self]

    def holds(self, key: TopicPartition) -> bool:
        return bool(key)

    def space(self) -> Space:
        return Space(1, 1)

    def keep_starts(self, done: Callable[[bool], None]) -> None:
        kept = True
        done(kept)
