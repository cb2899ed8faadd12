"""The board in shared memory: every process of a run opens it and writes its own slot. (shell)"""

import errno
import mmap
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import posix_ipc

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import Incarnation
from tidelog.kernel.launch import MEMORY_FOLDER, board_name
from tidelog.kernel.limits import STANDBYS_MAX
from tidelog.node.ipc import layout
from tidelog.node.ipc.events import Event, EventRing, read_ring
from tidelog.node.ipc.layout import Disks, Fences, Links, Role, Slot, SlotWriter, slot_of

_RUN_OF = re.compile(r"/tidelog-([^-]+)-")
_SUFFIX = "~"
_SUFFIX_BYTES = 8


class Board:
    """A mapped board. Closing it takes nothing from the other processes."""

    def __init__(self, name: str, descriptor: int, size_bytes: int) -> None:
        self.name = name
        self.descriptor = descriptor
        """Open as long as the board is: the supervisor holds a lock on it."""
        self._map = mmap.mmap(descriptor, size_bytes)
        self._view = memoryview(self._map)
        self._writers: list[SlotWriter] = []
        self._rings: list[EventRing] = []
        self._fences: Fences | None = None
        self._links: Links | None = None
        self._disks: Disks | None = None
        self.slots = 0

    @classmethod
    def create(cls, name: str, slots: int = layout.SLOTS) -> Self:
        """Every byte is reserved now: writing to a full /dev/shm later would be a SIGBUS."""
        size = layout.board_size_bytes(slots)
        try:
            descriptor = create_memory(name, size)
        except PermissionError as error:
            raise CannotStartError(
                f"no permission to make shared memory in {MEMORY_FOLDER}: its mode must be 1777"
            ) from error
        except OSError as error:
            raise CannotStartError(no_room(size)) from error
        board = cls(name, descriptor, size)
        layout.write_header(board._view, slots)
        board.slots = slots
        return board

    @classmethod
    def open(cls, name: str) -> Self:
        """CorruptError where it is no whole board, posix_ipc.ExistentialError where none is."""
        descriptor = open_memory(name)
        size = os.fstat(descriptor).st_size
        if size == 0:
            os.close(descriptor)
            raise CorruptError(file=name, position=0, reason="the board is empty")
        board = cls(name, descriptor, size)
        try:
            board.slots = layout.check_header(board._view, name)
        except CorruptError:
            board.close()
            raise
        return board

    def writer(self, slot: int) -> SlotWriter:
        """For the process that owns the slot, once."""
        writer = SlotWriter(layout.slot_view(self._view, slot))
        self._writers.append(writer)
        return writer

    def read_slot(self, slot: int) -> Slot | None:
        with layout.slot_view(self._view, slot) as view:
            return layout.read_slot(view)

    def crashed_coordinators(self) -> frozenset[Incarnation]:
        """Of each coordinator's slot the last life that ended by a bug of its own."""
        slots = [slot_of(Role.COORDINATOR, seat) for seat in range(1 + STANDBYS_MAX)]
        found = set()
        for slot in slots:
            with layout.slot_view(self._view, slot) as view:
                found.add(layout.read_crashed(view))
        return frozenset(found)

    def ring(self, slot: int) -> EventRing:
        """For the process that owns the slot, once."""
        ring = EventRing(layout.ring_view(self._view, slot, self.slots))
        self._rings.append(ring)
        return ring

    def events(self, slot: int) -> list[Event]:
        """What the process of that slot recorded last, in order."""
        with layout.ring_view(self._view, slot, self.slots) as view:
            return read_ring(view)

    @property
    def fences(self) -> Fences:
        """The fence words; a broker looks at its own in every turn of its loop."""
        if self._fences is None:
            self._fences = Fences(self._view)
        return self._fences

    @property
    def links(self) -> Links:
        """The fault switches of the pipes between brokers."""
        if self._links is None:
            self._links = Links(self._view)
        return self._links

    @property
    def disks(self) -> Disks:
        """The fault switches of brokers' disks."""
        if self._disks is None:
            self._disks = Disks(self._view)
        return self._disks

    def close(self) -> None:
        """Unmap. The board stays for the others until its name is removed and all have closed."""
        for writer in self._writers:
            writer.release()
        for ring in self._rings:
            ring.release()
        if self._fences is not None:
            self._fences.release()
        if self._links is not None:
            self._links.release()
        if self._disks is not None:
            self._disks.release()
        self._view.release()
        self._map.close()
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def create_memory(name: str, size_bytes: int) -> int:
    """The descriptor of new shared memory; OSError where there is no room, and nothing is left.

    Another user of the machine may have taken the name: then it gets a suffix that nobody can
    guess. `posix_ipc.ExistentialError` where this user has memory of that name already.
    """
    if _ours(name):
        raise posix_ipc.ExistentialError(f"{name} exists")
    try:
        memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.Error:
        memory = _create_beside(name)
    try:
        os.posix_fallocate(memory.fd, 0, size_bytes)
    except OSError:
        memory.close_fd()
        remove_memory(name)
        raise
    descriptor: int = memory.fd
    return descriptor


def _create_beside(name: str) -> posix_ipc.SharedMemory:
    other = name + _SUFFIX + os.urandom(_SUFFIX_BYTES).hex()
    try:
        return posix_ipc.SharedMemory(other, posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.Error as error:
        raise PermissionError(errno.EACCES, str(error), MEMORY_FOLDER) from error


def open_memory(name: str) -> int:
    """The descriptor of this user's memory of that name; of nobody else's, whatever its mode says.
    `posix_ipc.ExistentialError` where there is none.

    Whoever owns memory may cut it short, which would kill who has mapped it.
    """
    owner = _owner(name)
    for there in _ours(name):
        try:
            descriptor: int = posix_ipc.SharedMemory(there).fd
        except posix_ipc.Error:
            continue
        if os.fstat(descriptor).st_uid == owner:
            return descriptor
        os.close(descriptor)
    raise posix_ipc.ExistentialError(f"no shared memory of this user has the name {name}")


def remove_memory(name: str) -> None:
    """Who has it open keeps it. Nothing where this user has none of that name, or where somebody
    has mounted something at that name."""
    for there in _ours(name):
        with suppress(posix_ipc.Error, OSError):
            posix_ipc.unlink_shared_memory(there)


def _ours(name: str) -> list[str]:
    """Names in the file system: that one, or with a suffix."""
    folder, owner = Path(MEMORY_FOLDER), _owner(name)
    entries = [folder / name[1:], *folder.glob(f"{name[1:]}{_SUFFIX}*")]
    return [f"/{entry.name}" for entry in entries if _owner_of(entry) == owner]


def _owner(name: str) -> int:
    """Whose memory counts: this user's. Root may look at the cluster of another user, and that
    user's memory counts then; the board says who that is."""
    me = os.geteuid()
    run = _RUN_OF.match(name)
    if me or run is None:
        return me
    holder = _owner_of(Path(MEMORY_FOLDER) / board_name(run[1])[1:])
    return me if holder is None else holder


def _owner_of(path: Path) -> int | None:
    """None where there is no such file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_uid if stat.S_ISREG(status.st_mode) else None


def no_room(size_bytes: int) -> str:
    """What to tell who has too small a /dev/shm."""
    return (
        f"no room for {size_bytes // 1024} KiB of shared memory in {MEMORY_FOLDER}: "
        "free some, or give it more (mount -o remount,size=256m /dev/shm; docker run --shm-size)"
    )


def memory_of_run(run_id: str) -> list[str]:
    """Names of all shared memory that a run has, without the suffixes that some need."""
    begin = f"/tidelog-{run_id}-"
    owner = _owner(begin)
    entries = Path(MEMORY_FOLDER).glob(f"{begin[1:]}*")
    mine = {entry.name for entry in entries if _owner_of(entry) == owner}
    return sorted({f"/{name.partition(_SUFFIX)[0]}" for name in mine})


def remove_memory_of_run(run_id: str) -> list[str]:
    """Remove what a run has left; the names that were there."""
    names = memory_of_run(run_id)
    # The board last: as long as it is there it says whose the others are.
    for name in sorted(names, key=board_name(run_id).__eq__):
        remove_memory(name)
    return names
