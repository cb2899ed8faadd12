"""ConsumerGroupHeartbeat (key 68), versions 0-1, all flexible.

What has not changed is null, in both directions. v1 regular expressions, and the member makes its
id.
"""

from tidelog.kernel.ids import Uuid
from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class TopicPartitions:
    topic_id: Uuid = row(UUID)
    partitions: list[int] = row(array(INT32))


@message
class ConsumerGroupHeartbeatRequest:
    group_id: str = row(STRING)
    member_id: str = row(STRING)
    member_epoch: int = row(INT32)
    instance_id: str | None = row(STRING, nullable="0+", default=None)
    rack_id: str | None = row(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = row(INT32, default=-1)
    subscribed_topic_names: list[str] | None = row(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = row(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = row(STRING, nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = row(
        array(TopicPartitions), nullable="0+", default=None
    )


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = row(array(TopicPartitions))


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = row(INT32)
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+", default=None)
    member_id: str | None = row(STRING, nullable="0+", default=None)
    member_epoch: int = row(INT32)
    heartbeat_interval_ms: int = row(INT32)
    assignment: Assignment | None = row(Assignment, nullable="0+", default=None)


API = ApiSchema(
    key=68,
    name="ConsumerGroupHeartbeat",
    versions=range(2),
    flexible_from=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
