"""FindCoordinator (key 10), versions 0-6. v1 key type, v3 flexible, v4 many keys at once.

Not done: groups and transactions themselves, so every key's coordinator is not available.
"""

from typing import Final

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k10_find_coordinator import (
    API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_VERSION: Final = 4
_KEY_TYPES: Final = frozenset({0, 1})
_REASON: Final = "this cluster has no group and no transaction coordinator yet"


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    reason = _REASON
    if request.key_type not in _KEY_TYPES:
        code = ErrorCode.INVALID_REQUEST
        reason = f"key type {request.key_type} is unknown"
    if call.version < _BATCHED_VERSION:
        return FindCoordinatorResponse(
            error_code=code, error_message=reason, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason
            )
            for key in dict.fromkeys(request.coordinator_keys)
        ]
    )


ROUTE = Route(
    API, range(7), find_coordinator, "COORDINATOR_NOT_AVAILABLE until groups and transactions come"
)
