"""Messages of formats 0 and 1, written here as Kafka before 0.11 wrote them."""

import zlib
from collections.abc import Sequence
from struct import pack

from tidelog.wire.codecs import Codec, compress
from tidelog.wire.records import APPEND_TIME_BIT, Record


def message(magic: int, record: Record, *, attributes: int = 0) -> bytes:
    """One entry; `record` has no headers, for those formats have none."""
    body = pack(">bb", magic, attributes)
    if magic == 1:
        body += pack(">q", record.timestamp)
    for content in (record.key, record.value):
        body += pack(">i", -1) if content is None else pack(">i", len(content)) + content
    return pack(">qiI", record.offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(
    magic: int,
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    append_time: int | None = None,
) -> bytes:
    """Messages one after the other, or all of them compressed in one."""
    flags = 0 if append_time is None else APPEND_TIME_BIT
    if codec is not Codec.NONE:
        latest = max(one.timestamp for one in records) if append_time is None else append_time
        outer = Record(records[-1].offset, latest, None, _packed(magic, records, codec))
        return message(magic, outer, attributes=codec | flags)
    if append_time is not None:
        records = [one._replace(timestamp=append_time) for one in records]
    return b"".join(message(magic, one, attributes=flags) for one in records)


def _packed(magic: int, records: Sequence[Record], codec: Codec) -> bytes:
    """Format 1 counts offsets from its first one; clients of format 0 got lz4's check wrong."""
    if magic == 1:
        records = [one._replace(offset=one.offset - records[0].offset) for one in records]
    packed = compress(codec, b"".join(message(magic, one) for one in records))
    if magic == 0 and codec is Codec.LZ4:
        return packed[:6] + bytes([packed[6] ^ 0x55]) + packed[7:]
    return packed
