"""OffsetCommit (key 8), versions 2-10, flexible from 8.

v6 leader epochs, v7 static members, v9 members of consumer groups, v10 topic ids in place of
names.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import INT16, INT32, INT64, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class OffsetCommitRequestPartition:
    partition_index: int = row(INT32)
    committed_offset: int = row(INT64)
    committed_leader_epoch: int = row(INT32, "6+", default=-1)
    committed_metadata: str | None = row(STRING, nullable="0+")


@message
class OffsetCommitRequestTopic:
    name: str = row(STRING, "0-9")
    topic_id: Uuid = row(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = row(array(OffsetCommitRequestPartition))


@message
class OffsetCommitRequest:
    group_id: str = row(STRING)
    generation_id_or_member_epoch: int = row(INT32, default=-1)
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = row(INT64, "0-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = row(array(OffsetCommitRequestTopic))


@message
class OffsetCommitResponsePartition:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)


@message
class OffsetCommitResponseTopic:
    name: str = row(STRING, "0-9")
    topic_id: Uuid = row(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = row(array(OffsetCommitResponsePartition))


@message
class OffsetCommitResponse:
    throttle_time_ms: int = row(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = row(array(OffsetCommitResponseTopic))


API = ApiSchema(
    key=8,
    name="OffsetCommit",
    versions=range(2, 11),
    flexible_from=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
