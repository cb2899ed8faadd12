"""SyncGroup (key 14), versions 0-5, flexible from 4.

v3 static members, v5 the protocol's type and name.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import BYTES, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class SyncGroupRequestAssignment:
    member_id: str = row(STRING)
    assignment: bytes = row(BYTES)


@message
class SyncGroupRequest:
    group_id: str = row(STRING)
    generation_id: int = row(INT32)
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = row(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = row(STRING, "5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = row(array(SyncGroupRequestAssignment))


@message
class SyncGroupResponse:
    throttle_time_ms: int = row(INT32, "1+")
    error_code: int = row(INT16)
    protocol_type: str | None = row(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = row(STRING, "5+", nullable="5+", default=None)
    assignment: bytes = row(BYTES)


API = ApiSchema(
    key=14,
    name="SyncGroup",
    versions=range(6),
    flexible_from=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
