"""What a produce request of a transaction must be, and what is asked before it is appended."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api import partitions, transaction_gate
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.produce_aside import keep_records
from tidelog.node.api.transaction_gate import Asked, First
from tidelog.node.log.log import Log
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k00_produce import PartitionProduceData, ProduceRequest
from tidelog.wire.records import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader

_ATTRIBUTES_LOW_AT: Final = 22
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Struct(">qhi")
_ABORTABLE_VERSION: Final = 11
"""From it on producers know TRANSACTION_ABORTABLE."""
_ADDS_VERSION: Final = 12
"""From it on a batch makes its partition part of the transaction."""

Claims = Mapping[int, Asked | Rejected]
"""Of batches that the coordinator was asked about, by the identity of the request's rows, for one
may stand there twice: what lets it in, or why it is refused."""


class _Row(NamedTuple):
    topic: str
    data: PartitionProduceData
    batch: First


def is_transactional(records: memoryview | None) -> bool:
    """Whether a batch says so of itself."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and bool(records[_ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT)
    )


def _first_of(records: memoryview, version: int) -> First:
    """The producer that a whole batch is of."""
    producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return First(producer_id, producer_epoch, sequence, version >= _ADDS_VERSION)


def _rows(request: ProduceRequest, version: int) -> Iterator[_Row]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records):
                assert data.records is not None
                yield _Row(topic.name, data, _first_of(data.records, version))


def fault(request: ProduceRequest, version: int) -> ErrorCode | None:
    """Why none of it is appended."""
    if request.transactional_id is None:
        if next(_rows(request, version), None) is not None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return None
    if len({row.batch[:2] for row in _rows(request, version)}) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None


def ask_first(
    call: Call, request: ProduceRequest, go_on: Callable[[Instant, Claims], None]
) -> bool:
    """Whether the coordinator has to be asked: then it is, and `go_on` is called with its word,
    before this returns where it cannot be asked now."""
    rows = _rows(request, call.version)
    asked = {id(row.data): one for row in rows if (one := _needed(call, row)) is not None}
    if not asked:
        return False
    assert request.transactional_id is not None, "refused before"
    call.hold()
    keep_records(call, request)
    told = partial(_told, call.version, asked, go_on)
    transaction_gate.ask(call, request.transactional_id, list(asked.values()), told)
    return True


def _needed(call: Call, row: _Row) -> Asked | None:
    """None also of what is refused anyway."""
    broker, (topic, data, batch) = call.broker, row
    if topic in INTERNAL_TOPICS or batch.producer_id < 0:
        return None
    try:
        replica, leader = partitions.led(broker, topic, data.index)
        with partitions.storage_errors(broker, replica):
            return transaction_gate.needed(broker, replica, leader, batch)
    except Rejected:
        return None


def _told(
    version: int,
    asked: Mapping[int, Asked],
    go_on: Callable[[Instant, Claims], None],
    now: Instant,
    codes: Mapping[TopicPartition, ErrorCode],
) -> None:
    go_on(now, {row: _claim(one, codes[one.key], version) for row, one in asked.items()})


def _claim(asked: Asked, code: ErrorCode, version: int) -> Asked | Rejected:
    if code is ErrorCode.NONE:
        return asked
    if code in transaction_gate.RETRIABLE and not _is_understood(asked, code):
        # Producers that are old would not try again on these, or look for a leader first.
        return Rejected(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be checked: {code.name}"
        )
    said = transaction_gate.outcome(code, says_abortable=version >= _ABORTABLE_VERSION)
    return Rejected(said, "the transaction does not have this partition")


def _is_understood(asked: Asked, code: ErrorCode) -> bool:
    """Who lets the broker add partitions hears now and then that the last end is not complete."""
    return asked.batch.adds and code is ErrorCode.CONCURRENT_TRANSACTIONS


def admit(
    call: Call,
    replica: Replica,
    leader: Leader,
    header: BatchHeader,
    claim: Asked | Rejected | None,
) -> None:
    """Rejected where a transactional batch may not be appended now."""
    if isinstance(claim, Rejected):
        raise claim
    adds = call.version >= _ADDS_VERSION
    batch = First(header.producer_id, header.producer_epoch, header.base_sequence, adds)
    transaction_gate.admit(call.broker, replica, leader, batch, claim)


def may_append(broker: Broker, log: Log, records: memoryview, version: int) -> bool:
    """Whether a transactional batch need not wait for anybody's word, as far as that is known."""
    if log.closed is not None or not is_transactional(records):
        return False
    return not transaction_gate.is_gated(broker, log.producers, _first_of(records, version))
