"""Batches with a valid checksum around records that nobody should have written."""

from random import Random

from harness.logs.batches import NOW_MS
from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.wire.codecs import Codec
from tidelog.wire.codecs import compress as compressed
from tidelog.wire.records import BATCH_LENGTH_MIN, HEADER, MAGIC, seal
from tidelog.wire.varints import varint_bytes

NOISE = Random(1).randbytes(300)


def raw_batch(
    body: bytes, *, count: int, attributes: int = 0, base_timestamp: int = NOW_MS
) -> bytearray:
    """A batch with a valid checksum around any bytes."""
    length = BATCH_LENGTH_MIN + len(body)
    stamps = (base_timestamp, base_timestamp)
    fields = (0, length, 0, MAGIC, 0, attributes, count - 1, *stamps, -1, -1, -1, count)
    batch = bytearray(HEADER.pack(*fields)) + body
    seal(batch)
    return batch


def record(delta: int, key: bytes, value: bytes | None, *, stamp: int = 0) -> bytes:
    """One record whose timestamp delta may take more than 64 bits."""
    body = b"\x00" + _wide(stamp) + varint_bytes(delta) + _sized(key)
    body += (b"\x01" if value is None else _sized(value)) + b"\x00"
    return varint_bytes(len(body)) + body


def _wide(value: int) -> bytes:
    left, out = (value << 1) if value >= 0 else ((-value << 1) - 1), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _sized(content: bytes) -> bytes:
    return varint_bytes(len(content)) + content


UNREADABLE = {
    "noise": raw_batch(NOISE, count=3),
    "noise that claims to be gzip": raw_batch(NOISE, count=3, attributes=Codec.GZIP),
    "a codec nobody knows": raw_batch(NOISE, count=3, attributes=7),
    "more than may be unpacked": raw_batch(
        compressed(Codec.ZSTD, bytes(DECOMPRESSED_BATCH_BYTES_MAX + 1)),
        count=3,
        attributes=Codec.ZSTD,
    ),
    "fewer records than it claims": raw_batch(record(0, b"a", b"1"), count=3),
    "an offset behind the batch": raw_batch(record(1_000_000, b"a", b"1"), count=1),
    "an offset before the batch": raw_batch(record(-70, b"a", b"1"), count=1),
    "a key of negative length": raw_batch(b"\x0c\x00\x00\x00\x09\x00\x00", count=1),
}
PRODUCED = ("noise", "noise that claims to be gzip", "more than may be unpacked")
"""What a topic that is not compacted takes from a client."""
