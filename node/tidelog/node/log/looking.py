"""A look at the records of a produced batch, where its topic's settings or its header need one.

A batch of a few KiB can unpack to 64 MiB and to millions of records. So the look is taken in steps
(`kernel/steps.py`), and the batches of one request share an allowance.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.steps import Pace, Steps
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    iterate_plain,
    records_of,
    stamp_max_timestamp,
)

_NO_TIMESTAMP: Final = -1
_TIMESTAMP_MAX: Final = 2**63 - 1
_PACKED_AT_ONCE_MAX: Final = 4 * limits.KIB
_UNPACKED_AT_ONCE_MAX: Final = 64 * limits.KIB
"""A compressed batch that is no larger than these is looked at on the loop."""
_PACKED_COUNTS_AS: Final = 100
"""To unpack a batch on the loop takes as long as to look at so many records."""


class Allowance:
    """What the broker may do for the batches of one request; each takes its part of what is left.

    Invariant: no number is below 0.
    """

    __slots__ = ("named", "packed_bytes", "records", "unpacked_bytes")

    def __init__(self) -> None:
        self.records = limits.RECORDS_LOOKED_AT_MAX
        self.unpacked_bytes = limits.UNPACKED_BYTES_PER_REQUEST_MAX
        self.packed_bytes = limits.REQUEST_BYTES_MAX
        """What recompressed batches may take in memory until they are appended."""
        self.named = limits.RECORDS_NAMED_MAX
        """Records at fault that the answer may still list."""

    def take_records(self, count: int) -> None:
        if count > self.records:
            raise Rejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{count} records; of one request {limits.RECORDS_LOOKED_AT_MAX} are looked at",
            )
        self.records -= count

    def take_packed(self, size: int) -> None:
        if size > self.packed_bytes:
            raise Rejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batches of one request may take {limits.REQUEST_BYTES_MAX} bytes "
                "after they are recompressed",
            )
        self.packed_bytes -= size


def cost_at_once(batch: memoryview, header: BatchHeader) -> int | None:
    """How many records must be read to look at a batch; None where it is not known to be little,
    for a thread is to do that.
    """
    count = max(0, header.record_count)
    if header.codec_bits == Codec.NONE:
        return count
    if len(batch) > _PACKED_AT_ONCE_MAX:
        return None
    try:
        records_of(header, batch, limit=_UNPACKED_AT_ONCE_MAX)
    except Rejected:
        return None
    except WireError:
        return 0  # it cannot be read, which is soon found
    return count + _PACKED_COUNTS_AS


def unpacked(
    batch: memoryview, header: BatchHeader, allowance: Allowance, limit: int
) -> Steps[bytes]:
    """The plain bytes of a batch's records; MESSAGE_TOO_LARGE where they are more than `limit`, or
    than is left of the allowance. WireError where they are not of the batch's codec.
    """
    if header.codec_bits == Codec.NONE:
        return bytes(batch[HEADER_BYTES:])
    limit = min(limit, allowance.unpacked_bytes)
    light = min(limit, limits.UNPACKED_BYTES_LIGHT)
    if header.record_count <= limits.RECORDS_LIGHT:
        try:
            plain = records_of(header, batch, limit=light)
        except Rejected:
            allowance.unpacked_bytes -= light
            if light == limit:
                raise
            limit = min(limit, allowance.unpacked_bytes)
        else:
            allowance.unpacked_bytes -= len(plain)
            return plain
    yield Pace.HEAVY
    try:
        plain = records_of(header, batch, limit=limit)
    except (Rejected, WireError):
        allowance.unpacked_bytes -= limit
        raise
    allowance.unpacked_bytes -= len(plain)
    return plain


def look(
    batch: memoryview, header: BatchHeader, allowance: Allowance, *, keys_needed: bool
) -> Steps[int]:
    """Read each record; the largest timestamp, -1 where none has one.

    Rejected where records cannot be read, or lack a key that is needed: those are named. Where keys
    are needed, offsets count from one record to the next, too.
    """
    allowance.take_records(header.record_count)
    try:
        plain = yield from unpacked(batch, header, allowance, limits.DECOMPRESSED_BATCH_BYTES_MAX)
        latest, keyless = _NO_TIMESTAMP, list[int]()
        for index, record in enumerate(_records(header, plain, counted=keys_needed), 1):
            latest = max(latest, record.timestamp)
            if record.key is None and keys_needed:
                keyless.append(index - 1)
                if len(keyless) >= max(1, allowance.named):
                    break
            if not index % limits.RECORDS_PER_STEP:
                yield Pace.GO_ON
    except WireError as error:
        raise Rejected(ErrorCode.INVALID_RECORD, f"records cannot be read: {error}") from error
    if keyless:
        raise _keyless(keyless, allowance)
    return latest


def _records(header: BatchHeader, plain: bytes, *, counted: bool) -> Iterator[Record]:
    """With `counted` Rejected where their offsets do not count on from one to the next."""
    if not counted:
        yield from iterate_plain(header, plain)
        return
    for offset, record in enumerate(iterate_plain(header, plain), header.base_offset):
        if record.offset != offset:
            raise _misplaced(offset - header.base_offset, record.offset - header.base_offset)
        yield record


def _misplaced(index: int, delta: int) -> Rejected:
    """Compaction keeps the record with the largest offset of a key. It would keep this one for
    ever, though it is replaced again and again."""
    return Rejected(
        ErrorCode.INVALID_RECORD,
        f"record {index} says that it is number {delta} of its batch; this topic is compacted",
        records=((index, f"offset delta {delta}"),),
    )


def _keyless(records: list[int], allowance: Allowance) -> Rejected:
    named = records[: allowance.named]
    allowance.named -= len(named)
    return Rejected(
        ErrorCode.INVALID_RECORD,
        f"record {records[0]} has no key; this topic is compacted",
        records=tuple((index, "no key") for index in named),
    )


def with_max_timestamp(batch: memoryview, header: BatchHeader, latest: int) -> BatchHeader:
    """Write the largest timestamp of its records into a header that lacks it."""
    if latest == header.max_timestamp:
        return header
    if latest > _TIMESTAMP_MAX:
        raise Rejected(ErrorCode.INVALID_TIMESTAMP, f"timestamp {latest}")
    stamp_max_timestamp(batch, latest)
    return header._replace(max_timestamp=latest, crc=int.from_bytes(batch[17:21], "big"))
