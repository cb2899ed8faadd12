"""OffsetDelete (key 47), version 0, never flexible."""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class OffsetDeleteRequestPartition:
    partition_index: int = row(INT32)


@message
class OffsetDeleteRequestTopic:
    name: str = row(STRING)
    partitions: list[OffsetDeleteRequestPartition] = row(array(OffsetDeleteRequestPartition))


@message
class OffsetDeleteRequest:
    group_id: str = row(STRING)
    topics: list[OffsetDeleteRequestTopic] = row(array(OffsetDeleteRequestTopic))


@message
class OffsetDeleteResponsePartition:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)


@message
class OffsetDeleteResponseTopic:
    name: str = row(STRING)
    partitions: list[OffsetDeleteResponsePartition] = row(array(OffsetDeleteResponsePartition))


@message
class OffsetDeleteResponse:
    error_code: int = row(INT16)
    throttle_time_ms: int = row(INT32)
    topics: list[OffsetDeleteResponseTopic] = row(array(OffsetDeleteResponseTopic))


API = ApiSchema(
    key=47,
    name="OffsetDelete",
    versions=range(1),
    flexible_from=None,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
