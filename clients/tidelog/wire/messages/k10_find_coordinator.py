"""FindCoordinator (key 10), versions 0-6, flexible from 3.

Key type 0 is a group, 1 (v1) a transactional id, 2 (v6) a share group. v4 asks for many keys at
once: the errors are per key then.
"""

from tidelog.wire.primitives import INT8, INT16, INT32, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class FindCoordinatorRequest:
    key: str = row(STRING, "0-3")
    key_type: int = row(INT8, "1+")
    coordinator_keys: list[str] = row(array(STRING), "4+")


@message
class Coordinator:
    key: str = row(STRING, "4+")
    node_id: int = row(INT32, "4+")
    host: str = row(STRING, "4+")
    port: int = row(INT32, "4+")
    error_code: int = row(INT16, "4+")
    error_message: str | None = row(STRING, "4+", nullable="4+")


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = row(INT32, "1+")
    error_code: int = row(INT16, "0-3")
    error_message: str | None = row(STRING, "1-3", nullable="1-3")
    node_id: int = row(INT32, "0-3")
    host: str = row(STRING, "0-3")
    port: int = row(INT32, "0-3")
    coordinators: list[Coordinator] = row(array(Coordinator), "4+")


API = ApiSchema(
    key=10,
    name="FindCoordinator",
    versions=range(7),
    flexible_from=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
