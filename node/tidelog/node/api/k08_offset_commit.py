"""OffsetCommit (key 8), versions 2-9. v6 leader epochs, v7 static members, v8 flexible.

A request is one decision: what may be committed of it is committed at once, or nothing is.
Not done: topic ids (version 10).
"""

from typing import Any, Final

from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, code_of
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import CommitOffsets, OffsetToCommit, Who
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k08_offset_commit import (
    API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_CONSUMER_VERSION: Final = 9
_CLASSIC_CODES: Final = {
    # Before version 9 clients know nothing of consumer groups.
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.UNSUPPORTED_VERSION,
}


def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    offsets: list[OffsetToCommit] = []
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[_row(call, topic.name, one, offsets) for one in topic.partitions],
        )
        for topic in request.topics
    ]

    def answer(said: Any | Refusal) -> OffsetCommitResponse:  # noqa: ANN401 -- None, or why not
        code = code_of(said)
        if call.version < _CONSUMER_VERSION:
            code = _CLASSIC_CODES.get(code, code)
        for topic in topics:
            for row in topic.partitions:
                row.error_code = row.error_code or code
        return OffsetCommitResponse(topics=topics)

    who = Who(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    ask = CommitOffsets(request.group_id, who, tuple(offsets), request.retention_time_ms)
    ask_group(call, request.group_id, ask, answer)
    return None


def _row(
    call: Call, topic: str, asked: OffsetCommitRequestPartition, offsets: list[OffsetToCommit]
) -> OffsetCommitResponsePartition:
    index = asked.partition_index
    broker = call.broker
    metadata = asked.committed_metadata or ""
    code = ErrorCode.NONE
    if not partitions.exists(broker, topic, index):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif len(metadata.encode()) > broker.settings["offset.metadata.max.bytes"]:
        code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    else:
        topic_id = broker.image.names[topic].id
        epoch = asked.committed_leader_epoch
        offsets.append(
            OffsetToCommit(topic, topic_id, index, asked.committed_offset, epoch, metadata)
        )
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)


ROUTE = Route(API, range(2, 10), offset_commit, "answered once the replicas have it")
