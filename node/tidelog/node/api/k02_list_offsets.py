"""ListOffsets (key 2), versions 1-11. v2 what is committed, v4 leader epochs, v5 an end that is not
known yet, v7 the largest timestamp, v9 and v11 tiered.

Whoever names a replica is answered as a consumer is: our followers do not ask, and some clients
leave a 0 there (kafka-python after 3.0.12), which Kafka lets pass.
"""

from collections import Counter
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.ids import Offset
from tidelog.kernel.steps import at_once, behind_all
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.log.log import Log
from tidelog.node.log.looking import cost_at_once
from tidelog.node.log.lookup import Search, TimestampOffset, ToLook, look_for
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k02_list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
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


def list_offsets(call: Call, request: ListOffsetsRequest) -> object | None:
    return in_parts(call, _listed(call, request))


def _listed(call: Call, request: ListOffsetsRequest) -> Parts:
    turn = _Turn()
    committed = request.isolation_level == _READ_COMMITTED
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        once, rows = _told_apart(topic)
        for asked in once:
            if turn.is_over():
                yield None
            rows.append((yield from _list_one(call, topic.name, asked, turn, committed)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


def _told_apart(
    topic: ListOffsetsTopic,
) -> tuple[list[ListOffsetsPartition], list[ListOffsetsPartitionResponse]]:
    """What is asked once. A partition that stands twice is an error for that partition, as in
    Kafka.
    """
    named = Counter(asked.partition_index for asked in topic.partitions)
    if len(named) == len(topic.partitions):
        return topic.partitions, []
    twice = {index for index, times in named.items() if times > 1}
    once = [asked for asked in topic.partitions if asked.partition_index not in twice]
    return once, [_refusal(index, ErrorCode.INVALID_REQUEST) for index in sorted(twice)]


class _Turn:
    """What may still be done before other clients have their turn."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._rows = limits.ROWS_PER_STEP
        self._records = limits.RECORDS_AT_ONCE_MAX
        self._bytes = limits.LOOKED_AT_ONCE_BYTES

    def is_over(self) -> bool:
        """Asked for each row; the next turn begins where it is."""
        is_over = self._rows == 0 or self._bytes <= 0
        if is_over:
            self._begin()
        self._rows -= 1
        return is_over

    def takes(self, batch: ToLook) -> bool:
        """Whether the records of a batch, which was read just now, may be looked at on the loop."""
        if self._bytes <= 0:
            return False
        self._bytes -= len(batch.batch)
        cost = cost_at_once(batch.batch, batch.header)
        if cost is None or cost > self._records:
            return False
        self._records -= cost
        return True


def _list_one(
    call: Call,
    topic: str,
    asked: ListOffsetsPartition,
    turn: _Turn,
    committed: bool,  # noqa: FBT001 -- called in one place
) -> Parting[ListOffsetsPartitionResponse]:
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
            if not isinstance(found, tuple | None):
                found = yield from _searched(call, replica, leader, found, turn)
                _check_known(leader, call.version, is_certain=found is not None)
    except Rejected as refused:
        return _refusal(index, refused.code)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index)
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _searched(
    call: Call, replica: Replica, leader: Leader, search: Search, turn: _Turn
) -> Parting[TimestampOffset | None]:
    """What the search finds; refused where the partition is not led here any more."""
    found: TimestampOffset | None = None
    while True:
        while call.broker.looked_at_bytes > limits.LOOKED_AT_BYTES_MAX:
            yield behind_all()  # they are the batches of work that is there by now
            _check_led(call, replica, leader)
        try:
            wanted = search.send(found)
        except StopIteration as end:
            answer: TimestampOffset | None = end.value
            return answer
        if wanted is None:
            found = yield None
        elif turn.takes(wanted):
            found = at_once(look_for(wanted))
        else:
            found = yield from _looked_for(call, wanted)
        _check_led(call, replica, leader)


def _looked_for(call: Call, wanted: ToLook) -> Parting[TimestampOffset | None]:
    """What a thread finds in a batch, which is in memory until then."""
    size = len(wanted.batch)
    call.broker.looked_at_bytes += size
    try:
        found: TimestampOffset | None = yield look_for(wanted)
    finally:
        call.broker.looked_at_bytes -= size
    return found


def _check_led(call: Call, replica: Replica, leader: Leader) -> None:
    if replica.leader is not leader or call.broker.replicas.get(replica.key) is not replica:
        raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _find(
    log: Log, leader: Leader, end: Offset, version: int, timestamp: int
) -> tuple[int, int, int] | Search | None:
    """Timestamp, offset and its leader epoch, of what lies below `end`; None where there is no such
    record."""
    if version < _FIRST_VERSION.get(timestamp, 0):
        raise Rejected(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return (-1, log.start, max(0, log.epochs.epoch_at(log.start)))
    if timestamp in {LATEST_TIERED, EARLIEST_NOT_TIERED}:
        return None
    if timestamp == LATEST:
        _check_known(leader, version, is_certain=False)
        return (-1, end, leader.epoch)
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp(end)
    if timestamp < 0:
        raise Rejected(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    return log.offset_for_timestamp(timestamp, end)


def _check_known(leader: Leader, version: int, *, is_certain: bool) -> None:
    """Refused where what was readable before the election was perhaps more than we know now: an
    end must not go back."""
    if is_certain or leader.high_watermark >= leader.epoch_start:
        return
    raise Rejected(
        ErrorCode.OFFSET_NOT_AVAILABLE
        if version >= _NOT_AVAILABLE_VERSION
        else ErrorCode.LEADER_NOT_AVAILABLE
    )


def _refusal(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


ROUTE = Route(API, range(1, 12), list_offsets, "start, end, by time, largest time")
