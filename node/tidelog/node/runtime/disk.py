"""Real files and directories behind the contracts of `kernel/files.py` (shell)."""

# A Path object costs more than the call it names, and these are called for each file of each log:
# ruff: noqa: PTH100, PTH102, PTH103, PTH104, PTH108, PTH112, PTH116, PTH120, PTH123, PTH208

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidelog.kernel.failures import CannotStartError, FailedSyncError
from tidelog.kernel.files import Bytes
from tidelog.node.ipc.fault_layout import Operation
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.unrecorded import Unrecorded

CREATE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
REOPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
FOR_SYNC = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
LOCK_NAME = ".lock"
GIVEN_BACK = 16
"""Descriptors, where there are too few: more than the threads of a flush open at one time."""
PERMISSIONS = 0o600
DIRECTORY_PERMISSIONS = 0o700
REMOVALS_MAX = 1_000
"""Attempts to remove a directory in which something still changes; each takes what is there."""
_CHANGED_MEANWHILE = frozenset({errno.ENOENT, errno.ENOTEMPTY})
RESTING_MAX = 64
"""Directories at rest that are synced at a time: it must not hold up the syncs of others."""


def open_disk(
    path: str,
    *,
    open_files_max: int | None = None,
    ledger: Unrecorded | None = None,
    faults: Healthy | None = None,
) -> "DiskDirectory":
    """A directory whose files, together, hold a bounded number of descriptors open."""
    if open_files_max is None:
        # Half is for sockets, pipes and whatever else the process opens.
        open_files_max = max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    return DiskDirectory(path, None, OpenFiles(open_files_max, ledger, faults))


def open_disks(
    paths: Iterable[str],
    open_files_max: int,
    ledger: Unrecorded | None = None,
    faults: Healthy | None = None,
) -> "list[DiskDirectory]":
    """As `open_disk`, several that share the bound."""
    shared = OpenFiles(open_files_max, ledger, faults)
    return [DiskDirectory(path, None, shared) for path in paths]


def sync_path(path: str, ledger: Unrecorded, faults: Healthy) -> None:
    """Force a file's bytes out.

    By a descriptor of its own: any thread may call this while the owner's is given away. It still
    hears of a failed write-back that nobody was told of yet (the kernel keeps that per file).
    """
    try:
        fd = os.open(path, FOR_SYNC)
    except FileNotFoundError:
        return  # deleted meanwhile: nothing left that could be lost
    try:
        with syncing_for_good(path):
            if faults.on[0]:
                faults.strike(Operation.SYNC, path)
            with ledger.syncing(fd):
                os.fdatasync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def syncing_for_good(what: str) -> Iterator[None]:
    """A sync that fails is the end, however it fails."""
    try:
        yield
    except OSError as error:
        raise FailedSyncError(error.errno, error.strerror, what) from error


class OpenFiles:
    """Which files hold a descriptor: at most `limit`, the ones longest unused go first. And what
    is told of all of them, what of them is on stable storage; and what they suffer from.

    Second chance instead of exact order: a use sets one flag, so that the produce and fetch
    paths do not reorder a list for every batch. Used by one thread only, but for the ledger.
    """

    def __init__(
        self, limit: int, ledger: Unrecorded | None = None, faults: Healthy | None = None
    ) -> None:
        assert limit > 0
        self.ledger = ledger or Unrecorded()
        self.faults = faults or Healthy()
        self._limit = limit
        self._files: dict[DiskFile, None] = {}

    def __len__(self) -> int:
        return len(self._files)

    def admit(self, file: "DiskFile") -> None:
        while len(self._files) >= self._limit:
            self._evict_one()
        self._files[file] = None

    def forget(self, file: "DiskFile") -> None:
        self._files.pop(file, None)

    def give_back(self) -> int:
        """Close some of those that are longest unused, for there are too few descriptors; how
        many."""
        count = min(GIVEN_BACK, len(self._files))
        for _ in range(count):
            self._evict_one()
        return count

    def _evict_one(self) -> None:
        # Each pass clears a flag, so it ends within two rounds.
        while True:
            oldest = next(iter(self._files))
            del self._files[oldest]
            if not oldest.used:
                oldest.release()
                return
            oldest.used = False
            self._files[oldest] = None


def read_into(fd: int, position: int, buffer: memoryview) -> int:
    """How much of the buffer was filled: less than all of it at the end of the file alone."""
    filled = os.preadv(fd, (buffer,), position)
    while 0 < filled < len(buffer):
        more = os.preadv(fd, (buffer[filled:],), position + filled)
        if not more:
            break
        filled += more
    return filled


class DiskFile:
    """One file, by positioned calls; reopened by itself after it had to give its descriptor away.

    Invariant: `size` counts whole appends only; what a failed one left behind lies above it.
    """

    __slots__ = ("_directory", "_fd", "_open_files", "_sick", "_size", "name", "readers", "used")

    def __init__(
        self,
        directory: "DiskDirectory",
        name: str,
        open_files: OpenFiles,
        *,
        must_exist: bool = False,
    ) -> None:
        self.name = name
        self.used = True
        self.readers = 0
        self._directory = directory
        self._open_files = open_files
        self._sick = open_files.faults.on
        self._fd = -1
        self._size = self._open_first(must_exist=must_exist)

    @property
    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Bytes]) -> int:
        fd = self._fd if self._fd >= 0 else self._open(REOPEN)
        self.used = True
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if self._sick[0]:
            self._strike(Operation.WRITE, size)
        if os.pwritev(fd, parts, self._size) != size:
            self._append_slowly(fd, parts, size)
        self._size += size
        return self._size

    def _append_slowly(self, fd: int, parts: Sequence[Bytes], size: int) -> None:
        """After a short write: go on until all is there, or the disk says why not."""
        rest = memoryview(b"".join(parts))
        assert len(rest) == size
        position = self._size
        try:
            while rest:
                written = os.pwrite(fd, rest, position)
                position += written
                rest = rest[written:]
        except OSError:
            with contextlib.suppress(OSError):
                self._open_files.ledger.changing_from(self._directory.path, fd, self._size)
                os.ftruncate(fd, self._size)
            raise

    def read(self, position: int, size: int) -> memoryview:
        if self._sick[0]:
            self._strike(Operation.READ, size)
        return memoryview(os.pread(self.fileno(), size, position))

    def read_into(self, position: int, buffer: memoryview) -> int:
        if self._sick[0]:
            self._strike(Operation.READ, len(buffer))
        return read_into(self.fileno(), position, buffer)

    def write_at(self, position: int, part: Bytes) -> None:
        assert position + len(part) <= self._size, "write_at never grows a file"
        fd = self.fileno()
        if self._sick[0]:
            self._strike(Operation.WRITE, len(part))
        self._open_files.ledger.changing_from(self._directory.path, fd, position)
        written = os.pwrite(fd, part, position)
        if written != len(part):
            raise OSError(f"{self.name}: {written} of {len(part)} bytes written at {position}")

    def truncate(self, size: int) -> None:
        fd = self.fileno()
        if self._sick[0]:
            self._strike(Operation.NAME)  # it needs no room
        self._open_files.ledger.changing_from(self._directory.path, fd, min(size, self._size))
        os.ftruncate(fd, size)
        self._size = size

    def sync(self) -> None:
        sync_path(self._path(), self._open_files.ledger, self._open_files.faults)

    def held(self) -> "HeldFile | None":
        """To be synced in a thread by a descriptor that is there already; None where none is."""
        try:
            return None if self._fd < 0 else HeldFile(os.dup(self._fd), self._open_files)
        except OSError:  # there are no more: by its name then
            return None

    def fileno(self) -> int:
        self.used = True
        return self._fd if self._fd >= 0 else self._open(REOPEN)

    def close(self) -> None:
        self._open_files.forget(self)
        self.release()

    def renamed(self, name: str) -> None:
        self.name = name

    def release(self) -> None:
        """Give the descriptor away; the next use opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_first(self, *, must_exist: bool) -> int:
        """The size of what is there, or is made now."""
        ledger, directory = self._open_files.ledger, self._directory
        try:
            found = os.fstat(self._open(REOPEN))
        except FileNotFoundError:
            if must_exist:
                raise
            if self._sick[0]:
                self._strike(Operation.CREATE)
            with ledger.creating(directory.path, self.name):
                found = os.fstat(self._open(CREATE))
                ledger.made(found.st_ino)
        else:
            ledger.found(found.st_ino, found.st_size)
        return found.st_size

    def _open(self, flags: int) -> int:
        open_files = self._open_files
        while True:
            open_files.admit(self)
            try:
                self._fd = os.open(self._path(), flags, PERMISSIONS)
            except OSError as error:
                open_files.forget(self)
                if error.errno not in _SHORT or not open_files.give_back():
                    raise
            else:
                return self._fd

    def _path(self) -> str:
        return f"{self._directory.path}/{self.name}"

    def _strike(self, operation: Operation, size: int = 0) -> None:
        self._open_files.faults.strike(operation, self._path(), size)


class DiskDirectory:
    """One directory; its path follows when it or its parent moves."""

    __slots__ = ("_name", "_open_files", "_parent")

    def __init__(self, name: str, parent: "DiskDirectory | None", open_files: OpenFiles) -> None:
        self._name = name
        self._parent = parent
        self._open_files = open_files

    @property
    def path(self) -> str:
        return self._name if self._parent is None else f"{self._parent.path}/{self._name}"

    @property
    def ledger(self) -> Unrecorded:
        return self._open_files.ledger

    @property
    def faults(self) -> Healthy:
        return self._open_files.faults

    def _strike(self, operation: Operation, name: str = "", size: int = 0) -> None:
        """Of something in it, or of itself."""
        faults = self._open_files.faults
        if faults.on[0]:
            faults.strike(operation, f"{self.path}/{name}" if name else self.path, size)

    def record(self, ledger: Unrecorded) -> None:
        """From now on, of all directories and files that share the bound with it."""
        self._open_files.ledger = ledger

    @property
    def parent(self) -> "DiskDirectory":
        return self if self._parent is None else self._parent

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        return os.path.lexists(f"{self.path}/{name}")

    def make(self) -> None:
        if self._parent is None:
            make_for_good(self.path)
            _make_private(self.path)
        elif not os.path.isdir(self.path):
            self._parent.make()
            self._strike(Operation.CREATE)
            with self.ledger.creating(self._parent.path, self._name):
                os.makedirs(self.path, mode=DIRECTORY_PERMISSIONS, exist_ok=True)

    def move(self, name: str) -> None:
        assert self._parent is not None, "the top directory stays where it is"
        self._strike(Operation.NAME)
        with self.ledger.renaming(self._parent.path, self._name, name):
            os.rename(self.path, f"{self._parent.path}/{name}")
        self._name = name

    def directory(self, name: str) -> "DiskDirectory":
        return DiskDirectory(name, self, self._open_files)

    def give_back_descriptors(self) -> None:
        """Of this directory's files, and of those that share the bound with it."""
        self._open_files.give_back()

    def open(self, name: str) -> DiskFile:
        return DiskFile(self, name, self._open_files)

    def open_existing(self, name: str) -> DiskFile:
        return DiskFile(self, name, self._open_files, must_exist=True)

    def syncable(self, name: str) -> "NamedFile":
        return NamedFile(self, name)

    def size(self, name: str) -> int | None:
        try:
            return os.stat(f"{self.path}/{name}", follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, name: str) -> int | None:
        try:
            found = os.stat(f"{self.path}/{name}", follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns // 1_000_000

    def read_all(self, name: str) -> bytes | None:
        try:
            fd = os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:
            self._strike(Operation.READ, name, os.fstat(fd).st_size)
            return file.read()

    def read_part(self, name: str, position: int, size: int) -> bytes | None:
        try:
            fd = os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            self._strike(Operation.READ, name, size)
            return os.pread(fd, size, position)
        finally:
            os.close(fd)

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        ledger, new = self.ledger, f"{name}.tmp"
        self._strike(Operation.REPLACE, name, len(content))
        try:
            fd = self._make_new(new)
        except FileExistsError:
            self.unlink(new)  # somebody who was killed left it
            fd = self._make_new(new)
        with open(fd, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                self._strike(Operation.SYNC, name)
                with ledger.syncing(fd):
                    os.fsync(fd)
        self.rename(new, name)
        if durable:
            self.sync()

    def _make_new(self, name: str) -> int:
        with self.ledger.creating(self.path, name):
            fd = os.open(f"{self.path}/{name}", CREATE | os.O_EXCL, PERMISSIONS)
            self.ledger.made(os.fstat(fd).st_ino)
        return fd

    def rename(self, old: str, new: str) -> None:
        path = self.path
        self._strike(Operation.NAME, new)
        with self.ledger.renaming(path, old, new):
            os.rename(f"{path}/{old}", f"{path}/{new}")

    def unlink(self, name: str) -> None:
        path = self.path
        self._strike(Operation.NAME, name)
        with contextlib.suppress(FileNotFoundError), self.ledger.removing(path, name):
            os.unlink(f"{path}/{name}")

    def remove_tree(self, name: str) -> None:
        self._strike(Operation.NAME, name)
        with self.ledger.removing_tree(self.path, name):
            _remove_tree(f"{self.path}/{name}")

    def sync(self) -> None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # as a deleted file
        try:
            with syncing_for_good(self.path):
                self._strike(Operation.SYNC)
                with self.ledger.syncing_names(fd):
                    os.fsync(fd)
        finally:
            os.close(fd)

    def sync_resting(self, age_ns: int) -> int:
        """Sync what of it was changed so long ago, and not synced since, if the ledger keeps files
        for that; how many directories. In any thread."""
        found = [
            path
            for path in self.ledger.resting(age_ns)
            if path == self.path or path.startswith(f"{self.path}/")
        ][:RESTING_MAX]
        for path in found:
            place = self if path == self.path else self.directory(path.rpartition("/")[2])
            place.sync()
        return len(found)


class HeldFile:
    """A file that is only to be synced, by a descriptor of its own: a thread that opens and closes
    one itself waits twice more for its turn among the others."""

    __slots__ = ("_fd", "_open_files")

    def __init__(self, fd: int, open_files: OpenFiles) -> None:
        self._fd = fd
        self._open_files = open_files

    def sync(self) -> None:
        faults = self._open_files.faults
        with syncing_for_good("a file of a log"):
            if faults.on[0]:
                faults.strike_open(Operation.SYNC, self._fd)
            with self._open_files.ledger.syncing(self._fd):
                os.fdatasync(self._fd)

    def let_go(self) -> None:
        os.close(self._fd)


class NamedFile:
    """A file that is only to be synced."""

    __slots__ = ("_directory", "_name")

    def __init__(self, directory: DiskDirectory, name: str) -> None:
        self._directory = directory
        self._name = name

    def sync(self) -> None:
        directory = self._directory
        sync_path(f"{directory.path}/{self._name}", directory.ledger, directory.faults)


def _remove_tree(path: str) -> None:
    """Also while a worker that compacts a deleted log still makes and renames files in it."""
    for left in reversed(range(REMOVALS_MAX)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not left or error.errno not in _CHANGED_MEANWHILE or not os.path.isdir(path):
                raise
        else:
            return


def make_for_good(path: str) -> None:
    """A directory that no power loss takes away: it is known to whom it belongs to from then on."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_for_good(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_PERMISSIONS)
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_private(path: str) -> None:
    """Nobody but the owner reaches what is in it, also where an earlier version made it. One that
    belongs to somebody else stays as it is."""
    mode = os.stat(path).st_mode
    if mode & ~DIRECTORY_PERMISSIONS & 0o777:
        with contextlib.suppress(OSError):
            Path(path).chmod(mode & DIRECTORY_PERMISSIONS)


def probe(directory: str, faults: Healthy) -> None:
    """OSError where nothing can be written there any more; in any thread, on a locked directory."""
    path = f"{directory}/{LOCK_NAME}"
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if faults.on[0]:
            faults.strike(Operation.WRITE, path, 1)
            faults.strike(Operation.SYNC, path)
        os.pwrite(fd, b"\n", 0)
        os.fdatasync(fd)
    finally:
        os.close(fd)


class DirectoryLock:
    """Keeps a second process off a log directory, as Kafka's `.lock`; gone with its process."""

    def __init__(self, directory: DiskDirectory, *, wait: bool = False) -> None:
        """With `wait` it blocks, in a thread, until nobody else has it: a process that is killed
        lets go when the last of its threads has ended, so that no write of its can follow."""
        directory.make()
        path = f"{directory.path}/{LOCK_NAME}"
        self._fd = os.open(path, CREATE, PERMISSIONS)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(self._fd)
            raise CannotStartError(
                f"{directory.path} is in use by another process; stop it, or choose another --data"
            ) from None

    def release(self) -> None:
        os.close(self._fd)
