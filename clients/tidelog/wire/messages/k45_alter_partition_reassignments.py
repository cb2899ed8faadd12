"""AlterPartitionReassignments (key 45), versions 0-1, all flexible."""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ReassignablePartition:
    partition_index: int = row(INT32)
    replicas: list[int] | None = row(array(INT32), nullable="0+", default=None)


@message
class ReassignableTopic:
    name: str = row(STRING)
    partitions: list[ReassignablePartition] = row(array(ReassignablePartition))


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = row(INT32, default=60000)
    allow_replication_factor_change: bool = row(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = row(array(ReassignableTopic))


@message
class ReassignablePartitionResponse:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")


@message
class ReassignableTopicResponse:
    name: str = row(STRING)
    partitions: list[ReassignablePartitionResponse] = row(array(ReassignablePartitionResponse))


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = row(INT32)
    allow_replication_factor_change: bool = row(BOOL, "1+", default=True)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")
    responses: list[ReassignableTopicResponse] = row(array(ReassignableTopicResponse))


API = ApiSchema(
    key=45,
    name="AlterPartitionReassignments",
    versions=range(2),
    flexible_from=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
