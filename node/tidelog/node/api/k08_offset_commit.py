"""OffsetCommit (key 8), versions 2-10. v6 leader epochs, v7 static members, v8 flexible, v10 ids.

A request is one decision: what may be committed of it is committed at once, or nothing is. Any
number is taken for an offset, as by Kafka: negative ones too, and such as lie behind the log's end.
"""

from typing import Any, Final

from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of, offset_to_commit
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


def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    offsets: list[OffsetToCommit] = []
    topics = [_topic(call, topic, offsets) for topic in request.topics]

    def answer(said: Any | Refusal) -> OffsetCommitResponse:  # noqa: ANN401 -- None, or why not
        code = code_of(said)
        if call.version < _CONSUMER_VERSION:
            code = _CLASSIC_CODES.get(code, code)
        for topic in topics:
            for row in topic.partitions:
                row.error_code = row.error_code or code
        return OffsetCommitResponse(topics=topics)

    who = Who(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    ask = CommitOffsets(
        group=request.group_id,
        who=who,
        offsets=tuple(offsets),
        kept_ms=request.retention_time_ms,
        knows_epochs=call.version >= _CONSUMER_VERSION,
    )
    ask_group(call, request.group_id, ask, answer)
    return None


def _topic(
    call: Call, asked: OffsetCommitRequestTopic, offsets: list[OffsetToCommit]
) -> OffsetCommitResponseTopic:
    name = asked.name
    if call.version >= _IDS_VERSION:
        name = call.broker.image.name_of(asked.topic_id)
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
