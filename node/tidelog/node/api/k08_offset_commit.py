"""OffsetCommit (key 8), versions 2-10. v6 leader epochs, v7 static members, v8 flexible, v10 ids.

A request is one decision: what may be committed of it is committed at once, or nothing is. One of
more partitions than fit into a turn is several decisions, so that each partition may have a code of
its own. Any number is taken for an offset, as by Kafka: negative ones too, and such as lie behind
the log's end.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from tidelog.kernel import limits
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import CommitsInParts, ask_group, code_of, offset_to_commit
from tidelog.node.api.parts import ANYWAY, Parts, in_parts, in_turns
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import CommitOffsets, OffsetToCommit, Who
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k08_offset_commit import (
    API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_CONSUMER_VERSION: Final = 9
_IDS_VERSION: Final = 10
_CLASSIC_CODES: Final = {
    # Before version 9 clients know nothing of consumer groups.
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
}


def offset_commit(call: Call, request: OffsetCommitRequest) -> object | None:
    if sum(len(topic.partitions) for topic in request.topics) > limits.ROWS_PER_STEP:
        return in_parts(call, _committed_in_parts(call, request))
    offsets: list[OffsetToCommit] = []
    topics = [_topic(call, topic, offsets) for topic in request.topics]

    def answer(said: Any | Refusal) -> OffsetCommitResponse:  # noqa: ANN401 -- None, or why not
        code = _told(call, code_of(said))
        for topic in topics:
            for row in topic.partitions:
                row.error_code = row.error_code or code
        return OffsetCommitResponse(topics=topics)

    ask_group(call, request.group_id, _asked(call, request, offsets), answer)
    return None


def _told(call: Call, code: ErrorCode) -> ErrorCode:
    return code if call.version >= _CONSUMER_VERSION else _CLASSIC_CODES.get(code, code)


def _asked(
    call: Call, request: OffsetCommitRequest, offsets: Sequence[OffsetToCommit]
) -> CommitOffsets:
    return CommitOffsets(
        group=request.group_id,
        who=Who(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        ),
        offsets=tuple(offsets),
        kept_ms=request.retention_time_ms,
        knows_epochs=call.version >= _CONSUMER_VERSION,
    )


def _committed_in_parts(call: Call, request: OffsetCommitRequest) -> Parts:
    """All parts are committed also if the client leaves after the first, as one part would be."""
    answer = OffsetCommitResponse(topics=[])
    commits = CommitsInParts(call, request.group_id, answer, partial(_told, call))
    for some in in_turns(_rows(call, request, answer)):
        offsets: list[OffsetToCommit] = []
        undecided = []
        for topic, asked in some:
            # Between two parts the topic may be deleted, and another one get its name.
            row = _row(call, _name(call, topic), asked, offsets)
            topic.partitions.append(row)
            if not row.error_code:
                undecided.append(row)
        if offsets:
            commits.ask(_asked(call, request, offsets), undecided)
        yield ANYWAY
    commits.end()
    return None


def _rows(
    call: Call, request: OffsetCommitRequest, answer: OffsetCommitResponse
) -> Iterator[tuple[OffsetCommitResponseTopic, OffsetCommitRequestPartition]]:
    """Each partition that is asked for, and the topic of the answer that its row belongs to."""
    for asked in request.topics:
        topic = OffsetCommitResponseTopic(
            name=_name(call, asked), topic_id=asked.topic_id, partitions=[]
        )
        answer.topics.append(topic)
        for one in asked.partitions:
            yield topic, one


def _name(call: Call, topic: OffsetCommitRequestTopic | OffsetCommitResponseTopic) -> str:
    """What the topic is called now; empty if its id is unknown."""
    if call.version >= _IDS_VERSION:
        return call.broker.image.name_of(topic.topic_id)
    return topic.name


def _topic(
    call: Call, asked: OffsetCommitRequestTopic, offsets: list[OffsetToCommit]
) -> OffsetCommitResponseTopic:
    name = _name(call, asked)
    rows = [_row(call, name, one, offsets) for one in asked.partitions]
    return OffsetCommitResponseTopic(name=name, topic_id=asked.topic_id, partitions=rows)


def _row(
    call: Call, topic: str, asked: OffsetCommitRequestPartition, offsets: list[OffsetToCommit]
) -> OffsetCommitResponsePartition:
    if not topic and call.version >= _IDS_VERSION:
        found: OffsetToCommit | ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = offset_to_commit(call, topic, asked)
    if isinstance(found, ErrorCode):
        return OffsetCommitResponsePartition(
            partition_index=asked.partition_index, error_code=found
        )
    offsets.append(found)
    return OffsetCommitResponsePartition(partition_index=asked.partition_index)


ROUTE = Route(
    API,
    range(2, 11),
    offset_commit,
    "answered once the replicas have it; any offset is taken, as by Kafka; topic ids from v10",
)
