"""DescribeProducers (key 61), version 0: who writes to a partition with sequence numbers."""

from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.kernel.topic_names import fault_of_name
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.log.producers import Producer
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k61_describe_producers import (
    API,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(call: Call, request: DescribeProducersRequest) -> object | None:
    return in_parts(call, _described(call, request))


def _described(call: Call, request: DescribeProducersRequest) -> Parts:
    """Each partition once, with other clients' requests in between."""
    turn = Turn()
    wanted = yield from _merged(request, turn)
    topics: list[TopicResponse] = []
    left = limits.MESSAGE_ELEMENTS_MAX
    for name, indexes in wanted.items():
        topics.append(TopicResponse(name=name, partitions=[]))
        for index in indexes:
            if turn.is_over():
                yield None
            row = _partition(call, name, index) if left > 0 else _too_many(index)
            topics[-1].partitions.append(row)
            count = len(row.active_producers)
            turn.take(count)
            left -= 1 + count
    return DescribeProducersResponse(topics=topics)


def _merged(request: DescribeProducersRequest, turn: Turn) -> Parting[dict[str, dict[int, None]]]:
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        indexes = wanted.setdefault(asked.name, {})
        if turn.is_over():
            yield None
        indexes.update(dict.fromkeys(asked.partition_indexes))
    return wanted


def _too_many(index: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="the answer would be too large: ask for fewer partitions",
    )


def _partition(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        return PartitionResponse(
            partition_index=index, active_producers=_producers(call, topic, index)
        )
    except Rejected as refused:
        return PartitionResponse(
            partition_index=index, error_code=refused.code, error_message=refused.detail or None
        )


def _producers(call: Call, topic: str, index: int) -> list[ProducerState]:
    fault = fault_of_name(topic)
    if fault is not None:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if topic not in call.broker.image.names:
        reason = "This server does not host this topic-partition."
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    # A follower knows its producers too: only one that is not here at all is refused.
    replica = call.broker.replicas.get((topic, Partition(index)))
    if replica is None:
        replica, _ = partitions.led(call.broker, topic, index)
    with partitions.storage_errors(call.broker, replica):
        known = replica.log.producers
    return [_state(producer_id, producer) for producer_id, producer in known.items()]


def _state(producer_id: int, producer: Producer) -> ProducerState:
    last = producer.batches[-1] if producer.batches else None
    ended = producer.marker is not None and (
        last is None or last.last_offset < producer.marker.offset
    )
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=-1 if last is None else last.last_sequence,
        last_timestamp=producer.seen_ms if last is None or ended else last.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.txn_start,
    )


ROUTE = Route(API, range(1), describe_producers, "from the log's producer state")
