"""DescribeGroups (key 15), versions 0-6, flexible from 5.

v3 authorized operations, v4 static members, v6 an error message and GROUP_ID_NOT_FOUND.
"""

from tidelog.wire.primitives import BOOL, BYTES, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DescribeGroupsRequest:
    groups: list[str] = row(array(STRING))
    include_authorized_operations: bool = row(BOOL, "3+")


@message
class DescribedGroupMember:
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "4+", nullable="4+", default=None)
    client_id: str = row(STRING)
    client_host: str = row(STRING)
    member_metadata: bytes = row(BYTES)
    member_assignment: bytes = row(BYTES)


@message
class DescribedGroup:
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, "6+", nullable="6+", default=None)
    group_id: str = row(STRING)
    group_state: str = row(STRING)
    protocol_type: str = row(STRING)
    protocol_data: str = row(STRING)
    members: list[DescribedGroupMember] = row(array(DescribedGroupMember))
    authorized_operations: int = row(INT32, "3+", default=-2147483648)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = row(INT32, "1+")
    groups: list[DescribedGroup] = row(array(DescribedGroup))


API = ApiSchema(
    key=15,
    name="DescribeGroups",
    versions=range(7),
    flexible_from=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
