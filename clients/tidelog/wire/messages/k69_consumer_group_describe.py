"""ConsumerGroupDescribe (key 69), versions 0-1, all flexible.

v1 the type of a member.
"""

from tidelog.kernel.ids import Uuid
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = row(array(STRING))
    include_authorized_operations: bool = row(BOOL)


@message
class TopicPartitions:
    topic_id: Uuid = row(UUID)
    topic_name: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = row(array(TopicPartitions))


@message
class Member:
    member_id: str = row(STRING)
    instance_id: str | None = row(STRING, nullable="0+", default=None)
    rack_id: str | None = row(STRING, nullable="0+", default=None)
    member_epoch: int = row(INT32)
    client_id: str = row(STRING)
    client_host: str = row(STRING)
    subscribed_topic_names: list[str] = row(array(STRING))
    subscribed_topic_regex: str | None = row(STRING, nullable="0+", default=None)
    assignment: Assignment = row(Assignment)
    target_assignment: Assignment = row(Assignment)
    member_type: int = row(INT8, "1+", default=-1)


@message
class DescribedGroup:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, nullable="0+", default=None)
    group_id: str = row(STRING)
    group_state: str = row(STRING)
    group_epoch: int = row(INT32)
    assignment_epoch: int = row(INT32)
    assignor_name: str = row(STRING)
    members: list[Member] = row(array(Member))
    authorized_operations: int = row(INT32, default=-2147483648)


@message
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = row(INT32)
    groups: list[DescribedGroup] = row(array(DescribedGroup))


API = ApiSchema(
    key=69,
    name="ConsumerGroupDescribe",
    versions=range(2),
    flexible_from=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
