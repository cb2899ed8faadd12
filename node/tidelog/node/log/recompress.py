"""Batches of a topic that keeps one codec: the records are packed anew, not looked at."""

from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.node.log.validation import BatchRules, too_large
from tidelog.wire.codecs import Codec, compress, decompress
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.records import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    seal,
)


def recompressed(
    batch: memoryview, header: BatchHeader, rules: BatchRules
) -> tuple[memoryview, BatchHeader]:
    """A validated batch in the topic's codec: the same but for codec, lengths and checksum.

    INVALID_RECORD where it does not hold what its codec says, MESSAGE_TOO_LARGE where it is more
    than may be unpacked, or more than the topic takes once it is packed anew.
    """
    assert rules.codec is not None, "the topic takes batches as they are"
    packed = _packed(_plain(batch, header, rules), rules)
    size = HEADER_BYTES + len(packed)
    if size > min(rules.message_bytes_max, rules.segment_bytes):
        raise too_large(size, rules)
    fields = header._replace(
        batch_length=BATCH_LENGTH_MIN + len(packed),
        attributes=header.attributes & ~CODEC_MASK | rules.codec,
    )
    made = bytearray(size)
    view = memoryview(made)
    HEADER.pack_into(made, 0, *fields)
    view[HEADER_BYTES:] = packed
    return view, fields._replace(crc=seal(view))


def _plain(batch: memoryview, header: BatchHeader, rules: BatchRules) -> bytes | memoryview:
    codec = Codec(header.codec_bits)
    records = batch[HEADER_BYTES:]
    if codec is Codec.NONE:
        return records
    limit = DECOMPRESSED_BATCH_BYTES_MAX
    if rules.codec is Codec.NONE:
        # More would be refused for its size anyway.
        limit = min(limit, rules.message_bytes_max)
    try:
        return decompress(codec, records, limit=limit)
    except WireError as error:
        raise Rejected(ErrorCode.INVALID_RECORD, f"records cannot be read: {error}") from error


def _packed(plain: bytes | memoryview, rules: BatchRules) -> bytes | memoryview:
    if not rules.codec:
        return plain
    return compress(rules.codec, plain, level=rules.level)
