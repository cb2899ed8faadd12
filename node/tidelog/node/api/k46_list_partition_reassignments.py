"""ListPartitionReassignments (key 46), version 0: none, for replicas cannot be moved yet."""

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.messages.k46_list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    # A topic that does not exist is no error: nothing of it is under way either.
    return ListPartitionReassignmentsResponse(error_message=None)


ROUTE = Route(API, range(1), list_partition_reassignments, "always empty: nothing moves yet")
