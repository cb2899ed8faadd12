"""OffsetFetch (key 9), versions 1-9. v2 all topics, v5 leader epochs, v7 stable offsets, v8 groups.

Not done: topic ids (version 10).
"""

from collections.abc import Iterable
from typing import Any, Final

from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group, ask_groups, code_of
from tidelog.node.api.registry import Route
from tidelog.node.groups.records import CommittedOffset
from tidelog.node.groups.requests import FetchOffsets, OffsetsFound
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k09_offset_fetch import (
    API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_ERROR_AT_TOP_VERSION: Final = 2
_MANY_GROUPS_VERSION: Final = 8
_AnyTopics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None
_NONE: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
_Row = tuple[int, CommittedOffset, ErrorCode]


def offset_fetch(call: Call, request: OffsetFetchRequest) -> None:
    if call.version >= _MANY_GROUPS_VERSION:
        groups = request.groups
        asked = [(one.group_id, _asked(one.group_id, one.topics, request, one)) for one in groups]
        ask_groups(
            call,
            asked,
            lambda said: OffsetFetchResponse(
                groups=[_group(one, what) for one, what in zip(groups, said, strict=True)]
            ),
        )
        return
    ask_group(
        call,
        request.group_id,
        _asked(request.group_id, request.topics, request, None),
        lambda said: _one_group(call, request, said),
    )


def _asked(
    group: str,
    topics: _AnyTopics,
    request: OffsetFetchRequest,
    member: OffsetFetchRequestGroup | None,
) -> FetchOffsets:
    return FetchOffsets(
        group=group,
        member_id=None if member is None else member.member_id,
        member_epoch=-1 if member is None else member.member_epoch,
        wanted=None if topics is None else tuple(_pairs(topics)),
        require_stable=request.require_stable,
    )


def _pairs(topics: _AnyTopics) -> Iterable[tuple[str, int]]:
    return [(topic.name, index) for topic in topics or () for index in topic.partition_indexes]


def _group(asked: OffsetFetchRequestGroup, said: Any | Refusal) -> OffsetFetchResponseGroup:  # noqa: ANN401 -- OffsetsFound, or why not
    rows = _by_topic(asked.topics, said)
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=code,
                    )
                    for index, value, code in found
                ],
            )
            for name, found in rows.items()
        ],
        error_code=code_of(said),
    )


def _one_group(
    call: Call,
    request: OffsetFetchRequest,
    said: Any | Refusal,  # noqa: ANN401 -- as above
) -> OffsetFetchResponse:
    # Before version 2 the partitions alone can say what went wrong.
    per_row = code_of(said) if call.version < _ERROR_AT_TOP_VERSION else ErrorCode.NONE
    rows = _by_topic(request.topics, said)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=code or per_row,
                    )
                    for index, value, code in found
                ],
            )
            for name, found in rows.items()
        ],
        error_code=code_of(said),
    )


def _by_topic(topics: _AnyTopics, said: Any | Refusal) -> dict[str, list[_Row]]:  # noqa: ANN401 -- as above
    """What was found, and of a refusal a row for each that was asked for."""
    rows: dict[str, list[_Row]] = {}
    if isinstance(said, Refusal):
        for name, index in _pairs(topics):
            rows.setdefault(name, []).append((index, _NONE, ErrorCode.NONE))
        return rows
    assert isinstance(said, OffsetsFound)
    for name, index, found in said.rows:
        if isinstance(found, ErrorCode):
            row = (index, _NONE, found)
        else:
            row = (index, found or _NONE, ErrorCode.NONE)
        rows.setdefault(name, []).append(row)
    return rows


ROUTE = Route(API, range(1, 10), offset_fetch, "only what the replicas have; many groups from v8")
