"""AlterPartitionReassignments (key 45), versions 0-1, all flexible. The coordinator decides."""

from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


def alter_partition_reassignments(call: Call, request: AlterPartitionReassignmentsRequest) -> None:
    def refusal(code: ErrorCode) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=code,
            error_message=None,
            responses=[],
        )

    forward(call, request.timeout_ms, refusal)


ROUTE = Route(API, range(2), alter_partition_reassignments, "moves, adds and removes replicas")
