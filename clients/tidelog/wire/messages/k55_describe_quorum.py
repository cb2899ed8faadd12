"""DescribeQuorum (key 55), versions 0-2, all flexible.

v1 adds the times, v2 sentences, directories and where the nodes listen.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, INT64, STRING, UINT16, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class PartitionRequest:
    partition_index: int = row(INT32)


@message
class TopicRequest:
    topic_name: str = row(STRING)
    partitions: list[PartitionRequest] = row(array(PartitionRequest))


@message
class DescribeQuorumRequest:
    topics: list[TopicRequest] = row(array(TopicRequest))


@message
class ReplicaState:
    replica_id: int = row(INT32)
    replica_directory_id: bytes = row(UUID, "2+")
    log_end_offset: int = row(INT64)
    last_fetch_timestamp: int = row(INT64, "1+", default=-1)
    last_caught_up_timestamp: int = row(INT64, "1+", default=-1)


@message
class PartitionData:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, "2+", nullable="2+", default=None)
    leader_id: int = row(INT32)
    leader_epoch: int = row(INT32)
    high_watermark: int = row(INT64)
    current_voters: list[ReplicaState] = row(array(ReplicaState))
    observers: list[ReplicaState] = row(array(ReplicaState))


@message
class TopicData:
    topic_name: str = row(STRING)
    partitions: list[PartitionData] = row(array(PartitionData))


@message
class Listener:
    name: str = row(STRING, "2+")
    host: str = row(STRING, "2+")
    port: int = row(UINT16, "2+")


@message
class Node:
    node_id: int = row(INT32, "2+")
    listeners: list[Listener] = row(array(Listener), "2+")


@message
class DescribeQuorumResponse:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, "2+", nullable="2+", default=None)
    topics: list[TopicData] = row(array(TopicData))
    nodes: list[Node] = row(array(Node), "2+")


API = ApiSchema(
    key=55,
    name="DescribeQuorum",
    versions=range(3),
    flexible_from=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
