"""The byte layout of a durability ledger: what of a process's files is on stable storage.

```
part    header 128   magic, version, size, cells in use, whether a part is missing, boot id
        cells  32    rows of one or more; a row's first word says what it is and how many cells
file    kind, inode, stable, undo
name    kind, directory's inode, durable inode, stamp, then the name
synced  kind, directory's inode, stamp
flushed kind, inode, when, how long
```
A *file* row: below `stable` the bytes are on stable storage as they are now. Where bytes that were
stable were cut off or written over since, `undo` is the number of the file that keeps them. The
upper part of its first word says when that was last known better: as the file was made, changed or
synced. Of a file that was only found it is 0. Several processes may have a row for one inode, for
the number of a removed file goes to the next one that is made: the latest row is true.

A *name* row: what the directory says of this name on stable storage is not what it says now. There
it is the name of `durable inode`, or of nothing (0). No row: both say the same.

A *synced* row: another process's names in that directory, changed before the stamp, are durable.

A *flushed* row: when the last sync of a file was over, an `Instant`, and how long it took. It is
for people, so the two words may be of two syncs, and where it has no room nothing is lost.

One process writes. A row counts from the moment its first word is there, which is written last, and
a row is changed one word at a time: whoever reads after a kill finds each row whole, or not at all.
All numbers are native: a ledger never leaves its machine.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError

MAGIC: Final = b"tideLEDG"
VERSION: Final = 1
HEADER_BYTES: Final = 128
CELL_BYTES: Final = 32
_HEADER: Final = struct.Struct("@8sQQQQ")
_BOOT_AT, _BOOT_BYTES = 48, 64
_IN_USE, _IS_FULL = 3, 4
_WORDS: Final = CELL_BYTES // 8
_HEADER_WORDS: Final = HEADER_BYTES // 8
_FREE, _FILE, _NAME, _SYNCED, _FLUSHED = range(5)
_KIND_BITS, _SPAN_BITS, _FIELD_MASK = 8, 16, 0xFF
_STAMP_SHIFT: Final = 10
"""A stamp of a file leaves out the last bits of a time in ns: so the 48 bits last for years."""

FIRST_PART_BYTES: Final = 128 * 1024
PART_BYTES_MAX: Final = 16 * 1024 * 1024
PARTS_MAX: Final = 32
"""Sizes double up to the largest: several hundred MiB, millions of files."""

Place = int
"""Of a row: the part in the upper half, the word in the lower."""
_PART_SHIFT: Final = 32
_WORD_MASK: Final = (1 << _PART_SHIFT) - 1

Grow = Callable[[int], "memoryview | None"]
"""One more part, by its number; None where there is no room."""


class FileRow(Struct, frozen=True):
    place: Place
    inode: int
    stable: int
    undo: int
    stamp: int


class NameRow(Struct, frozen=True):
    place: Place
    directory: int
    name: str
    durable: int
    stamp: int


class SyncedRow(Struct, frozen=True):
    place: Place
    directory: int
    stamp: int


class FlushedRow(Struct, frozen=True):
    place: Place
    inode: int
    at: int
    took_ns: int


Row = FileRow | NameRow | SyncedRow | FlushedRow


def part_bytes(number: int) -> int:
    """How large the part of that number is."""
    return min(FIRST_PART_BYTES << number, PART_BYTES_MAX)


def write_header(part: memoryview, boot_id: str) -> None:
    """Before anything else; a new part's bytes are zero."""
    boot = boot_id.encode("ascii")
    assert len(boot) <= _BOOT_BYTES, boot_id
    part[_BOOT_AT : _BOOT_AT + len(boot)] = boot
    _HEADER.pack_into(part, 0, MAGIC, VERSION, len(part), 0, 0)


def is_begun(start: bytes) -> bool:
    """Whether a part that starts so has a header. Its maker may have died before it wrote one: then
    there is no row in it either."""
    return bool(start[: len(MAGIC)].strip(b"\0"))


def check_header(part: memoryview, name: str) -> str:
    """The boot id it was written on; CorruptError where this is no part of a ledger."""
    if len(part) < HEADER_BYTES:
        raise CorruptError(file=name, position=len(part), reason="shorter than a ledger's header")
    magic, version, size, in_use, _ = _HEADER.unpack_from(part)
    if magic != MAGIC or version != VERSION:
        raise CorruptError(file=name, position=0, reason="not a ledger of this version")
    if size != len(part) or HEADER_BYTES + in_use * CELL_BYTES > size:
        raise CorruptError(file=name, position=16, reason="its size is not what it says")
    return bytes(part[_BOOT_AT : _BOOT_AT + _BOOT_BYTES]).rstrip(b"\0").decode("ascii", "replace")


def is_full(part: memoryview) -> bool:
    """Whether something had no place: then the ledger does not know of every file."""
    return bool(part[:HEADER_BYTES].cast("Q")[_IS_FULL])


class Rows:
    """The one writer's hands: puts rows where there is room, and changes them."""

    def __init__(self, parts: Iterable[memoryview], grow: Grow) -> None:
        self._grow = grow
        self._parts: list[memoryview] = []
        self._free: dict[int, list[Place]] = {}
        """By the number of cells."""
        for part in parts:
            self._take(part)

    def _take(self, part: memoryview) -> None:
        self._parts.append(part.cast("Q"))

    def existing(self) -> Iterator[Row]:
        """Those that an earlier life left; their free places are found on the way."""
        self._free.clear()
        for number, words in enumerate(self._parts):
            for at, kind, span in _walk(words):
                place = number << _PART_SHIFT | at
                if kind == _FREE:
                    self._free.setdefault(span, []).append(place)
                else:
                    yield _row(words, place, at, kind)

    def put_file(self, inode: int, stable: int, stamp: int) -> Place | None:
        return self._put(_file_kind(stamp), 1, (inode, stable, 0))

    def stamp_file(self, place: Place, stamp: int) -> None:
        words, at = self._parts[place >> _PART_SHIFT], place & _WORD_MASK
        words[at] = _file_kind(stamp) | 1 << _KIND_BITS

    def put_name(self, directory: int, name: bytes, durable: int, stamp: int) -> Place | None:
        padded = name.ljust(-(-len(name) // 8) * 8, b"\0")
        words = (directory, durable, stamp, *memoryview(padded).cast("Q"))
        return self._put(_NAME | len(name) << _SPAN_BITS, -(-(1 + len(words)) // _WORDS), words)

    def put_synced(self, directory: int, stamp: int) -> Place | None:
        return self._put(_SYNCED, 1, (directory, stamp))

    def put_flushed(self, inode: int, at: int, took_ns: int) -> Place | None:
        place = self._room(1)
        return None if place is None else self._fill(place, _FLUSHED, 1, (inode, at, took_ns))

    def set_flushed(self, place: Place, at: int, took_ns: int) -> None:
        words, first = self._parts[place >> _PART_SHIFT], place & _WORD_MASK
        words[first + 2], words[first + 3] = at, took_ns

    def set_stable(self, place: Place, stable: int) -> None:
        self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 2] = stable

    def set_undo(self, place: Place, undo: int) -> None:
        self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 3] = undo

    def set_durable(self, place: Place, durable: int) -> None:
        """Of a name."""
        self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 2] = durable

    def set_stamp(self, place: Place, stamp: int) -> None:
        """Of a name."""
        self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 3] = stamp

    def stamp_of(self, place: Place) -> int:
        """Of a name."""
        stamp: int = self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 3]
        return stamp

    def set_synced(self, place: Place, stamp: int) -> None:
        self._parts[place >> _PART_SHIFT][(place & _WORD_MASK) + 2] = stamp

    def free(self, place: Place) -> None:
        words, at = self._parts[place >> _PART_SHIFT], place & _WORD_MASK
        span = words[at] >> _KIND_BITS & _FIELD_MASK
        words[at] = _FREE | span << _KIND_BITS
        self._free.setdefault(span, []).append(place)

    def _put(self, kind: int, span: int, values: Sequence[int]) -> Place | None:
        """None where there is no room any more, which the ledger says of itself from then on."""
        place = self._room(span)
        if place is None:
            self._parts[0][_IS_FULL] = 1
            return None
        return self._fill(place, kind, span, values)

    def _fill(self, place: Place, kind: int, span: int, values: Sequence[int]) -> Place:
        words, at = self._parts[place >> _PART_SHIFT], place & _WORD_MASK
        for offset, value in enumerate(values, at + 1):
            words[offset] = value
        words[at] = kind | span << _KIND_BITS
        return place

    def _room(self, span: int) -> Place | None:
        free = self._free.get(span)
        if free:
            return free.pop()
        number = len(self._parts) - 1
        words = self._parts[number]
        in_use = words[_IN_USE]
        at = _HEADER_WORDS + in_use * _WORDS
        if at + span * _WORDS > len(words):
            part = self._grow(number + 1) if number + 1 < PARTS_MAX else None
            if part is None:
                return None
            self._take(part)
            return self._room(span)
        words[at] = _FREE | span << _KIND_BITS
        words[_IN_USE] = in_use + span
        return number << _PART_SHIFT | at

    def release(self) -> None:
        for words in self._parts:
            words.release()
        self._parts.clear()


def _file_kind(stamp: int) -> int:
    return _FILE | stamp >> _STAMP_SHIFT << _SPAN_BITS


def rows_of(parts: Iterable[memoryview]) -> Iterator[Row]:
    """All rows, for a reader; their places mean nothing to it."""
    for number, part in enumerate(parts):
        with part.cast("Q") as words:
            for at, kind, _ in _walk(words):
                if kind != _FREE:
                    yield _row(words, number << _PART_SHIFT | at, at, kind)


def _walk(words: memoryview) -> Iterator[tuple[int, int, int]]:
    """Where each row begins, its kind, and how many cells it has; stops at what cannot be."""
    at = _HEADER_WORDS
    end = min(_HEADER_WORDS + words[_IN_USE] * _WORDS, len(words))
    while at < end:
        first = words[at]
        kind, span = first & _FIELD_MASK, first >> _KIND_BITS & _FIELD_MASK
        if not span or kind > _FLUSHED or at + span * _WORDS > end:
            return
        yield at, kind, span
        at += span * _WORDS


def _row(words: memoryview, place: Place, at: int, kind: int) -> Row:
    one, two, three = words[at + 1], words[at + 2], words[at + 3]
    if kind == _FILE:
        return FileRow(place, one, two, three, words[at] >> _SPAN_BITS << _STAMP_SHIFT)
    if kind == _SYNCED:
        return SyncedRow(place, one, two)
    if kind == _FLUSHED:
        return FlushedRow(place, one, two, three)
    length = words[at] >> _SPAN_BITS
    raw = words[at + 4 : at + 4 + -(-length // 8)].tobytes()[:length]
    return NameRow(place, one, raw.decode("utf-8", "surrogateescape"), two, three)
