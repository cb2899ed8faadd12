"""OffsetForLeaderEpoch (key 23), versions 2-4, flexible from 4.

Clients send replica id -1 (-2 from v3 where they do not say it).
"""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class OffsetForLeaderPartition:
    partition: int = row(INT32)
    current_leader_epoch: int = row(INT32, default=-1)
    leader_epoch: int = row(INT32)


@message
class OffsetForLeaderTopic:
    topic: str = row(STRING)
    partitions: list[OffsetForLeaderPartition] = row(array(OffsetForLeaderPartition))


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = row(INT32, "3+", default=-2)
    topics: list[OffsetForLeaderTopic] = row(array(OffsetForLeaderTopic))


@message
class EpochEndOffset:
    error_code: int = row(INT16)
    partition: int = row(INT32)
    leader_epoch: int = row(INT32, default=-1)
    end_offset: int = row(INT64, default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = row(STRING)
    partitions: list[EpochEndOffset] = row(array(EpochEndOffset))


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[OffsetForLeaderTopicResult] = row(array(OffsetForLeaderTopicResult))


API = ApiSchema(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=range(2, 5),
    flexible_from=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
