"""What a batch must look like before it may be appended; no record is looked at.

There are two exceptions. On a compacted topic every produced record needs a key. And some clients
(sarama until 1.43) leave the largest timestamp out of the header of an uncompressed batch: it is
taken from the records, as Kafka does, for by it the batch is found.
"""

from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.steps import Steps, at_once
from tidelog.node.log.contracts import Appended
from tidelog.node.log.looking import Allowance, look, with_max_timestamp
from tidelog.node.log.producers import WrittenBatch
from tidelog.node.log.settings import LogSettings
from tidelog.wire.codecs import Codec
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    new_header,
    stamp_append_time,
)

CODEC_MAX: Final = 4
NO_TIMESTAMP: Final = -1


class BatchRules(Struct, frozen=True):
    """What validation needs of a topic's settings."""

    message_bytes_max: int
    segment_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    keys_needed: bool
    as_sent: bool
    """Whether an ordinary batch is appended without a look at its records."""
    codec: Codec | None = None
    """What batches are kept in; None: as they were sent."""
    level: int | None = None


def rules_of(settings: LogSettings) -> BatchRules:
    return BatchRules(
        message_bytes_max=settings.max_message_bytes,
        segment_bytes=settings.segment_bytes,
        log_append_time=settings.log_append_time,
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
        keys_needed=settings.compact,
        as_sent=settings.codec is None and not settings.compact,
        codec=settings.codec,
        level=settings.codec_level,
    )


def validate_produced(view: memoryview, rules: BatchRules, now_ms: int) -> BatchHeader:
    """The header of the one batch that `view` holds; Rejected where it breaks a rule.

    On a LogAppendTime topic the batch is stamped in place. Where records must be looked at, all of
    them are, at once: `needs_look` tells, and `validate_in_steps` is for who cannot wait.
    """
    header = _checked_header(view, rules)
    if rules.keys_needed or header.max_timestamp < 0:
        header = at_once(_looked_at(view, header, rules, Allowance()))
    return _timed(view, header, rules, now_ms)


def validate_in_steps(
    view: memoryview, rules: BatchRules, now_ms: int, allowance: Allowance
) -> Steps[BatchHeader]:
    """As `validate_produced`; nothing else may change the batch meanwhile."""
    header = _checked_header(view, rules)
    header = yield from _looked_at(view, header, rules, allowance)
    return _timed(view, header, rules, now_ms)


def needs_look(header: BatchHeader, rules: BatchRules) -> bool:
    """Whether the records of a batch must be read before it is appended."""
    return rules.keys_needed or (
        header.max_timestamp < 0 and not header.codec_bits and not rules.log_append_time
    )


def _checked_header(view: memoryview, rules: BatchRules) -> BatchHeader:
    size = len(view)
    if size < 61:
        raise _too_short(view)
    header = new_header(HEADER.unpack_from(view))
    if header.magic != 2 or header.batch_length != size - 12:
        raise _misshapen(header, size)
    if size > rules.message_bytes_max or size > rules.segment_bytes:
        raise too_large(size, rules)
    if crc32c(view[21:]) != header.crc:
        raise Rejected(ErrorCode.CORRUPT_MESSAGE, "wrong checksum")
    _check_fields(header)
    return header


def _looked_at(
    view: memoryview, header: BatchHeader, rules: BatchRules, allowance: Allowance
) -> Steps[BatchHeader]:
    if not needs_look(header, rules):
        return header
    latest = yield from look(view, header, allowance, keys_needed=rules.keys_needed)
    if header.max_timestamp < 0 and not header.codec_bits and not rules.log_append_time:
        return with_max_timestamp(view, header, latest)
    return header


def _timed(view: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> BatchHeader:
    if rules.log_append_time:
        stamp_append_time(view, now_ms)
        return new_header(HEADER.unpack_from(view))
    _check_timestamps(header, rules, now_ms)
    return header


def check_replicated(batch: memoryview, header: BatchHeader, end: int, directory: str) -> None:
    """CorruptError where a leader's batch lies below this end, or its bytes are bad.

    It may lie above: compaction took what was between, whatever the topic's settings say now. That
    nothing is missing on the way from the leader is checked there (`replica/receiving.py`).
    """
    if header.base_offset < end or header.last_offset_delta < 0:
        reason = f"offset {header.base_offset} instead of {end}"
    elif not check_crc(batch):
        reason = f"wrong checksum at offset {header.base_offset}"
    else:
        return
    raise CorruptError(file=f"batch for {directory}", position=0, reason=reason)


def _check_fields(header: BatchHeader) -> None:
    """What the header says of itself must fit together."""
    delta = header.last_offset_delta
    if header.base_offset or delta < 0 or header.record_count != delta + 1:
        raise Rejected(
            ErrorCode.INVALID_RECORD,
            f"base offset {header.base_offset}, {header.record_count} records, last delta {delta}",
        )
    # One comparison for the ordinary batch: a known codec and no other flag.
    if not 0 <= header.attributes <= CODEC_MAX:
        _check_attributes(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Rejected(ErrorCode.INVALID_RECORD, "a producer id without epoch or sequence")


def _too_short(view: memoryview) -> Rejected:
    if len(view) == 0:
        return Rejected(ErrorCode.INVALID_RECORD, "no batch")
    if len(view) > 16 and view[16] < 2:
        return Rejected(ErrorCode.INVALID_RECORD, f"message format {view[16]}; only 2 is taken")
    return Rejected(ErrorCode.CORRUPT_MESSAGE, f"{len(view)} bytes are too few for a batch")


def _misshapen(header: BatchHeader, size: int) -> Rejected:
    if header.magic != 2:
        return Rejected(ErrorCode.INVALID_RECORD, f"message format {header.magic}; only 2 is taken")
    if 49 <= header.batch_length < size - 12:
        return Rejected(ErrorCode.INVALID_RECORD, "more than one batch")
    return Rejected(
        ErrorCode.CORRUPT_MESSAGE, f"batch of {header.batch_length} + 12 bytes came as {size}"
    )


def too_large(size: int, rules: BatchRules) -> Rejected:
    """Why a batch of this size is not taken."""
    if size > rules.message_bytes_max:
        return Rejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes; max.message.bytes={rules.message_bytes_max}",
        )
    return Rejected(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"batch of {size} bytes; segment.bytes={rules.segment_bytes}",
    )


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CODEC_MASK > CODEC_MAX:
        raise Rejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {attributes & CODEC_MASK} is unknown"
        )
    if attributes & APPEND_TIME_BIT:
        raise Rejected(ErrorCode.INVALID_TIMESTAMP, "only the broker sets LogAppendTime")
    if attributes & CONTROL_BIT:
        raise Rejected(ErrorCode.INVALID_RECORD, "clients write no control batches")
    if attributes & DELETE_HORIZON_BIT:
        raise Rejected(ErrorCode.INVALID_RECORD, "only the broker sets the delete horizon")
    if attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        raise Rejected(ErrorCode.INVALID_RECORD, "a transactional batch of no producer")


def _check_timestamps(header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    latest = header.max_timestamp
    if latest != NO_TIMESTAMP and latest - now_ms > rules.timestamp_after_max_ms:
        raise Rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {latest} is {latest - now_ms} ms ahead; "
            f"message.timestamp.after.max.ms={rules.timestamp_after_max_ms}",
        )
    earliest = header.base_timestamp
    if earliest != NO_TIMESTAMP and now_ms - earliest > rules.timestamp_before_max_ms:
        raise Rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {earliest} is {now_ms - earliest} ms old; "
            f"message.timestamp.before.max.ms={rules.timestamp_before_max_ms}",
        )


def as_repeated(batch: WrittenBatch, header: BatchHeader, log_start: int) -> Appended:
    """What is answered for a batch that is in the log already."""
    first = batch.last_offset - batch.offset_delta
    stamp = batch.timestamp if header.is_append_time else NO_TIMESTAMP
    return Appended(first, batch.last_offset, stamp, log_start, duplicate=True)
