"""Rows of one partition as record batches."""

from collections.abc import Iterator
from typing import Any

from tidelog.kernel.instant import WallMs
from tidelog.wire.codecs import Codec
from tidelog.wire.records import HEADER_BYTES, Record, build_batch

ROW_OVERHEAD = 24


def encode(rows: Any, codec: Codec, batch_bytes: int, now: WallMs) -> Iterator[bytearray]:  # noqa: ANN401 -- a RecordBatch
    """Batches of about so many bytes before compression."""
    records: list[Record] = []
    size = HEADER_BYTES
    for row in rows.to_pylist():
        at = row.get("timestamp")
        stamp = now if at is None else int(at.timestamp() * 1000)
        headers = tuple((one["key"], one["value"]) for one in row.get("headers") or ())
        record = Record(len(records), stamp, row.get("key"), row["value"], headers)
        grown = ROW_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        if records and size + grown > batch_bytes:
            yield build_batch(records, codec=codec)
            records, size = [], HEADER_BYTES
            record = record._replace(offset=0)
        records.append(record)
        size += grown
    if records:
        yield build_batch(records, codec=codec)
