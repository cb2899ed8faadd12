"""gzip, snappy, lz4 and zstd as functions, with a bound on what they give.

cramjam is imported at the first use: a broker that only stores batches never needs it.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX, KIB
from tidelog.wire.errors import ErrorCode, Rejected, WireError


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


Bytes = bytes | bytearray | memoryview

_BUFFER_BYTES_FIRST = 64 * KIB
_BUFFER_GROWTH = 8
_BUFFER_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 * KIB

# Version 1, independent blocks of at most 64 KiB, no checksums; the last byte checks those two.
_LZ4_HEAD = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK_BYTES = 64 * KIB
_LZ4_STORED = 0x8000_0000
_LZ4_LEVEL_DEFAULT = 9
"""Kafka's default means its fast way, all other levels mean the thorough one."""
_LZ4_LEVEL_HIGH_MIN = 3
_LZ4_LEVEL_MAX = 12
"""Java's library counts to 17, and does from 12 on the same."""


def compress(codec: Codec, data: Bytes, *, level: int | None = None) -> bytes:
    """The compressed form, as Java's clients write it. Of all but snappy the level counts."""
    assert codec is not Codec.NONE, "nothing to compress"
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Bytes, *, limit: int = DECOMPRESSED_BATCH_BYTES_MAX) -> bytes:
    """The data, or WireError where it is not of this codec, or Rejected where it exceeds `limit`.

    No codec is trusted with its own output: at most `limit` bytes are ever allocated. A zstd frame
    that asks for a window of more than 128 MiB is refused by its decoder.
    """
    assert codec is not Codec.NONE, "nothing to decompress"
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    return _decompress_into(codec, data, limit)


def _cramjam() -> Any:  # noqa: ANN401 -- a compiled module
    import cramjam  # noqa: PLC0415 -- 5 ms that most processes never pay

    return cramjam


def _decompress_into(codec: Codec, data: Bytes, limit: int) -> bytes:
    """Into buffers of growing size, for the true size is known only at the end."""
    cramjam = _cramjam()
    decode = getattr(cramjam, codec.name.lower()).decompress_into
    size = min(limit, max(_BUFFER_BYTES_FIRST, 4 * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: decode(data, buffer)])
        except cramjam.DecompressionError as failure:
            if str(failure) != _BUFFER_FULL:
                raise WireError(f"{codec.name.lower()}: {failure}") from None
        del buffer  # before the next one is made
        if size == limit:
            raise _too_large(codec, limit)
        size = min(limit, size * _BUFFER_GROWTH)


def _too_large(codec: Codec, limit: int) -> Rejected:
    detail = f"{codec.name.lower()} data of more than {limit} bytes when decompressed"
    return Rejected(ErrorCode.MESSAGE_TOO_LARGE, detail)


def _decompress_snappy(data: Bytes, limit: int) -> bytes:
    """Both forms: librdkafka and Go write one raw block, Java a xerial stream of them."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    parts: list[bytes] = []
    position = len(_XERIAL_HEAD)
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size == 0 or size > len(view) - position:
            raise WireError(f"snappy: block of {size} bytes before byte {position}")
        parts.append(_snappy_block(view[position : position + size], limit))
        limit -= len(parts[-1])
        position += size
    return b"".join(parts)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    """One raw block; its size stands in front, and the decoder holds it to that."""
    cramjam = _cramjam()
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large(Codec.SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as failure:
        raise WireError(f"snappy: {failure}") from None


def _gzip(data: Bytes, level: int | None) -> bytes:
    return bytes(_cramjam().gzip.compress(data, level=level))


def _snappy(data: Bytes, _level: int | None) -> bytes:
    """A xerial stream: what Java's clients write, and read without first joining it."""
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    out = bytearray(_XERIAL_HEAD)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _lz4(data: Bytes, level: int | None) -> bytes:
    """A frame of blocks that are not linked: linked ones Java refuses.

    Without a level, and with Kafka's default one, the fast way, as Java's.
    """
    if level is not None and level != _LZ4_LEVEL_DEFAULT:
        return _lz4_high(data, level)
    compress_block = _cramjam().lz4.compress_block
    view = memoryview(data)
    out = bytearray(_LZ4_HEAD)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little")
            out += block
        else:
            out += (len(plain) | _LZ4_STORED).to_bytes(4, "little")
            out += plain
    out += bytes(4)
    return bytes(out)


def _lz4_high(data: Bytes, level: int) -> bytes:
    level = min(max(level, _LZ4_LEVEL_HIGH_MIN), _LZ4_LEVEL_MAX)
    packing = _cramjam().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packing.compress(bytes(data))  # it takes nothing else
    return bytes(packing.finish())


def _zstd(data: Bytes, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(data, level=level))


_COMPRESS: dict[Codec, Callable[[Bytes, int | None], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
