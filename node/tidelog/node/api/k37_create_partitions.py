"""CreatePartitions (key 37), versions 0-3. v2 flexible. The coordinator decides."""

from tidelog.kernel.limits import PARTITIONS_PER_TOPIC_MAX
from tidelog.node.api import pieces
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.parts import Parts, in_parts
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k37_create_partitions import (
    API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(call: Call, request: CreatePartitionsRequest) -> object | None:
    if pieces.is_wide(_weight(call, topic) for topic in request.topics):
        return in_parts(call, _in_pieces(call, request))

    def refusal(code: ErrorCode) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(results=[_refused(one, code) for one in request.topics])

    forward(call, request.timeout_ms, refusal)
    return None


def _in_pieces(call: Call, request: CreatePartitionsRequest) -> Parts:
    kind = pieces.Kind[CreatePartitionsTopic](
        key=lambda topic: topic.name,
        weight=lambda topic: _weight(call, topic),
        request=lambda topics: CreatePartitionsRequest(
            topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
        ),
        rows=lambda told: told.results,
        refusal=_refused,
    )
    done = yield from pieces.decided_in_pieces(call, request.timeout_ms, request.topics, kind)
    return CreatePartitionsResponse(results=list(done.rows.values()))


def _weight(call: Call, asked: CreatePartitionsTopic) -> int:
    topic = call.broker.image.names.get(asked.name)
    added = 0 if topic is None else max(0, asked.count - len(topic.partitions))
    return 2 + max(min(added, PARTITIONS_PER_TOPIC_MAX), len(asked.assignments or ()))


def _refused(topic: CreatePartitionsTopic, code: ErrorCode) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=code)


ROUTE = Route(API, range(4), create_partitions, "the number grows; internal topics are refused")
