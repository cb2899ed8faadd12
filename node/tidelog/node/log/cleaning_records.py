"""The records of one batch, taken apart for compaction: keys, offsets, and where each one lies.

Ordinary batches hold runs of records of one shape: the same sizes, only other bytes. Such a run is
found and taken apart by columns, in C (strided slices, `struct.iter_unpack`): a record then costs
0.1 us instead of 0.6. What fits no run is read one by one. `bench/compaction.py` has the figures.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from struct import Struct

from tidelog.wire.errors import WireError
from tidelog.wire.varints import varint, varint_bytes, varint_rest

KEY_BYTES_PLAIN = 32
"""Longer keys are known by their hash."""
_WORTH = 4
"""A run that is shorter is not worth its search; the next one waits for a while."""
_PAUSE = 32
_LOW = bytes(range(128))
_HIGH = bytes(range(128, 256))
_NULL = b"\x01"
_EVEN = bytes(range(0, 128, 2))
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_CONSECUTIVE_MAX = 8192
_CONSECUTIVE_LOW = bytes(number & 127 | 128 for number in range(0, 2 * _CONSECUTIVE_MAX, 2))
_CONSECUTIVE_HIGH = bytes(number >> 7 for number in range(0, 2 * _CONSECUTIVE_MAX, 2))


@lru_cache(256)
def _picker(before: int, size: int, after: int) -> Struct:
    return Struct(f"{before}x{size}s{after}x")


class Columns:
    """One batch's records by column."""

    __slots__ = ("_data", "_deltas", "_has_jumps", "_runs", "any_tombstone", "keys")

    def __init__(self, data: bytes) -> None:
        self.keys: list[bytes | None] = []
        self.any_tombstone = False
        self._deltas: list[int] = []
        """Offsets less the batch's base, up to the last jump; where there is none, none."""
        self._has_jumps = False
        self._data = data
        self._runs: list[tuple[int, int, int]] = []
        """Position, bytes of one record, records."""

    def add_deltas(self, deltas: Sequence[int]) -> None:
        """Of the records whose keys come next: most batches have them all, so none is kept."""
        at = len(self.keys)
        if not self._has_jumps:
            expected = range(at, at + len(deltas))
            if deltas == (expected if isinstance(deltas, range) else [*expected]):
                return
            self._has_jumps = True
            self._deltas += range(at)
        self._deltas += deltas

    def offsets(self, base: int) -> Sequence[int]:
        """Of each record, in a batch with that base offset."""
        if not self._has_jumps:
            return range(base, base + len(self.keys))
        return [base + delta for delta in self._deltas]

    def lie_below(self, end: int) -> bool:
        """Whether each record's offset lies in a batch that ends there."""
        if not self._has_jumps:
            return len(self.keys) <= end
        return 0 <= min(self._deltas) <= max(self._deltas) < end

    def add_run(self, position: int, size: int, count: int) -> None:
        self._runs.append((position, size, count))

    def pieces(self) -> list[bytes]:
        """Each record's bytes."""
        found: list[bytes] = []
        data = self._data
        view = memoryview(data)
        for position, size, count in self._runs:
            if count == 1:
                found.append(data[position : position + size])
            else:
                run = view[position : position + count * size]
                found += chain.from_iterable(_picker(0, size, 0).iter_unpack(run))
        return found


class _Shape:
    """How one record is laid out; all of one shape differ in their bytes only."""

    __slots__ = (
        "delta_at",
        "delta_bytes",
        "key_at",
        "key_bytes",
        "key_size_at",
        "size",
        "stamp_at",
    )

    def __init__(self, data: bytes, position: int) -> None:
        length, at = varint(data, position)
        self.size = at + length - position
        self.stamp_at = at + 1 - position
        _, at = varint(data, at + 1)
        self.delta_at = at - position
        _, at = varint(data, at)
        self.delta_bytes = at - position - self.delta_at
        self.key_size_at = at - position
        self.key_bytes, at = varint(data, at)
        self.key_at = at - position
        if length < 0 or at + max(self.key_bytes, 0) >= position + self.size:
            raise WireError(f"record of {length} bytes at byte {position} of its batch")


def take_apart(data: bytes, count: int) -> Columns:
    """The records of a batch that claims to hold so many; WireError where it does not."""
    columns = Columns(data)
    position, left = 0, count
    try:
        while left > 0:
            shape = _Shape(data, position)
            run = _alike(data, position, shape, left)
            if run >= _WORTH:
                _take_run(columns, data, position, shape, run)
                position += run * shape.size
            else:
                run = min(_PAUSE, left)
                position = _take_singly(columns, data, position, run)
            left -= run
    except IndexError as error:
        raise WireError(f"record near byte {position} of its batch: {error}") from None
    if position != len(data):
        raise WireError(f"{len(data) - position} bytes behind the last record")
    return columns


def _alike(data: bytes, position: int, shape: _Shape, most: int) -> int:
    """How many records from here on have that shape. The first one does."""
    size = shape.size
    if (
        shape.key_bytes < 0
        or data[position + size : position + size + 1] != data[position : position + 1]
    ):
        return 1
    count = min(most, (len(data) - position) // size)
    key_end = shape.key_at + shape.key_bytes
    fixed = [*range(shape.stamp_at - 1), *range(shape.key_size_at, shape.key_at)]
    for at in fixed:
        start = position + at
        column = data[start : start + count * size : size]
        count -= len(column.lstrip(column[:1]))
    for first, end in ((shape.stamp_at, shape.delta_at), (shape.delta_at, shape.key_size_at)):
        count = _same_width(data, position + first, position + end - 1, size, count)
    column = data[position + key_end : position + key_end + count * size : size]
    if column[:1] == _NULL:
        return count - len(column.lstrip(_NULL))
    other = column.find(_NULL)
    return count if other < 0 else other


def _same_width(data: bytes, first: int, last: int, size: int, count: int) -> int:
    """How many of the varints that begin at `first` end at `last`, until one does not."""
    for at in range(first, last):
        column = data[at : at + count * size : size]
        if column.translate(None, _HIGH):
            count -= len(column.lstrip(_HIGH))
    column = data[last : last + count * size : size]
    return count if column.isascii() else count - len(column.lstrip(_LOW))


def _take_run(columns: Columns, data: bytes, position: int, shape: _Shape, count: int) -> None:
    size, key_at, key_bytes = shape.size, shape.key_at, shape.key_bytes
    stop = position + count * size
    run = memoryview(data)[position:stop]
    picker = _picker(key_at, key_bytes, size - key_at - key_bytes)
    start = position + shape.delta_at
    columns.add_deltas(
        _offsets([data[start + at : stop : size] for at in range(shape.delta_bytes)])
    )
    keys: Iterable[bytes] = chain.from_iterable(picker.iter_unpack(run))
    columns.keys += keys if key_bytes <= KEY_BYTES_PLAIN else map(digest, keys)
    columns.any_tombstone |= data[position + key_at + key_bytes] == 1
    columns.add_run(position, size, count)


def _offsets(parts: Sequence[bytes]) -> Sequence[int]:
    """Offset deltas from the bytes of their varints, a column each."""
    count = len(parts[0])
    if len(parts) == 1:
        first = parts[0][0] >> 1
        if parts[0] == _EVEN[first : first + count]:
            return range(first, first + count)
        return [number >> 1 for number in parts[0]]
    if len(parts) == 2:
        first = (parts[0][0] & 127 | parts[1][0] << 7) >> 1
        low = _CONSECUTIVE_LOW[first : first + count]
        if parts[0] == low and parts[1] == _CONSECUTIVE_HIGH[first : first + count]:
            return range(first, first + count)
    return [
        sum((byte & 127) << 7 * at for at, byte in enumerate(number)) >> 1
        for number in zip(*parts, strict=True)
    ]


def _take_singly(columns: Columns, data: bytes, position: int, count: int) -> int:
    """Records of all shapes; where the last one ends. Short varints are read in line."""
    keys: list[bytes | None] = []
    deltas: list[int] = []
    add_key, add_delta, add_run = keys.append, deltas.append, columns.add_run
    any_tombstone = columns.any_tombstone
    for _ in range(count):
        start = position
        size, position = varint(data, position)
        end = position + size
        position += 2
        if data[position - 1] >= 128:
            _, position = varint_rest(data, position, data[position - 1])
        delta = data[position] >> 1
        position += 1
        if delta >= 64:
            delta, position = varint_rest(data, position, data[position - 1])
        key, position = _key(data, position)
        add_key(key)
        any_tombstone |= data[position] == 1
        if position >= end:
            raise WireError(f"record of {end - start} bytes at byte {start} of its batch")
        add_delta(delta)
        add_run(start, end - start, 1)
        position = end
    columns.any_tombstone = any_tombstone
    columns.add_deltas(deltas)
    columns.keys += keys
    return position


def _key(data: bytes, position: int) -> tuple[bytes | None, int]:
    """A record's key, or what stands for it, and the position behind it."""
    size = data[position]
    position += 1
    if size < 128:
        size = (size >> 1) ^ -(size & 1)
    else:
        size, position = varint_rest(data, position, size)
    if size < 0:
        if size != -1:
            raise WireError(f"key of {size} bytes before byte {position} of its batch")
        return None, position
    key = data[position : position + size]
    return key if size <= KEY_BYTES_PLAIN else digest(key), position + size


def digest(key: bytes) -> bytes:
    """What stands for a long key; of a length that no short key has."""
    return blake2b(key, digest_size=KEY_BYTES_PLAIN + 1).digest()


def is_tombstone(piece: bytes) -> bool:
    shape = _Shape(piece, 0)
    return piece[shape.key_at + max(shape.key_bytes, 0)] == 1


def stamp_delta(piece: bytes) -> int:
    """A record's timestamp less its batch's base."""
    at = 2 if piece[0] < 128 else _Shape(piece, 0).stamp_at
    return varint(piece, at)[0]


def largest_stamp(pieces: Sequence[bytes], base: int, known: int) -> int:
    """The largest timestamp; `known` was that of the whole batch: none counts as larger."""
    largest = -1
    for piece in reversed(pieces):
        largest = max(largest, base + stamp_delta(piece))
        if largest >= known:
            return known
    return largest


def moved(pieces: Sequence[bytes], by: int) -> list[bytes] | None:
    """The records with timestamps relative to a base that is so much larger.

    None if one of them no longer fits into 64 bits.
    """
    found: list[bytes] = []
    for piece in pieces:
        _, start = varint(piece, 0)
        delta, end = varint(piece, start + 1)
        if not _INT64_MIN <= delta - by <= _INT64_MAX:
            return None
        body = piece[start : start + 1] + varint_bytes(delta - by) + piece[end:]
        found.append(varint_bytes(len(body)) + body)
    return found
