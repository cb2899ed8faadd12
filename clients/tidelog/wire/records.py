"""Record batch v2: its header, its CRC, what a broker changes in place, and the records in it.

A batch is one header of 61 bytes and its records, which one codec may have compressed as a whole.
A broker looks at headers only; the CRC covers what follows it, so that placing a batch in a log
(base offset, leader epoch) leaves it valid.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct
from typing import NamedTuple

from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.wire.codecs import Codec, compress, decompress
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.java_text import java_text
from tidelog.wire.varints import SMALL, varint, varint_bytes, varint_rest

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12
"""Base offset and length: they stand before what the length counts."""
BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAGIC = 2

CODEC_MASK = 0b111
APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5
DELETE_HORIZON_BIT = 1 << 6
NO_TIMESTAMP_BIT = 1 << 7
"""Unused by Kafka: batches have it that were made of messages of format 0, which have no time."""

_LENGTH_AT = 8
_EPOCH_AT = 12
_CRC_AT = 17
_CRC_FROM = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_MARKER_VERSION = 0
_ABORT, _COMMIT = 0, 1

assert HEADER_BYTES == 61

Bytes = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_bits(self) -> int:
        """0 to 7; `Codec` knows 0 to 4."""
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


class Record(NamedTuple):
    """One record; reading a partition gives these, and building a batch takes them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Origin(NamedTuple):
    """Who wrote a batch and how: what its header says besides its records."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    flags: int = 0
    """TRANSACTIONAL_BIT, CONTROL_BIT."""
    leader_epoch: int = -1


PLAIN = Origin()


class EndMarker(NamedTuple):
    """What a control batch says that ends a transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the transaction coordinator that decided it."""
    committed: bool


# These skip the tuples' own Python-level constructors.
_new_record = tuple.__new__
new_header = partial(tuple.__new__, BatchHeader)
"""The header of what `HEADER` unpacked."""


def read_header(view: Bytes, position: int = 0) -> BatchHeader:
    """The header at a position; WireError where the bytes end before it does."""
    if len(view) - position < HEADER_BYTES:
        raise WireError(f"{len(view) - position} bytes are no batch header")
    return new_header(HEADER.unpack_from(view, position))


def iterate_batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch with its header. A tail that was cut is left out, as in a fetch answer.

    WireError where a length or the magic is wrong: nothing behind it can be trusted.
    """
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header = new_header(HEADER.unpack_from(view, position))
        if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC:
            raise WireError(
                f"batch length {header.batch_length}, magic {header.magic} at byte {position}"
            )
        stop = position + header.batch_length + LENGTH_PREFIX_BYTES
        if stop > end:
            return
        yield header, view[position:stop]
        position = stop


def check_crc(batch: memoryview) -> bool:
    """Whether the CRC of one whole batch is right."""
    (said,) = _UINT32.unpack_from(batch, _CRC_AT)
    return bool(crc32c(batch[_CRC_FROM:]) == said)


def place_batch(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Give a batch its place in a log, in place; both fields lie outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _EPOCH_AT, leader_epoch)


def seal(batch: bytearray | memoryview) -> int:
    """Set the CRC of one whole batch, in place; it."""
    view = memoryview(batch)
    crc = int(crc32c(view[_CRC_FROM:]))
    _UINT32.pack_into(view, _CRC_AT, crc)
    return crc


def stamp_append_time(batch: bytearray | memoryview, timestamp: int) -> None:
    """Make one whole batch carry the broker's time, in place, with a new CRC."""
    view = memoryview(batch)
    (attributes,) = _INT16.unpack_from(view, _CRC_FROM)
    _INT16.pack_into(view, _CRC_FROM, attributes | APPEND_TIME_BIT)
    _INT64.pack_into(view, _MAX_TIMESTAMP_AT, timestamp)
    seal(view)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp: int) -> None:
    """Say in the header of one whole batch which timestamp is the largest, with a new CRC."""
    view = memoryview(batch)
    _INT64.pack_into(view, _MAX_TIMESTAMP_AT, timestamp)
    seal(view)


def stamp_origin(batch: bytearray | memoryview, origin: Origin) -> None:
    """Say who writes one whole batch, in place, with a new CRC; the leader's epoch stays."""
    view = memoryview(batch)
    (attributes,) = _INT16.unpack_from(view, _CRC_FROM)
    plain = attributes & ~(TRANSACTIONAL_BIT | CONTROL_BIT)
    _INT16.pack_into(view, _CRC_FROM, plain | origin.flags)
    _PRODUCER.pack_into(
        view, _PRODUCER_AT, origin.producer_id, origin.producer_epoch, origin.base_sequence
    )
    seal(view)


def build_batch(
    records: Sequence[Record], *, codec: Codec = Codec.NONE, origin: Origin = PLAIN
) -> bytearray:
    """A whole batch of at least one record, in order of offset; its base is the first offset."""
    assert records, "a batch holds a record"
    first, last = records[0], records[-1]
    assert last.offset - first.offset >= len(records) - 1, (first.offset, last.offset)
    body = encode_records(records, first.offset, first.timestamp)
    packed = body if codec is Codec.NONE else compress(codec, body)
    batch = bytearray(
        HEADER.pack(
            first.offset,
            BATCH_LENGTH_MIN + len(packed),
            origin.leader_epoch,
            MAGIC,
            0,
            codec | origin.flags,
            last.offset - first.offset,
            first.timestamp,
            max(record.timestamp for record in records),
            origin.producer_id,
            origin.producer_epoch,
            origin.base_sequence,
            len(records),
        )
    )
    batch += packed
    seal(batch)
    return batch


def build_marker(marker: EndMarker, timestamp: int) -> bytearray:
    """The control batch that ends a transaction, as Kafka writes it: 78 bytes, one offset."""
    kind = _COMMIT if marker.committed else _ABORT
    key = _MARKER_KEY.pack(_MARKER_VERSION, kind)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch)
    flags = TRANSACTIONAL_BIT | CONTROL_BIT
    origin = Origin(marker.producer_id, marker.producer_epoch, flags=flags)
    return build_batch([Record(0, timestamp, key, value)], origin=origin)


def read_marker(header: BatchHeader, batch: memoryview) -> EndMarker | None:
    """What a whole control batch says; None where it ends no transaction, as one that compaction
    has emptied, or one of a kind that is none of ours.
    """
    try:
        record = next(iterate_records(batch), None)
    except (WireError, Rejected):
        return None
    key = None if record is None or header.producer_id < 0 else record.key
    if record is None or key is None or len(key) < _MARKER_KEY.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in {_ABORT, _COMMIT}:
        return None
    value = record.value or b""
    epoch = _MARKER_VALUE.unpack_from(value)[1] if len(value) >= _MARKER_VALUE.size else -1
    return EndMarker(header.producer_id, header.producer_epoch, epoch, kind == _COMMIT)


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    """The records' own bytes, as they follow the header before compression."""
    out = bytearray()
    for offset, timestamp, key, value, headers in records:
        body = bytearray(b"\x00")
        body += _number(timestamp - base_timestamp)
        body += _number(offset - base_offset)
        _append_bytes(body, key)
        _append_bytes(body, value)
        body += _number(len(headers))
        for name, content in headers:
            _append_bytes(body, name.encode())
            _append_bytes(body, content)
        out += _number(len(body))
        out += body
    return out


def iterate_records(batch: memoryview) -> Iterator[Record]:
    """The records of one whole batch, decompressed if need be.

    WireError where the records do not fill the batch exactly, Rejected where it decompresses to
    more than is allowed or its codec is unknown. Under append time every record carries the
    batch's timestamp. A header's name that is not UTF-8 has U+FFFD in place of what is wrong.
    """
    header = read_header(batch)
    yield from iterate_plain(header, records_of(header, batch))


def iterate_plain(header: BatchHeader, data: bytes) -> Iterator[Record]:
    """As `iterate_records`, of a batch whose records were unpacked already."""
    if header.record_count < 0:
        raise WireError(f"{header.record_count} records in a batch")
    stamp = header.max_timestamp if header.is_append_time else None
    position = 0
    for _ in range(header.record_count):
        try:
            record, position = _record(data, position, header.base_offset, header.base_timestamp)
        except IndexError as failure:
            raise WireError(f"record near byte {position} of its batch: {failure}") from None
        yield record if stamp is None else record._replace(timestamp=stamp)
    if position != len(data):
        raise WireError(f"{len(data) - position} bytes behind the last record")


def records_of(
    header: BatchHeader, batch: memoryview, *, limit: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """The plain bytes of a batch's records; Rejected where they are more than `limit`."""
    data = batch[HEADER_BYTES:]
    bits = header.codec_bits
    if bits > max(Codec):
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {bits}")
    if bits == 0 or not data:
        return bytes(data)  # compaction leaves batches without a record, whatever their codec
    return decompress(Codec(bits), data, limit=limit)


def _record(
    data: bytes, position: int, base_offset: int, base_timestamp: int
) -> tuple[Record, int]:
    """One record and the position behind it. Short varints are read in line."""
    length, position = varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise WireError(f"record of {length} bytes before byte {position}")
    delta = data[position + 1]
    position += 2
    if delta < 128:
        timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
    else:
        delta, position = varint_rest(data, position, delta)
        timestamp = base_timestamp + delta
    delta = data[position]
    position += 1
    if delta < 128:
        offset = base_offset + ((delta >> 1) ^ -(delta & 1))
    else:
        delta, position = varint_rest(data, position, delta)
        offset = base_offset + delta
    key, position = _sized(data, position)
    value, position = _sized(data, position)
    count, position = varint(data, position)
    headers, position = _headers(data, position, count, end) if count else ((), position)
    if position != end:
        raise WireError(f"record ends at byte {position}, its length says {end}")
    return _new_record(Record, (offset, timestamp, key, value, headers)), position


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    length = data[position]
    position += 1
    if length < 128:
        length = (length >> 1) ^ -(length & 1)
    else:
        length, position = varint_rest(data, position, length)
    if length >= 0:
        end = position + length
        return data[position:end], end
    if length != -1:
        raise WireError(f"length {length} before byte {position}")
    return None, position


def _headers(
    data: bytes, position: int, count: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= count <= (end - position) // 2:
        raise WireError(f"{count} headers before byte {position}")
    headers = []
    for _ in range(count):
        name, position = _sized(data, position)
        if name is None:
            raise WireError(f"header without a name before byte {position}")
        content, position = _sized(data, position)
        headers.append((java_text(name), content))
    return tuple(headers), position


def _number(value: int) -> bytes:
    return SMALL[value] if 0 <= value < 1024 else varint_bytes(value)


def _append_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)
        return
    out += _number(len(content))
    out += content
