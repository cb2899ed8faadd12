"""Heartbeat (key 12), versions 0-4, flexible from 4.

v3 static members.
"""

from tidelog.wire.primitives import INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, message, row


@message
class HeartbeatRequest:
    group_id: str = row(STRING)
    generation_id: int = row(INT32)
    member_id: str = row(STRING)
    group_instance_id: str | None = row(STRING, "3+", nullable="3+", default=None)


@message
class HeartbeatResponse:
    throttle_time_ms: int = row(INT32, "1+")
    error_code: int = row(INT16)


API = ApiSchema(
    key=12,
    name="Heartbeat",
    versions=range(5),
    flexible_from=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)
