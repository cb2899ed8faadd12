"""ListPartitionReassignments (key 46), version 0, all flexible."""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ListPartitionReassignmentsTopics:
    name: str = row(STRING)
    partition_indexes: list[int] = row(array(INT32))


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = row(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = row(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@message
class OngoingPartitionReassignment:
    partition_index: int = row(INT32)
    replicas: list[int] = row(array(INT32))
    adding_replicas: list[int] = row(array(INT32))
    removing_replicas: list[int] = row(array(INT32))


@message
class OngoingTopicReassignment:
    name: str = row(STRING)
    partitions: list[OngoingPartitionReassignment] = row(array(OngoingPartitionReassignment))


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    topics: list[OngoingTopicReassignment] = row(array(OngoingTopicReassignment))


API = ApiSchema(
    key=46,
    name="ListPartitionReassignments",
    versions=range(1),
    flexible_from=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
