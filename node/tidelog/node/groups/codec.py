"""Every kind of record that `__consumer_offsets` holds: to bytes and back."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, Final

from tidelog.node.groups import records
from tidelog.node.groups.records import GroupRecord, OffsetRecord, PendingOffset
from tidelog.node.groups.records_consumer import (
    CONSUMER_READERS,
    ConsumerRecord,
    consumer_pair,
)
from tidelog.wire.errors import WireError
from tidelog.wire.records import PLAIN, TRANSACTIONAL_BIT, Origin, Record, build_batch

LoggedRecord = OffsetRecord | GroupRecord | ConsumerRecord
"""What one record of the log says; whether it is of a transaction its batch says."""
StoredRecord = LoggedRecord | PendingOffset
"""What a group coordinator decides, and replays."""

_READERS: Final[dict[int, Any]] = {**records.READERS, **CONSUMER_READERS}


@singledispatch
def pair(record: Any) -> tuple[bytes, bytes | None]:  # noqa: ANN401 -- any of StoredRecord
    """Key and value of a record."""
    raise AssertionError(record)


pair.register(OffsetRecord, records.offset_pair)
pair.register(GroupRecord, records.group_pair)
pair.register(ConsumerRecord, consumer_pair)
pair.register(PendingOffset, lambda pending: records.offset_pair(pending.offset))


def batch_of(stored: Sequence[StoredRecord], now_ms: int) -> bytearray:
    """One batch, as a leader appends it. A transaction's is one of its producer."""
    rows = [Record(at, now_ms, *pair(record)) for at, record in enumerate(stored)]
    return build_batch(rows, origin=_origin(stored))


def _origin(stored: Sequence[StoredRecord]) -> Origin:
    writers = {
        (record.producer_id, record.producer_epoch) if isinstance(record, PendingOffset) else None
        for record in stored
    }
    (writer,) = writers  # nobody writes for a transaction and for himself at once
    return PLAIN if writer is None else Origin(*writer, flags=TRANSACTIONAL_BIT)


def read(key: bytes, value: bytes | None) -> LoggedRecord | None:
    """A record out of its key and value; None of a kind that is unknown here, as Kafka passes over
    what a later version wrote. WireError where the bytes are none."""
    if len(key) < 2:
        raise WireError(f"a key of {len(key)} bytes")
    kind = int.from_bytes(key[:2], "big")
    found = _READERS.get(kind)
    if found is None:
        return None
    made: LoggedRecord = found(kind, memoryview(key), None if value is None else memoryview(value))
    return made
