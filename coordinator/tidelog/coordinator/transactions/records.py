"""What `__transaction_state` holds of transactional ids, byte for byte as Kafka writes it.

A record's value is all that is known of its id; a record without a value takes the id back.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import (
    NO_PRODUCER_ID,
    Epoch,
    Partition,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    by_topic,
)
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import INT8, INT16, INT32, INT64, STRING
from tidelog.wire.records import Origin, Record, build_batch
from tidelog.wire.schema import array, message, row
from tidelog.wire.stored import read_stored, written
from tidelog.wire.transactions import written_as

NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NEVER: Final = -1
_KEY: Final = 0
_VALUE_VERSION: Final = 1
_FLEXIBLE_FROM: Final = 1
_NEVER_WRITTEN: Final = frozenset({TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE})


@message
class _Key:
    transactional_id: str = row(STRING)


@message
class _Partitions:
    topic: str = row(STRING)
    partition_ids: list[int] = row(array(INT32))


@message
class _Value:
    producer_id: int = row(INT64)
    previous_producer_id: int = row(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = row(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = row(INT16)
    next_producer_epoch: int = row(INT16, "1+", default=-1, tag=3)
    timeout_ms: int = row(INT32)
    status: int = row(INT8)
    partitions: list[_Partitions] | None = row(array(_Partitions), nullable="0+")
    updated_ms: int = row(INT64)
    started_ms: int = row(INT64)
    client_version: int = row(INT16, "1+", default=0, tag=2)


class Transaction(Struct, frozen=True):
    """Where a transactional id stands: its producer, and its transaction if it has one."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TxnState
    updated_ms: int
    started_ms: int = NEVER
    partitions: frozenset[TopicPartition] = frozenset()
    """Those that take part, and of which markers are owed once the outcome is certain."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Of the producer that asked for this epoch and said who it was until then, or got it with the
    end of its transaction. If it asks once more, because it never heard the answer, it gets the
    same one."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """Who the producer is once the markers are written, where its epochs are used up."""
    next_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """Nobody sets it: a producer with another id begins with the first epoch."""
    client_version: int = 0
    """Of transactions: 2 where the end takes an epoch, and 0 for all before."""

    @property
    def is_committed(self) -> bool:
        """Which outcome is certain."""
        return self.state in {TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT}

    @property
    def successor(self) -> tuple[ProducerId, ProducerEpoch]:
        """Who the producer is once nothing of this is left to be done."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, ProducerEpoch(0)
        return self.producer_id, self.producer_epoch


class TxnRecord(Struct, frozen=True):
    """One transactional id; without a value it is forgotten."""

    transactional_id: str
    value: Transaction | None


BARRIER: Final = TxnRecord("", None)
"""A new coordinator's first word in each partition: from here on the log takes nothing of an
earlier one. It takes back an id that nobody can have, so whoever reads it has nothing to do."""


def pair(record: TxnRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    key = written(_KEY, _Key(transactional_id=record.transactional_id))
    value = record.value
    if value is None:
        return key, None
    said = _Value(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.timeout_ms,
        status=value.state,
        partitions=None if value.state is TxnState.EMPTY else _grouped(value.partitions),
        updated_ms=value.updated_ms,
        started_ms=value.started_ms,
        client_version=value.client_version,
    )
    return key, written(_VALUE_VERSION, said, flexible=True)


def _grouped(partitions: Iterable[TopicPartition]) -> list[_Partitions]:
    topics = by_topic(sorted(partitions))
    return [_Partitions(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def read(key: bytes, value: bytes | None) -> TxnRecord | None:
    """A record out of its key and value; None of a kind that is unknown here, as Kafka passes over
    what a later version wrote. WireError where the bytes are none."""
    if len(key) < 2:
        raise WireError(f"a key of {len(key)} bytes")
    if int.from_bytes(key[:2], "big") != _KEY:
        return None
    name: str = read_stored(memoryview(key), _Key, _KEY, flexible=False).transactional_id
    return TxnRecord(name, None if value is None else _transaction(memoryview(value)))


def _transaction(value: memoryview) -> Transaction:
    version = int.from_bytes(value[:2], "big")
    if len(value) < 2 or version > _VALUE_VERSION:
        raise WireError(f"a value of version {version}; {_VALUE_VERSION} is the newest known here")
    found: _Value = read_stored(value, _Value, version, flexible=version >= _FLEXIBLE_FROM)
    try:
        state = TxnState(found.status)
    except ValueError:
        raise WireError(f"a transaction in state {found.status}") from None
    if state in _NEVER_WRITTEN:
        raise WireError(f"a transaction in state {state.word}, which no log holds")
    if any(index < 0 for one in found.partitions or () for index in one.partition_ids):
        raise WireError("a transaction with a negative partition")
    return Transaction(
        producer_id=ProducerId(found.producer_id),
        producer_epoch=ProducerEpoch(found.producer_epoch),
        timeout_ms=found.timeout_ms,
        state=state,
        updated_ms=found.updated_ms,
        started_ms=found.started_ms,
        partitions=frozenset(
            (one.topic, Partition(index))
            for one in found.partitions or ()
            for index in one.partition_ids
        ),
        previous_producer_id=ProducerId(found.previous_producer_id),
        next_producer_id=ProducerId(found.next_producer_id),
        next_producer_epoch=ProducerEpoch(found.next_producer_epoch),
        client_version=found.client_version,
    )


def size_bytes(record: TxnRecord) -> int:
    """What it takes in a batch, but for a few bytes."""
    key, value = pair(record)
    return len(key) + len(value or b"")


def batch_of(
    pairs: Sequence[tuple[bytes, bytes | None]], now_ms: int, *, epoch: Epoch, sequence: int
) -> bytes:
    """One batch of the coordinator of that epoch, as a leader appends it."""
    rows = [Record(at, now_ms, *one) for at, one in enumerate(pairs)]
    return bytes(build_batch(rows, origin=Origin(*written_as(epoch), sequence)))
