"""The producers of partitions, as the leaders' logs know them, and the end of a transaction there.

To write a marker is the coordinator's business. Here it is done for a transaction that no
coordinator will ever end: the marker goes to one partition, and only after a look at its log, so
that it never ends the transaction after the one that was meant.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.clients.admin.leaders import from_leaders, name_of
from tidelog.clients.asking import Answered, Ask, Call, Cause, Outcome, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, known_code, refresh
from tidelog.clients.failures import failure_of, reason_to_repeat
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import Offset, Partition, TopicPartition, by_topic
from tidelog.kernel.instant import WallMs
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k27_write_txn_markers import API as WRITE_TXN_MARKERS
from tidelog.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.wire.messages.k61_describe_producers import API as DESCRIBE_PRODUCERS
from tidelog.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tidelog.wire.messages.k61_describe_producers import ProducerState as ProducerRow

PARTITIONS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One producer in one partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: WallMs | None
    """Of its last batch or marker, as that is stamped."""
    coordinator_epoch: int
    """Of the coordinator that wrote its last marker, -1 before the first."""
    transaction_start: Offset | None
    """Where its open transaction begins; None where it has none."""


Producers = dict[TopicPartition, list[ProducerState]]


def describe_producers(
    view: ClusterView, partitions: Iterable[TopicPartition], *, rounds: int | None = None
) -> Plan[Producers]:
    """Of each partition, however long its leader takes; after so many rounds of asking, if a number
    is given, those whose leader did not answer are left out."""
    found: Producers = {}
    wanted = list(partitions)
    for first in range(0, len(wanted), PARTITIONS_AT_ONCE):
        yield from from_leaders(
            view,
            wanted[first : first + PARTITIONS_AT_ONCE],
            ask=_ask,
            take=lambda outcome: _take(outcome, found),
            done=found,
            rounds=rounds,
        )
    return found


@dataclass(frozen=True, slots=True)
class OpenHere:
    """A transaction that is open in a partition: where it begins, and whose it is."""

    partition: TopicPartition
    start: Offset
    producer_id: int


def abort_open(view: ClusterView, here: OpenHere) -> Plan[ProducerState | None]:
    """End it in this partition with an abort marker; its producer as it was, None where it is not
    open (any more).

    An answer may be lost, and by then the producer may be in its next transaction: so each try
    begins with a look whether this very one is still open.
    """
    aborted: ProducerState | None = None
    failures = 0
    while True:
        producer = yield from _producer_of(view, here)
        if producer is None:
            return aborted
        leader = view.leader(here.partition)
        assert leader is not None, "it has just answered"
        (outcome,) = yield [Call(leader, _marker(here.partition, producer))]
        aborted = producer
        because = _why_again(here.partition, outcome)
        if not because:
            return aborted
        failures += 1
        yield Pause(BACKOFF.wait(failures), because)
        yield from refresh(view, {here.partition[0]})


def _producer_of(view: ClusterView, here: OpenHere) -> Plan[ProducerState | None]:
    """As long as this very transaction is open."""
    found = yield from describe_producers(view, [here.partition])
    this = here.producer_id, here.start
    of_this = (
        one for one in found[here.partition] if (one.producer_id, one.transaction_start) == this
    )
    return next(of_this, None)


def _why_again(partition: TopicPartition, outcome: Outcome) -> str:
    """Why to try the marker again, or nothing where it is written."""
    if not isinstance(outcome, Answered):
        if outcome.cause is Cause.TIMED_OUT:
            raise failure_of(outcome)  # it may still be on its way: no second one may follow it
        return reason_to_repeat(outcome)
    code = known_code(outcome.message.markers[0].topics[0].partitions[0].error_code)
    if code is not ErrorCode.NONE and code not in RETRIABLE:
        raise Rejected(code, f"an abort marker in {name_of(partition)}")
    return "" if code is ErrorCode.NONE else f"{name_of(partition)}: {code.name}"


def _marker(partition: TopicPartition, producer: ProducerState) -> Ask:
    topic = WritableTxnMarkerTopic(name=partition[0], partition_indexes=[partition[1]])
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[topic],
        # One that never had a marker takes the first coordinator's.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    return Ask(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))


def _ask(partitions: Sequence[TopicPartition]) -> Ask:
    rows = [
        TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(partitions).items()
    ]
    return Ask(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=rows))


def _take(outcome: Outcome, found: Producers) -> str:
    """Note who produces; why to ask again, or nothing."""
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    because = ""
    for partition, row in _rows(outcome.message):
        code = known_code(row.error_code)
        if code is ErrorCode.NONE:
            found[partition] = [_producer(one) for one in row.active_producers]
        elif code in RETRIABLE:
            because = f"{name_of(partition)}: {code.name}"
        else:
            raise Rejected(code, row.error_message or name_of(partition))
    return because


def _rows(message: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, PartitionResponse]]:
    for topic in message.topics:
        for one in topic.partitions:
            yield (topic.name, Partition(one.partition_index)), one


def _producer(row: ProducerRow) -> ProducerState:
    start, stamp = row.current_txn_start_offset, row.last_timestamp
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        None if stamp < 0 else WallMs(stamp),
        row.coordinator_epoch,
        None if start < 0 else Offset(start),
    )
