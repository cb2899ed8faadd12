"""Message formats 0 and 1, as clusters hold them that were started before Kafka 0.11.

A broker hands out what lies in its files, so an answer may hold messages of these formats beside
record batches. They are read here, and written as record batches, so that everything that reads
records knows one format only. Nothing is ever written in the old formats.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.wire.codecs import Codec, decompress
from tidelog.wire.errors import WireError
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_TIMESTAMP_BIT,
    Origin,
    Record,
    build_batch,
)

_HEAD: Final = Struct(">qi4xb")
"""Of each entry, old or new: the offset, the size behind it, four bytes, the magic."""
_MESSAGE: Final = Struct(">qiIbb")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_CRC_FROM: Final = 16
_NO_TIMESTAMP: Final = -1
_LZ4_CHECKED: Final = slice(4, 6)
_LZ4_CHECK_AT: Final = 6


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec_bits(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)


def only_batches(view: memoryview) -> memoryview:
    """The same records as record batches; the bytes themselves if there is no old message in them.

    WireError where an old message lies. A tail that was cut is left out, as in a fetch answer.
    """
    pieces: list[bytes | bytearray | memoryview] = []
    kept = position = 0
    for start, stop, magic in _entries(view):
        if magic < MAGIC:
            pieces += [view[kept:start], _as_batch(view[start:stop])]
            kept = stop
        position = stop
    if not pieces:
        return view
    return memoryview(b"".join([*pieces, view[kept:position]]))


def _entries(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Where each whole one begins and ends, and its magic."""
    position, end = 0, len(view)
    while end - position >= _HEAD.size:
        _, size, magic = _HEAD.unpack_from(view, position)
        stop = position + LENGTH_PREFIX_BYTES + size
        if stop > end or size <= 0:
            return  # what is wrong with a size is told by the reader of batches
        yield position, stop, magic
        position = stop


def _as_batch(entry: memoryview) -> bytearray:
    """One message, or all messages that one holds compressed."""
    outer = _read(entry)
    messages = [outer] if outer.codec_bits == 0 else _inner(outer)
    flags = NO_TIMESTAMP_BIT if outer.magic == 0 else 0
    if outer.is_append_time and outer.magic:
        messages = [one._replace(timestamp=outer.timestamp) for one in messages]
        flags = APPEND_TIME_BIT
    records = [Record(one.offset, one.timestamp, one.key, one.value) for one in messages]
    offsets = [one.offset for one in records]
    if offsets != sorted(set(offsets)):
        raise WireError(f"messages at offset {outer.offset} are out of order")
    return build_batch(records, origin=Origin(flags=flags))


def _inner(outer: _Message) -> list[_Message]:
    """Format 1 counts the offsets of messages from 0 on, and only the outer one has the last."""
    if outer.codec_bits > Codec.LZ4 or outer.value is None:
        raise WireError(f"message at offset {outer.offset}: codec {outer.codec_bits}")
    codec, data = Codec(outer.codec_bits), outer.value
    if codec is Codec.LZ4 and outer.magic == 0:
        data = _with_lz4_check(data)
    view = memoryview(decompress(codec, data))
    found, position = [], 0
    for start, stop, _ in _entries(view):
        found.append(_read(view[start:stop]))
        position = stop
    if not found or position != len(view) or any(one.codec_bits for one in found):
        raise WireError(f"message at offset {outer.offset} does not hold whole messages")
    if any(one.magic != outer.magic for one in found):
        raise WireError(f"message at offset {outer.offset} holds messages of another format")
    if outer.magic == 0:
        return found
    shift = outer.offset - found[-1].offset
    return [one._replace(offset=one.offset + shift) for one in found]


def _read(entry: memoryview) -> _Message:
    """One whole message; WireError where it is not what its CRC and sizes say."""
    if len(entry) < _MESSAGE.size:
        raise WireError(f"{len(entry)} bytes are no message")
    offset, _, crc, magic, attributes = _MESSAGE.unpack_from(entry)
    if zlib.crc32(entry[_CRC_FROM:]) != crc:
        raise WireError(f"message at offset {offset}: its CRC is wrong")
    if magic not in {0, 1}:
        raise WireError(f"message at offset {offset}: magic {magic}")
    position, timestamp = _MESSAGE.size, _NO_TIMESTAMP
    if magic == 1:
        if len(entry) < position + _INT64.size:
            raise WireError(f"message at offset {offset} has no timestamp")
        (timestamp,) = _INT64.unpack_from(entry, position)
        position += _INT64.size
    key, position = _sized(entry, position)
    value, position = _sized(entry, position)
    if position != len(entry):
        raise WireError(f"message at offset {offset}: {len(entry) - position} bytes behind it")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _sized(entry: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + _INT32.size
    if start > len(entry):
        raise WireError(f"message ends at byte {len(entry)}, in the middle of a size")
    (size,) = _INT32.unpack_from(entry, position)
    if size < 0:
        return None, start
    if start + size > len(entry):
        raise WireError(f"message ends at byte {len(entry)}, before its {size} bytes")
    return bytes(entry[start : start + size]), start + size


def _with_lz4_check(data: bytes) -> bytes:
    """The frame with a right check of its head: clients of format 0 computed it wrongly."""
    if len(data) <= _LZ4_CHECK_AT:
        raise WireError("lz4: the frame is cut")
    check = _xxhash_of_few(data[_LZ4_CHECKED]) >> 8 & 0xFF
    return data[:_LZ4_CHECK_AT] + bytes([check]) + data[_LZ4_CHECK_AT + 1 :]


def _xxhash_of_few(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than four bytes.

    >>> hex(_xxhash_of_few(bytes.fromhex("6040")) >> 8 & 0xff)
    '0x82'
    """
    assert len(data) < 4, data
    mask = 0xFFFF_FFFF
    found = 374_761_393 + len(data)
    for byte in data:
        found = found + byte * 374_761_393 & mask
        found = (found << 11 | found >> 21) & mask
        found = found * 2_654_435_761 & mask
    found = (found ^ found >> 15) * 2_246_822_519 & mask
    found = (found ^ found >> 13) * 3_266_489_917 & mask
    return found ^ found >> 16
