"""UnregisterBroker (key 64), version 0, flexible. The coordinator decides."""

from tidelog.kernel import limits
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k64_unregister_broker import (
    API,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def unregister_broker(call: Call, _request: UnregisterBrokerRequest) -> None:
    def refusal(code: ErrorCode) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=code, error_message=None)

    forward(call, limits.FORWARD_TIMEOUT_MS, refusal)


ROUTE = Route(API, range(1), unregister_broker, "one that lives registers anew")
