"""The batches of segments, or the records in them, one row each."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tidelog.clients.consumer.offsets import Anchor, Point
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, File
from tidelog.node.log.index import OffsetIndex
from tidelog.tools.log_files.decoders import Decoder, control_record, decoder_of
from tidelog.tools.log_files.sheet import Column, Row, Sheet
from tidelog.tools.log_files.walk import Seen, Walk
from tidelog.tools.output import moment
from tidelog.tools.record_format import json_text
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.log_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, file_name, offsets_with_suffix
from tidelog.wire.records import HEADER_BYTES, MAGIC, BatchHeader, iterate_records, read_header

FROM_START: Final = Point(Anchor.START)
_SHOWN_CHARACTERS = 60


class Source(Struct, frozen=True):
    """A file of batches: a segment, or a metadata snapshot."""

    directory: Directory
    name: str
    base: int


def sources_of(directory: Directory) -> list[Source]:
    """All segments of a partition, oldest first."""
    bases = sorted(offsets_with_suffix(directory.names(), LOG_SUFFIX))
    return [Source(directory, file_name(base, LOG_SUFFIX), base) for base in bases]


# -- which batches ------------------------------------------------------------------------------


class _Wanted:
    """Whether a batch, or a record, lies behind where the reader wants to begin."""

    def __init__(self, sources: Sequence[Source], point: Point) -> None:
        self._timestamp = point.amount if point.anchor is Anchor.TIME else None
        self.offset = -1
        if point.anchor is Anchor.ZERO:
            self.offset = point.amount
        elif point.anchor is Anchor.END:
            self.offset = _end_of(sources) + point.amount

    def batch(self, header: BatchHeader | None) -> bool:
        if header is None:
            return True
        if self._timestamp is not None:
            if header.max_timestamp < self._timestamp:
                return False
            # From here on all is wanted, as a consumer would get it.
            self._timestamp, self.offset = None, header.base_offset
        return header.last_offset >= self.offset


def _end_of(sources: Sequence[Source]) -> int:
    if not sources:
        return 0
    file = sources[-1].directory.open(sources[-1].name)
    walk = Walk(file, next_offset=sources[-1].base)
    walk.check_crc = False
    for _ in walk:
        pass
    file.close()
    return walk.next_offset


def _seen(sources: Sequence[Source], wanted: _Wanted) -> Iterator[tuple[Source, File, Seen]]:
    ends = [source.base for source in sources[1:]]
    for source, end in itertools.zip_longest(sources, ends):
        if end is not None and end <= wanted.offset:
            continue
        file = source.directory.open(source.name)
        walk = _walk_from(source, file, wanted.offset)
        for seen in walk:
            if wanted.batch(seen.header):
                yield source, file, seen
        file.close()


def _walk_from(source: Source, file: File, offset: int) -> Walk:
    """From a batch below the offset, where the index knows a true one."""
    index = OffsetIndex(source.directory, file_name(source.base, OFFSET_INDEX_SUFFIX))
    try:
        index.load(file.size)
    except CorruptError:
        return Walk(file, next_offset=source.base)
    position = index.start_for(max(offset - source.base, -1))
    content = file.read(position, HEADER_BYTES)
    header = read_header(content) if len(content) == HEADER_BYTES else None
    if header is None or header.magic != MAGIC or not source.base <= header.base_offset <= offset:
        return Walk(file, next_offset=source.base)
    return Walk(file, next_offset=header.base_offset, position=position)


# -- one row a batch ----------------------------------------------------------------------------


def batch_sheet(sources: Sequence[Source], point: Point = FROM_START) -> Sheet:
    columns = (
        Column("OFFSETS", lambda row: f"{row['base_offset']}..{row['last_offset']}"),
        Column("RECORDS", lambda row: row["records"]),
        Column("POSITION", lambda row: row["position"]),
        Column("SIZE", lambda row: row["size"]),
        Column("EPOCH", lambda row: row["leader_epoch"]),
        Column("MAX TIMESTAMP", lambda row: moment(int(str(row["max_timestamp"])))),
        Column("PRODUCER", _producer),
        Column("CODEC", lambda row: row["codec"]),
        Column("CRC", lambda row: f"{row['crc']:08x}"),
        Column("", _remarks),
    )
    rows = (_batch_row(source, seen) for source, _, seen in _seen(sources, _Wanted(sources, point)))
    return Sheet("batch", columns, rows)


def _batch_row(source: Source, seen: Seen) -> dict[str, object]:
    header = seen.header
    if header is None:
        header = BatchHeader._make((-1, -1, -1, -1, 0, 0, 0, -1, -1, -1, -1, -1, 0))
    return {
        "file": source.name,
        "position": seen.position,
        "size": seen.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "codec": codec_name(header),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
        "wrong": seen.wrong,
    }


def codec_name(header: BatchHeader) -> str:
    """Kafka's word for it."""
    bits = header.codec_bits
    return Codec(bits).name.lower() if bits <= max(Codec) else str(bits)


def _producer(row: Row) -> str | None:
    if row["producer_id"] == -1:
        return None
    return f"{row['producer_id']}/{row['producer_epoch']} from {row['base_sequence']}"


def _remarks(row: Row) -> str:
    said = [word for word in ("transactional", "control") if row[word]]
    if row["wrong"]:
        said.append(f"WRONG: {row['wrong']}")
    return ", ".join(said) or " "


# -- one row a record ---------------------------------------------------------------------------


def record_sheet(sources: Sequence[Source], topic: str, point: Point = FROM_START) -> Sheet:
    columns = (
        Column("OFFSET", lambda row: row["offset"]),
        Column("TIMESTAMP", lambda row: moment(int(str(row["timestamp"])))),
        Column("EPOCH", lambda row: row["leader_epoch"]),
        Column("KEY", lambda row: _short(row["key"])),
        Column("VALUE", _meaning),
        Column("HEADERS", lambda row: _short(row["headers"]) if row["headers"] else None),
    )
    return Sheet("record", columns, _record_rows(sources, topic, point))


def _record_rows(
    sources: Sequence[Source], topic: str, point: Point
) -> Iterator[dict[str, object]]:
    wanted = _Wanted(sources, point)
    decoder = decoder_of(topic)
    for source, file, seen in _seen(sources, wanted):
        if seen.header is None or seen.wrong is not None:
            yield _unreadable(source, seen, seen.wrong or "")
            continue
        decode = control_record if seen.header.is_control else decoder
        try:
            rows = _records_of(file, seen, decode)
            yield from (
                {"file": source.name, "position": seen.position, **row}
                for row in rows
                if int(str(row["offset"])) >= wanted.offset
            )
        except (WireError, Rejected) as error:
            yield _unreadable(source, seen, str(error))


def _unreadable(source: Source, seen: Seen, reason: str) -> dict[str, object]:
    return {
        "file": source.name,
        "position": seen.position,
        "offset": -1 if seen.header is None else seen.header.base_offset,
        "timestamp": -1,
        "leader_epoch": None,
        "key": None,
        "value": None,
        "headers": [],
        "wrong": reason,
    }


def _records_of(file: File, seen: Seen, decode: Decoder | None) -> Iterator[dict[str, object]]:
    assert seen.header is not None
    for record in iterate_records(file.read(seen.position, seen.size)):
        row: dict[str, object] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "leader_epoch": seen.header.partition_leader_epoch,
            "key": json_text(record.key),
            "value": json_text(record.value),
            "headers": [{"key": name, "value": json_text(value)} for name, value in record.headers],
        }
        if decode is not None:
            row["decoded"] = decode(record)
        yield row


def _meaning(row: Row) -> str:
    if row.get("wrong"):
        return f"WRONG: {row['wrong']}"
    decoded = row.get("decoded")
    if isinstance(decoded, dict):
        name = decoded.get("record", "")
        return f"{name} {_fields(decoded)}".strip()
    return _short(row["value"])


def _fields(decoded: dict[str, object]) -> str:
    """What is empty is left out: most fields of most records are."""
    return " ".join(
        f"{name}={{{_fields(value)}}}" if isinstance(value, dict) else f"{name}={_plain(value)}"
        for name, value in decoded.items()
        if name != "record" and value not in (None, [])
    )


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        value = f"base64:{value['base64']}"
    elif isinstance(value, list):
        value = ", ".join(f"{one['key']}={_short(one['value'])}" for one in value)
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
