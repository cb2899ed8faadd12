"""CreatePartitions (key 37), versions 0-3. v2 flexible. The coordinator decides."""

from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k37_create_partitions import (
    API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


def create_partitions(call: Call, request: CreatePartitionsRequest) -> None:
    def refusal(code: ErrorCode) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code)
                for topic in request.topics
            ]
        )

    forward(call, request.timeout_ms, refusal)


ROUTE = Route(API, range(4), create_partitions, "the number grows; internal topics are refused")
