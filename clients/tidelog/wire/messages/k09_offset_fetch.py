"""OffsetFetch (key 9), versions 1-10, flexible from 6.

v2 null asks for all topics, v5 leader epochs, v7 stable offsets only, v8 asks for many groups at
once: errors are per group then, v9 members of consumer groups, v10 topic ids in place of names.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import BOOL, INT16, INT32, INT64, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class OffsetFetchRequestTopic:
    name: str = row(STRING, "0-7")
    partition_indexes: list[int] = row(array(INT32), "0-7")


@message
class OffsetFetchRequestTopics:
    name: str = row(STRING, "8-9")
    topic_id: Uuid = row(UUID, "10+")
    partition_indexes: list[int] = row(array(INT32), "8+")


@message
class OffsetFetchRequestGroup:
    group_id: str = row(STRING, "8+")
    member_id: str | None = row(STRING, "9+", nullable="9+", default=None)
    member_epoch: int = row(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = row(
        array(OffsetFetchRequestTopics), "8+", nullable="8+"
    )


@message
class OffsetFetchRequest:
    group_id: str = row(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = row(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = row(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = row(BOOL, "7+")


@message
class OffsetFetchResponsePartition:
    partition_index: int = row(INT32, "0-7")
    committed_offset: int = row(INT64, "0-7")
    committed_leader_epoch: int = row(INT32, "5-7", default=-1)
    metadata: str | None = row(STRING, "0-7", nullable="0-7")
    error_code: int = row(INT16, "0-7")


@message
class OffsetFetchResponseTopic:
    name: str = row(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = row(array(OffsetFetchResponsePartition), "0-7")


@message
class OffsetFetchResponsePartitions:
    partition_index: int = row(INT32, "8+")
    committed_offset: int = row(INT64, "8+")
    committed_leader_epoch: int = row(INT32, "8+", default=-1)
    metadata: str | None = row(STRING, "8+", nullable="8+")
    error_code: int = row(INT16, "8+")


@message
class OffsetFetchResponseTopics:
    name: str = row(STRING, "8-9")
    topic_id: Uuid = row(UUID, "10+")
    partitions: list[OffsetFetchResponsePartitions] = row(
        array(OffsetFetchResponsePartitions), "8+"
    )


@message
class OffsetFetchResponseGroup:
    group_id: str = row(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = row(array(OffsetFetchResponseTopics), "8+")
    error_code: int = row(INT16, "8+")


@message
class OffsetFetchResponse:
    throttle_time_ms: int = row(INT32, "3+")
    topics: list[OffsetFetchResponseTopic] = row(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = row(INT16, "2-7")
    groups: list[OffsetFetchResponseGroup] = row(array(OffsetFetchResponseGroup), "8+")


API = ApiSchema(
    key=9,
    name="OffsetFetch",
    versions=range(1, 11),
    flexible_from=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
