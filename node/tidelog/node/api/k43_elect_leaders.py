"""ElectLeaders (key 43), versions 0-2. v2 flexible. The coordinator decides."""

from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k43_elect_leaders import (
    API,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def elect_leaders(call: Call, request: ElectLeadersRequest) -> None:
    def refusal(code: ErrorCode) -> ElectLeadersResponse:
        # Version 0 has no code for the whole: each partition that was named says why.
        results = [
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=partition, error_code=code)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
        return ElectLeadersResponse(error_code=code, replica_election_results=results)

    forward(call, request.timeout_ms, refusal)


ROUTE = Route(API, range(3), elect_leaders, "preferred and unclean")
