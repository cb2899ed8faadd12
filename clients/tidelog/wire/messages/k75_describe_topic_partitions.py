"""DescribeTopicPartitions (key 75), version 0, all flexible.

Pages: the answer's cursor is where the next request goes on; null at the end.
"""

from tidelog.kernel.ids import Uuid
from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class TopicRequest:
    name: str = row(STRING)


@message
class Cursor:
    topic_name: str = row(STRING)
    partition_index: int = row(INT32)


@message
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = row(array(TopicRequest))
    response_partition_limit: int = row(INT32, default=2000)
    cursor: Cursor | None = row(Cursor, nullable="0+", default=None)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = row(INT16)
    partition_index: int = row(INT32)
    leader_id: int = row(INT32)
    leader_epoch: int = row(INT32, default=-1)
    replica_nodes: list[int] = row(array(INT32))
    isr_nodes: list[int] = row(array(INT32))
    eligible_leader_replicas: list[int] | None = row(array(INT32), nullable="0+", default=None)
    last_known_elr: list[int] | None = row(array(INT32), nullable="0+", default=None)
    offline_replicas: list[int] = row(array(INT32))


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = row(INT16)
    name: str | None = row(STRING, nullable="0+")
    topic_id: Uuid = row(UUID)
    is_internal: bool = row(BOOL)
    partitions: list[DescribeTopicPartitionsResponsePartition] = row(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = row(INT32, default=-2147483648)


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[DescribeTopicPartitionsResponseTopic] = row(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = row(Cursor, nullable="0+", default=None)


API = ApiSchema(
    key=75,
    name="DescribeTopicPartitions",
    versions=range(1),
    flexible_from=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
