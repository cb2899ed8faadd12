"""What the kernel's page cache has of a file, when it writes back by itself, and asking it to write
back or to forget. (shell)

`cachestat(2)` (Linux 6.5) counts pages without touching them, mapping the file or taking a lock
that its writer needs. Older kernels say by `mincore(2)` what is cached, and not what is dirty.
"""

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

_CACHESTAT: Final = 451
"""The same number on all machines."""
_EVICTION_WAITS_S: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_NO_SUCH_CALL: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP})
_NOT_OF_SUCH_FILES: Final = _NO_SUCH_CALL | {errno.EINVAL, errno.ESPIPE}
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
"""Of `sync_file_range(2)`."""
"""EPERM: a container's filter that does not know the call."""
_VM: Final = Path("/proc/sys/vm")
_MEMINFO: Final = Path("/proc/meminfo")
TRIGGERS: Final = (
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_ratio",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
)
"""Of bytes and ratio the one that is not 0 holds."""

_STEP_BYTES: Final = 4 * 1024 * 1024
_READ_AHEAD_NAMES: Final = ("queue/read_ahead_kb", "../queue/read_ahead_kb")
"""Of a whole disk, and of a part of one."""
_READ_AHEAD_KIB: Final = 128
"""Of Linux, where a file system does not say on which disk it is."""
_READ_AHEAD: Final[dict[int, int]] = {}

_C: Final = ctypes.CDLL(None, use_errno=True)
_C.syscall.restype = ctypes.c_long
_C.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_C.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_Range: Final = ctypes.c_uint64 * 2
_WHOLE: Final = _Range(0, 0)
"""From byte 0; a length of 0 is to the end."""
_Counts: Final = ctypes.c_uint64 * 5


class Cached(Struct, frozen=True):
    """Bytes of whole pages, but never more than the file has."""

    cached: int
    dirty: int | None
    """Not on the disk yet, those on their way among them; None where the kernel does not say."""


class KernelView(Struct, frozen=True):
    """The kernel's own writing back."""

    triggers: Mapping[str, int]
    """Settings below `vm.`, those that could be read."""
    dirty: int | None
    """Of the whole machine, now."""
    writeback: int | None


def cached(descriptor: int, size: int) -> Cached | None:
    """Of an open file of that size; None where no call of this kernel tells."""
    if not size:
        return Cached(0, 0)
    counts = _Counts()
    if not _C.syscall(_CACHESTAT, descriptor, _WHOLE, counts, 0):
        there, dirty, writeback = counts[0], counts[1], counts[2]
        return Cached(
            min(there * mmap.PAGESIZE, size), min((dirty + writeback) * mmap.PAGESIZE, size)
        )
    if ctypes.get_errno() not in _NO_SUCH_CALL:
        return None
    in_memory = resident(descriptor, size)
    return None if in_memory is None else Cached(in_memory, None)


def all_cached(descriptor: int, start: int, size: int) -> bool | None:
    """Whether each page of a range is in memory, or on its way there; None where nobody tells."""
    first = start - start % mmap.PAGESIZE
    span = start + size - first
    there = _pages(descriptor, first, span)
    return None if there is None else there >= -(-span // mmap.PAGESIZE)


def _pages(descriptor: int, start: int, size: int) -> int | None:
    """How many pages of a range are in memory, or on their way there; None where nobody tells."""
    counts = _Counts()
    failed = _C.syscall(_CACHESTAT, descriptor, _Range(start, size), counts, 0)
    return None if failed else int(counts[0])


def cached_from(descriptor: int, start: int, size: int) -> int | None:
    """How many of the first bytes of a range are in memory, or on their way there; None where
    nobody tells. To ask by a read that must not wait would bring them there, and such a read finds
    them where the disk is quicker than the processor."""
    whole = all_cached(descriptor, start, size)
    if whole is None or whole:
        return None if whole is None else size
    first = start - start % mmap.PAGESIZE
    there, pages = 0, -(-(start + size - first) // mmap.PAGESIZE)
    while pages - there > 1:
        middle = (there + pages) // 2
        if all_cached(descriptor, first, middle * mmap.PAGESIZE):
            there = middle
        else:
            pages = middle
    return max(0, first + there * mmap.PAGESIZE - start)


def next_in_memory(descriptor: int, start: int) -> int:
    """Where, behind what the kernel may just have read ahead, something is in memory that was there
    before; the file's end if nothing is."""
    end = os.fstat(descriptor).st_size
    position = start + 2 * read_ahead_bytes(descriptor)
    while position < end:
        if _pages(descriptor, position, _STEP_BYTES) != 0:
            return position
        position += _STEP_BYTES
    return max(start, end)


def read_ahead_bytes(descriptor: int) -> int:
    """As much as the kernel reads beyond what it is asked for, on that file's disk."""
    device = os.fstat(descriptor).st_dev
    known = _READ_AHEAD.get(device)
    if known is None:
        disk = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
        found = (_number(Path(disk, name)) for name in _READ_AHEAD_NAMES)
        kibibytes = next((one for one in found if one is not None), _READ_AHEAD_KIB)
        known = _READ_AHEAD[device] = kibibytes * 1024
    return known


def write_back(descriptor: int, start: int, size: int, *, wait: bool) -> bool:
    """Give these bytes to the disk, and with `wait` until it has them; in a thread, for both may
    take long. It makes nothing durable: the disk's own cache and the file's size are left as they
    are. False where there is no such call; OSError where some of it could not be written, which
    nobody is told a second time."""
    flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER if wait else _WRITE
    if not _C.sync_file_range(descriptor, start, size, flags):
        return True
    number = ctypes.get_errno()
    if number in _NOT_OF_SUCH_FILES:
        return False
    raise OSError(number, os.strerror(number))


def forget(descriptor: int, start: int, size: int) -> bool:
    """Let go of whole pages that are on the disk, once all of these are: no byte is ever lost by
    it, but the next who reads them waits for the disk. False, OSError: as `write_back`."""
    if not write_back(descriptor, start, size, wait=True):
        return False
    os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
    return True


def evict(descriptor: int, start: int, size: int) -> bool:
    """Have these bytes leave memory, once they are on the disk: who reads them next reads the disk.

    Asked once, the kernel keeps a page that it is busy with, and says nothing: on a busy machine
    one of some 500. False where it keeps some for good, as a file system without a disk does.
    """
    for wait_s in _EVICTION_WAITS_S:
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
        if not _are_some_left(descriptor, start, size):
            return True
        time.sleep(wait_s)
    return False


def _are_some_left(descriptor: int, start: int, size: int) -> bool:
    end = os.fstat(descriptor).st_size
    there = _pages(descriptor, start, size or max(0, end - start))
    if there is None:
        there = resident(descriptor, end) if end else 0
    return bool(there)


def resident(descriptor: int, size: int) -> int | None:
    """As `mincore` says it: bytes of pages that are there; None where the file is too short."""
    both = mmap.PROT_READ | mmap.PROT_WRITE
    try:
        mapping = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, both)
    except (OSError, ValueError):
        return None
    with mapping as mapped:
        # ctypes takes the address of writable memory only; nobody writes, so nothing is copied.
        first = ctypes.c_char.from_buffer(mapped)
        pages = bytearray(-(-size // mmap.PAGESIZE))
        flags = (ctypes.c_ubyte * len(pages)).from_buffer(pages)
        failed = _C.mincore(ctypes.addressof(first), size, flags)
        del first, flags
    return None if failed else min(sum(page & 1 for page in pages) * mmap.PAGESIZE, size)


def kernel_view() -> KernelView:
    """As it is now."""
    said = {}
    for name in TRIGGERS:
        value = _number(_VM / name)
        if value is not None:
            said[name] = value
    memory = _memory()
    return KernelView(said, memory.get("Dirty"), memory.get("Writeback"))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _memory() -> dict[str, int]:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines)
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[-1] == "kB"}


def look(path: str | os.PathLike[str], size: int) -> Cached | None:
    """As `cached`, of a file by its name; None where it has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return cached(descriptor, size)
    finally:
        os.close(descriptor)
