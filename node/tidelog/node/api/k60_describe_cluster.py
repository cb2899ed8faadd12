"""DescribeCluster (key 60), versions 0-2. v1 brokers or controllers, v2 fenced brokers too."""

from typing import Final

from tidelog.node.api import operations
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k60_describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_WORDS: Final = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    kind = request.endpoint_type
    if kind not in _WORDS:
        return _refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}")
    if kind != _BROKERS:
        return _refusal(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {_WORDS[_BROKERS]}, "
            f"but we wanted an endpoint of type {_WORDS[kind]}",
        )
    image = call.broker.image
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            is_fenced=broker.fenced,
        )
        for broker in sorted(image.brokers.values(), key=lambda view: view.id)
        if request.include_fenced_brokers or not broker.fenced
    ]
    # Any live broker will do, as in Metadata: what it does not own it forwards.
    is_listed = any(broker.broker_id == call.broker.me for broker in brokers)
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=call.broker.me if is_listed else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            operations.ON_CLUSTER
            if request.include_cluster_authorized_operations
            else operations.NOT_ASKED
        ),
    )


def _refusal(code: ErrorCode, reason: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=reason)


ROUTE = Route(API, range(3), describe_cluster, "brokers, on demand the fenced ones too")
