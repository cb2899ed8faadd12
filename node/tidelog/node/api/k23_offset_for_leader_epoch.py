"""OffsetForLeaderEpoch (key 23), versions 2-4: where an epoch ends in the leader's log.

Consumers find with it whether what they read was cut off since (KIP-320).
"""

from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import Rejected
from tidelog.wire.messages.k23_offset_for_leader_epoch import (
    API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> object | None:
    return in_parts(call, _ends(call, request))


def _ends(call: Call, request: OffsetForLeaderEpochRequest) -> Parts:
    topics: list[OffsetForLeaderTopicResult] = []
    turn = Turn()
    for topic in request.topics:
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=[]))
        for asked in topic.partitions:
            if turn.is_over():
                yield None
            topics[-1].partitions.append(_partition(call, topic.topic, asked))
    return OffsetForLeaderEpochResponse(topics=topics)


def _partition(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        epoch, end = _end(call, topic, asked)
    except Rejected as refused:
        return EpochEndOffset(error_code=refused.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def _end(call: Call, topic: str, asked: OffsetForLeaderPartition) -> tuple[Epoch, Offset]:
    broker = call.broker
    replica, _ = partitions.led(broker, topic, asked.partition, epoch=asked.current_leader_epoch)
    if asked.leader_epoch == NO_EPOCH:
        return NO_EPOCH, NO_OFFSET  # who knows no epoch learns none; older than all is another case
    with partitions.storage_errors(broker, replica):
        return replica.log.epochs.end_of(asked.leader_epoch, replica.log.end)


ROUTE = Route(API, range(2, 5), offset_for_leader_epoch, "from the log's epoch list")
