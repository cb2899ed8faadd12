"""The byte layout of a broker's disk faults: one page, written by whoever makes a disk sick.

```
header   64   magic, version, size, the next fault's number, generation, CRC of the faults
struck  128   for each fault how often it struck, a word of the broker's and one of its cleaner's
faults        slots of 488 bytes
```
The board has a word for each broker: 0 while its disks are well, else the generation of its page.
So a broker that looks at the word before it touches a file pays one read of memory, and reads the
page only when the word is another one. It trusts nothing of it that the CRC does not cover.
"""

import struct
import zlib
from enum import IntEnum, IntFlag
from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.limits import DISK_FAULTS_MAX

MAGIC: Final = b"tideSICK"
VERSION: Final = 1
PAGE_BYTES: Final = 4_096
ANY: Final = -1
_HEADER: Final = struct.Struct("@8sIIqqI")
_STRUCK_AT: Final = 64
_STRUCK_BYTES: Final = 16 * DISK_FAULTS_MAX
_FAULTS_AT: Final = _STRUCK_AT + _STRUCK_BYTES
_FAULT_BYTES: Final = (PAGE_BYTES - _FAULTS_AT) // DISK_FAULTS_MAX
_FAULT: Final = struct.Struct("@11qH")
_PARTITION_BYTES_MAX: Final = 249 + 1 + 10
_COUNT_BITS: Final = 32

assert _HEADER.size <= _STRUCK_AT
assert _FAULT.size + _PARTITION_BYTES_MAX <= _FAULT_BYTES


class Operation(IntFlag):
    """What is done to a file or a name."""

    READ = 1
    WRITE = 2
    """Of bytes into a file that is there."""
    CREATE = 4
    """Of a file or a directory, as a roll does."""
    REPLACE = 8
    """Of a small file as a whole: checkpoints and the like."""
    NAME = 16
    """A rename, or the removal of a name."""
    SYNC = 32


class Ailment(IntEnum):
    """What a disk suffers from."""

    IO_ERROR = 1
    FULL_DISK = 2
    SLOW_DISK = 3

    @property
    def word(self) -> str:
        """As commands call it."""
        return self.name.lower().replace("_", "-")


class FileGroup(IntEnum):
    """Files that are hit alike."""

    LOG = 0
    INDEX = 1
    """Indexes of offsets, times and aborted transactions."""
    SNAPSHOT = 2
    CHECKPOINT = 3
    """All other: checkpoints, marks, `partition.metadata`."""

    @property
    def word(self) -> str:
        return self.name.lower()


_GROUPS: Final = {
    ".log": FileGroup.LOG,
    ".index": FileGroup.INDEX,
    ".timeindex": FileGroup.INDEX,
    ".txnindex": FileGroup.INDEX,
    ".snapshot": FileGroup.SNAPSHOT,
}


def group_of(name: str) -> FileGroup:
    """By the name, whatever it ends in while it is being swapped or deleted."""
    parts = name.split(".")
    return next((_GROUPS[f".{one}"] for one in parts if f".{one}" in _GROUPS), FileGroup.CHECKPOINT)


class Touch(Struct, frozen=True):
    """One operation, and on what."""

    operation: Operation
    directory: int
    """Which of the broker's log directories; ANY where it is none of them."""
    partition: str
    """`t-0`; empty for what lies beside the partitions."""
    group: FileGroup | None
    """None for a directory itself."""


class DiskFault(Struct, frozen=True):
    """What is to happen to which operations."""

    number: int
    ailment: Ailment
    operations: Operation
    since_ns: int
    """By the wall clock."""
    error: int = 0
    """An `errno`; 0: the operation is done, if late."""
    delay_ns: int = 0
    bytes_per_second: int = 0
    """0: as fast as it goes."""
    times_max: int = 0
    """0: until it is healed."""
    until_ns: int = 0
    """By the monotonic clock; 0: until it is healed."""
    directory: int = ANY
    group: FileGroup | None = None
    partition: str = ""

    def is_of(self, touch: Touch) -> bool:
        return (
            bool(self.operations & touch.operation)
            and self.directory in {ANY, touch.directory}
            and self.partition in {"", touch.partition}
            and (self.group is None or self.group is touch.group)
        )

    def is_over(self, now_ns: int, struck: int) -> bool:
        """Nothing heals it, but it strikes no more."""
        return 0 < self.until_ns <= now_ns or 0 < self.times_max <= struck


class Sheet(Struct, frozen=True):
    """All faults of one broker's disks."""

    generation: int = 0
    next_number: int = 1
    faults: tuple[DiskFault, ...] = ()


def write_sheet(page: memoryview, sheet: Sheet) -> None:
    assert len(page) == PAGE_BYTES, len(page)
    assert len(sheet.faults) <= DISK_FAULTS_MAX, len(sheet.faults)
    faults = b"".join(_packed(one) for one in sheet.faults)
    faults = faults.ljust(PAGE_BYTES - _FAULTS_AT, b"\0")
    # Without its CRC first: who reads meanwhile finds a page that is being written.
    _HEADER.pack_into(page, 0, MAGIC, VERSION, PAGE_BYTES, sheet.next_number, sheet.generation, 0)
    page[_FAULTS_AT:] = faults
    crc = zlib.crc32(faults, sheet.generation & 0xFFFF_FFFF) or 1
    _HEADER.pack_into(page, 0, MAGIC, VERSION, PAGE_BYTES, sheet.next_number, sheet.generation, crc)


def read_sheet(page: memoryview, name: str) -> Sheet:
    """CorruptError where it is none, or is being written at this moment."""
    if len(page) != PAGE_BYTES:
        raise CorruptError(file=name, position=len(page), reason="not a page of disk faults")
    magic, version, size, next_number, generation, crc = _HEADER.unpack_from(page)
    if (magic, version, size) != (MAGIC, VERSION, PAGE_BYTES):
        raise CorruptError(file=name, position=0, reason="not disk faults of this version")
    faults = bytes(page[_FAULTS_AT:])
    if (zlib.crc32(faults, generation & 0xFFFF_FFFF) or 1) != crc:
        raise CorruptError(file=name, position=_FAULTS_AT, reason="wrong checksum")
    slots = (_unpacked(faults, number * _FAULT_BYTES, name) for number in range(DISK_FAULTS_MAX))
    return Sheet(generation, next_number, tuple(one for one in slots if one is not None))


def _packed(fault: DiskFault) -> bytes:
    partition = fault.partition.encode()
    assert len(partition) <= _PARTITION_BYTES_MAX, fault.partition
    assert 0 < fault.number < 1 << (63 - _COUNT_BITS), fault.number
    head = _FAULT.pack(
        fault.number,
        fault.ailment,
        fault.operations,
        fault.since_ns,
        fault.error,
        fault.delay_ns,
        fault.bytes_per_second,
        fault.times_max,
        fault.until_ns,
        fault.directory,
        ANY if fault.group is None else fault.group,
        len(partition),
    )
    return (head + partition).ljust(_FAULT_BYTES, b"\0")


def _unpacked(faults: bytes, at: int, name: str) -> DiskFault | None:
    number, ailment, operations, *numbers, group, length = _FAULT.unpack_from(faults, at)
    if not number:
        return None
    begin = at + _FAULT.size
    try:
        since, error, delay, rate, times, until, directory = numbers
        return DiskFault(
            number=number,
            ailment=Ailment(ailment),
            operations=Operation(operations),
            since_ns=since,
            error=error,
            delay_ns=delay,
            bytes_per_second=rate,
            times_max=times,
            until_ns=until,
            directory=directory,
            group=None if group == ANY else FileGroup(group),
            partition=faults[begin : begin + length].decode(),
        )
    except ValueError as error:
        raise CorruptError(file=name, position=at, reason=f"no disk fault: {error}") from error


class Striker(IntEnum):
    """Who counts: each word has one writer."""

    BROKER = 0
    CLEANER = 1


class Struck:
    """How often each fault struck. A slot's words belong to the fault whose number they bear."""

    def __init__(self, page: memoryview) -> None:
        self._words = page[_STRUCK_AT:_FAULTS_AT].cast("q")

    def add(self, slot: int, fault: DiskFault, by: Striker) -> None:
        count = self._of(slot, fault, by)
        self._words[2 * slot + by] = fault.number << _COUNT_BITS | count + 1

    def count(self, slot: int, fault: DiskFault) -> int:
        return sum(self._of(slot, fault, by) for by in Striker)

    def _of(self, slot: int, fault: DiskFault, by: Striker) -> int:
        word = self._words[2 * slot + by]
        return word & ((1 << _COUNT_BITS) - 1) if word >> _COUNT_BITS == fault.number else 0

    def release(self) -> None:
        self._words.release()
