"""LeaveGroup (key 13), versions 0-5, flexible from 4.

v3 many members at once, each with an error, v5 the reason.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class MemberIdentity:
    member_id: str = row(STRING, "3+")
    group_instance_id: str | None = row(STRING, "3+", nullable="3+", default=None)
    reason: str | None = row(STRING, "5+", nullable="5+", default=None)


@message
class LeaveGroupRequest:
    group_id: str = row(STRING)
    member_id: str = row(STRING, "0-2")
    members: list[MemberIdentity] = row(array(MemberIdentity), "3+")


@message
class MemberResponse:
    member_id: str = row(STRING, "3+")
    group_instance_id: str | None = row(STRING, "3+", nullable="3+")
    error_code: int = row(INT16, "3+")


@message
class LeaveGroupResponse:
    throttle_time_ms: int = row(INT32, "1+")
    error_code: int = row(INT16)
    members: list[MemberResponse] = row(array(MemberResponse), "3+")


API = ApiSchema(
    key=13,
    name="LeaveGroup",
    versions=range(6),
    flexible_from=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
