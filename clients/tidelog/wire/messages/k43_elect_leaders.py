"""ElectLeaders (key 43), versions 0-2, flexible from 2."""

from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class TopicPartitions:
    topic: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class ElectLeadersRequest:
    election_type: int = row(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = row(array(TopicPartitions), nullable="0+")
    timeout_ms: int = row(INT32, default=60000)


@message
class PartitionResult:
    partition_id: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+")


@message
class ReplicaElectionResult:
    topic: str = row(STRING)
    partition_result: list[PartitionResult] = row(array(PartitionResult))


@message
class ElectLeadersResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = row(array(ReplicaElectionResult))


API = ApiSchema(
    key=43,
    name="ElectLeaders",
    versions=range(3),
    flexible_from=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
