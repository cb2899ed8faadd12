"""DescribeQuorum (key 55), versions 0-2, all flexible. The coordinator says what it has."""

from tidelog.kernel import limits
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k55_describe_quorum import (
    API,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)


def describe_quorum(call: Call, _request: DescribeQuorumRequest) -> None:
    def refusal(code: ErrorCode) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(error_code=code)

    forward(call, limits.FORWARD_TIMEOUT_MS, refusal)


ROUTE = Route(API, range(3), describe_quorum, "the coordinator is the one voter, brokers observe")
