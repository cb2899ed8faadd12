"""Every kind of record that `__consumer_offsets` holds: to bytes and back."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, Final

from tidelog.node.groups import records
from tidelog.node.groups.records import GroupRecord, OffsetRecord
from tidelog.node.groups.records_consumer import (
    CONSUMER_READERS,
    ConsumerRecord,
    consumer_pair,
)
from tidelog.wire.errors import WireError
from tidelog.wire.records import Record, build_batch

StoredRecord = OffsetRecord | GroupRecord | ConsumerRecord
"""What a group coordinator decides, and replays."""

_READERS: Final[dict[int, Any]] = {**records.READERS, **CONSUMER_READERS}


@singledispatch
def pair(record: Any) -> tuple[bytes, bytes | None]:  # noqa: ANN401 -- any of StoredRecord
    """Key and value of a record."""
    raise AssertionError(record)


pair.register(OffsetRecord, records.offset_pair)
pair.register(GroupRecord, records.group_pair)
pair.register(ConsumerRecord, consumer_pair)


def batch_of(stored: Sequence[StoredRecord], now_ms: int) -> bytearray:
    """One batch, as a leader appends it."""
    rows = [Record(at, now_ms, *pair(record)) for at, record in enumerate(stored)]
    return build_batch(rows)


def read(key: bytes, value: bytes | None) -> StoredRecord | None:
    """A record out of its key and value; None of a kind that is unknown here, as Kafka passes over
    what a later version wrote. WireError where the bytes are none."""
    if len(key) < 2:
        raise WireError(f"a key of {len(key)} bytes")
    kind = int.from_bytes(key[:2], "big")
    found = _READERS.get(kind)
    if found is None:
        return None
    made: StoredRecord = found(kind, memoryview(key), None if value is None else memoryview(value))
    return made
