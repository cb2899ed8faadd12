"""Batches of a topic that keeps one codec: the records are packed anew, not looked at."""

from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX, UNPACKED_BYTES_LIGHT
from tidelog.kernel.steps import Pace, Steps
from tidelog.node.log.looking import Allowance, unpacked
from tidelog.node.log.validation import BatchRules, too_large
from tidelog.wire.codecs import Codec, compress
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
    batch: memoryview, header: BatchHeader, rules: BatchRules, allowance: Allowance
) -> Steps[tuple[memoryview, BatchHeader]]:
    """A validated batch in the topic's codec: the same but for codec, lengths and checksum.

    INVALID_RECORD where it does not hold what its codec says, MESSAGE_TOO_LARGE where it is more
    than may be unpacked, or more than the topic takes after it is recompressed.
    """
    assert rules.codec is not None, "the topic takes batches as they are"
    plain = yield from _plain(batch, header, rules, allowance)
    if header.codec_bits == Codec.NONE and len(plain) > UNPACKED_BYTES_LIGHT:
        yield Pace.HEAVY
    packed = compress(rules.codec, plain, level=rules.level) if rules.codec else plain
    size = HEADER_BYTES + len(packed)
    if size > min(rules.message_bytes_max, rules.segment_bytes):
        raise too_large(size, rules)
    allowance.take_packed(size)
    fields = header._replace(
        batch_length=BATCH_LENGTH_MIN + len(packed),
        attributes=header.attributes & ~CODEC_MASK | rules.codec,
    )
    made = bytearray(size)
    view = memoryview(made)
    HEADER.pack_into(made, 0, *fields)
    view[HEADER_BYTES:] = packed
    return view, fields._replace(crc=seal(view))


def _plain(
    batch: memoryview, header: BatchHeader, rules: BatchRules, allowance: Allowance
) -> Steps[bytes]:
    limit = DECOMPRESSED_BATCH_BYTES_MAX
    if rules.codec is Codec.NONE:
        # More would be refused for its size anyway.
        limit = min(limit, rules.message_bytes_max)
    try:
        return (yield from unpacked(batch, header, allowance, limit))
    except WireError as error:
        raise Rejected(ErrorCode.INVALID_RECORD, f"records cannot be read: {error}") from error
