"""ListOffsets (key 2), versions 1-11. v2 what is committed, v4 leader epochs, v5 an end that is not
known yet, v7 the largest timestamp, v9 and v11 tiered.

Whoever names a replica is answered as a consumer is: our followers do not ask, and some clients
leave a 0 there (kafka-python after 3.0.12), which Kafka lets pass.
"""

from collections import Counter
from typing import Final

from tidelog.kernel.ids import Offset
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.node.log.log import Log
from tidelog.node.replica.leader import Leader
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k02_list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_NOT_TIERED: Final = -6
"""Kafka calls it earliest-pending-upload, and knows none where nothing is tiered."""
_READ_COMMITTED: Final = 1
_NOT_AVAILABLE_VERSION: Final = 5
_FIRST_VERSION: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_NOT_TIERED: 11,
}


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics: list[ListOffsetsTopicResponse] = []
    committed = request.isolation_level == _READ_COMMITTED
    for topic in request.topics:
        # A partition that stands twice is an error for that partition, as in Kafka.
        named = Counter(asked.partition_index for asked in topic.partitions)
        twice = {index for index, times in named.items() if times > 1}
        rows = [_refusal(index, ErrorCode.INVALID_REQUEST) for index in sorted(twice)] + [
            _list_one(call, topic.name, asked, committed=committed)
            for asked in topic.partitions
            if asked.partition_index not in twice
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


def _list_one(
    call: Call, topic: str, asked: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        replica, leader = partitions.led(
            call.broker, topic, index, epoch=asked.current_leader_epoch
        )
        with partitions.storage_errors(call.broker, replica):
            log, end = replica.log, leader.high_watermark
            if committed:
                end = Offset(log.last_stable_offset(end))
            found = _find(log, leader, end, call.version, asked.timestamp)
    except Rejected as refused:
        return _refusal(index, refused.code)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index)
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _find(
    log: Log, leader: Leader, end: Offset, version: int, timestamp: int
) -> tuple[int, int, int] | None:
    """Timestamp, offset and its leader epoch, of what lies below `end`; None where there is no such
    record."""
    if version < _FIRST_VERSION.get(timestamp, 0):
        raise Rejected(ErrorCode.UNSUPPORTED_VERSION)
    is_certain = leader.high_watermark >= leader.epoch_start
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return (-1, log.start, max(0, log.epochs.epoch_at(log.start)))
    if timestamp in {LATEST_TIERED, EARLIEST_NOT_TIERED}:
        return None
    if timestamp == LATEST:
        found: tuple[int, int, int] | None = (-1, end, leader.epoch)
    else:
        found = _by_time(log, timestamp, end)
        is_certain = is_certain or found is not None
    if not is_certain:
        # Readable before the election was perhaps more than we know now: an end must not go back.
        raise Rejected(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= _NOT_AVAILABLE_VERSION
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return found


def _by_time(log: Log, timestamp: int, end: Offset) -> tuple[int, int, int] | None:
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp(end)
    if timestamp < 0:
        raise Rejected(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    return log.offset_for_timestamp(timestamp, end)


def _refusal(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


ROUTE = Route(API, range(1, 12), list_offsets, "start, end, by time, largest time")
