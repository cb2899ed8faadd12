"""JoinGroup (key 11), versions 0-9, flexible from 6.

v1 rebalance timeout, v4 MEMBER_ID_REQUIRED, v5 static members, v7 a null protocol name on errors,
v8 the reason of a join, v9 skip_assignment.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, BYTES, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class JoinGroupRequestProtocol:
    name: str = row(STRING)
    metadata: bytes = row(BYTES)


@message
class JoinGroupRequest:
    group_id: str = row(STRING)
    session_timeout_ms: int = row(INT32)
    rebalance_timeout_ms: int = row(INT32, "1+", default=-1)
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = row(STRING)
    protocols: list[JoinGroupRequestProtocol] = row(array(JoinGroupRequestProtocol))
    reason: str | None = row(STRING, "8+", nullable="8+", default=None)


@message
class JoinGroupResponseMember:
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "5+", nullable="5+", default=None)
    metadata: bytes = row(BYTES)


@message
class JoinGroupResponse:
    throttle_time_ms: int = row(INT32, "2+")
    error_code: int = row(INT16)
    generation_id: int = row(INT32, default=-1)
    protocol_type: str | None = row(STRING, "7+", nullable="7+", default=None)
    protocol_name: str | None = row(STRING, nullable="7+")
    leader: str = row(STRING)
    skip_assignment: bool = row(BOOL, "9+")
    member_id: str = row(STRING)
    members: list[JoinGroupResponseMember] = row(array(JoinGroupResponseMember))


API = ApiSchema(
    key=11,
    name="JoinGroup",
    versions=range(10),
    flexible_from=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
