"""DescribeTopicPartitions (key 75), version 0: topics by name, in pages.

Without names all topics are described. An answer holds so many partitions at most; its cursor says
where the next request goes on.
"""

from typing import Final

from tidelog.kernel.ids import ZERO_UUID
from tidelog.kernel.texts import quoted
from tidelog.kernel.topic_names import INTERNAL_TOPICS, fault_of_name
from tidelog.node.api import operations
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k75_describe_topic_partitions import (
    API,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_LIMIT: Final = "max.request.partition.size.limit"


def describe_topic_partitions(call: Call, request: DescribeTopicPartitionsRequest) -> object | None:
    return in_parts(call, _described(call, request))


def _described(call: Call, request: DescribeTopicPartitionsRequest) -> Parts:
    turn = Turn()
    try:
        names = yield from _names(call.broker.image, request, turn)
    except Rejected as refused:
        return DescribeTopicPartitionsResponse(
            topics=[_refusal(topic.name, refused.code) for topic in request.topics]
        )
    limit = min(call.broker.settings[_LIMIT], request.response_partition_limit)
    return (yield from _page(call.broker.image, names, request, max(limit, 1), turn))


def _names(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, turn: Turn
) -> Parting[list[str]]:
    """The names from the cursor on, sorted, each once."""
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    found: set[str] = set()
    for name in [topic.name for topic in request.topics] or list(image.names):
        if turn.is_over():
            yield None
        if name >= first:
            found.add(name)
    if cursor is not None and request.topics and first not in found:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"the cursor's topic {quoted(first)} is not asked for"
        )
    if cursor is not None and cursor.partition_index < 0:
        raise Rejected(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    return sorted(found)


def _page(
    image: MetadataImage,
    names: list[str],
    request: DescribeTopicPartitionsRequest,
    limit: int,
    turn: Turn,
) -> Parting[DescribeTopicPartitionsResponse]:
    """Topics until the limit is reached, and where to go on."""
    answer = DescribeTopicPartitionsResponse()
    left = limit
    for name in names:
        if turn.is_over():
            yield None
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        view = image.names.get(name)
        if view is None:
            refusal = _refusal(name, _fault(name))
            refusal.topic_authorized_operations = operations.ON_TOPIC
            answer.topics.append(refusal)
            continue
        start = _start(request.cursor, name)
        row = _topic(image, view, start, left)
        answer.topics.append(row)
        turn.take(len(row.partitions))
        left -= len(row.partitions)
        if start + len(row.partitions) < len(view.partitions):
            end = start + len(row.partitions)
            answer.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return answer


def _start(cursor: Cursor | None, name: str) -> int:
    return cursor.partition_index if cursor is not None and cursor.topic_name == name else 0


def _topic(
    image: MetadataImage, view: TopicView, start: int, count: int
) -> DescribeTopicPartitionsResponseTopic:
    rows = enumerate(view.partitions[start : start + count], start)
    return DescribeTopicPartitionsResponseTopic(
        name=view.name,
        topic_id=view.id,
        is_internal=view.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=row.leader,
                leader_epoch=row.leader_epoch,
                replica_nodes=list(row.replicas),
                isr_nodes=list(row.isr),
                eligible_leader_replicas=list(row.elr),
                last_known_elr=list(row.last_known),
                offline_replicas=image.offline(row),
            )
            for index, row in rows
        ],
        topic_authorized_operations=operations.ON_TOPIC,
    )


def _fault(name: str) -> ErrorCode:
    if fault_of_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refusal(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)


ROUTE = Route(API, range(1), describe_topic_partitions, "pages by cursor, sorted by name")
