"""ListOffsets (key 2), versions 1-11, flexible from 6.

Timestamps below zero are questions: -1 end, -2 start, -3 (v7) largest timestamp, -4 (v8) local
start, -5 (v9) tiered, -6 (v11) earliest not tiered. v4 leader epochs, v10 a time limit for tiered
answers.
"""

from tidelog.wire.primitives import INT8, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ListOffsetsPartition:
    partition_index: int = row(INT32)
    current_leader_epoch: int = row(INT32, "4+", default=-1)
    timestamp: int = row(INT64)


@message
class ListOffsetsTopic:
    name: str = row(STRING)
    partitions: list[ListOffsetsPartition] = row(array(ListOffsetsPartition))


@message
class ListOffsetsRequest:
    replica_id: int = row(INT32)
    isolation_level: int = row(INT8, "2+")
    topics: list[ListOffsetsTopic] = row(array(ListOffsetsTopic))
    timeout_ms: int = row(INT32, "10+")


@message
class ListOffsetsPartitionResponse:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)
    timestamp: int = row(INT64, default=-1)
    offset: int = row(INT64, default=-1)
    leader_epoch: int = row(INT32, "4+", default=-1)


@message
class ListOffsetsTopicResponse:
    name: str = row(STRING)
    partitions: list[ListOffsetsPartitionResponse] = row(array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    throttle_time_ms: int = row(INT32, "2+")
    topics: list[ListOffsetsTopicResponse] = row(array(ListOffsetsTopicResponse))


API = ApiSchema(
    key=2,
    name="ListOffsets",
    versions=range(1, 12),
    flexible_from=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
