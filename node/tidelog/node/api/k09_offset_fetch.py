"""OffsetFetch (key 9), versions 1-10. v2 all topics, v5 leader epochs, v7 stable offsets.

v8 many groups at once. v10 topic ids: what was committed of a topic that had the name before is
not told of its successor.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Uuid
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
_IDS_VERSION: Final = 10
_AnyTopics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None
_NONE: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
_Row = tuple[int, CommittedOffset, ErrorCode]


class _Topic(NamedTuple):
    """One that was asked for."""

    name: str | None
    """None: nobody knows a topic of this id."""
    id: Uuid
    """Zeros where the client names it."""
    indexes: Sequence[int]


def offset_fetch(call: Call, request: OffsetFetchRequest) -> None:
    if call.version >= _MANY_GROUPS_VERSION:
        groups = [(one, _topics(call, one.topics)) for one in _merged(request.groups)]
        asked = [
            (one.group_id, _asked(one.group_id, topics, request, one)) for one, topics in groups
        ]
        ask_groups(
            call,
            asked,
            lambda said: OffsetFetchResponse(
                groups=[
                    _group(call, one.group_id, topics, what)
                    for (one, topics), what in zip(groups, said, strict=True)
                ]
            ),
        )
        return
    topics = _topics(call, request.topics)
    ask_group(
        call,
        request.group_id,
        _asked(request.group_id, topics, request, None),
        lambda said: _one_group(call, topics, said),
    )


def _merged(groups: Sequence[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each group once, however often it stands there: else a short request for all that a group has
    committed would be answered with gigabytes.
    """
    found: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        first = found.setdefault(group.group_id, group)
        if first is group or first.topics is None:
            continue
        if group.topics is None:
            first.topics = None
        else:
            first.topics += group.topics
    return list(found.values())


def _topics(call: Call, topics: _AnyTopics) -> list[_Topic] | None:
    """Each topic once, and each partition: what is committed carries a text of its own."""
    if topics is None:
        return None
    found: dict[tuple[str | None, Uuid], dict[int, None]] = {}
    for topic in topics:
        name, topic_id, indexes = _topic(call, topic)
        found.setdefault((name, topic_id), {}).update(dict.fromkeys(indexes))
    return [_Topic(name, topic_id, list(indexes)) for (name, topic_id), indexes in found.items()]


def _topic(call: Call, topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics) -> _Topic:
    if call.version < _IDS_VERSION or isinstance(topic, OffsetFetchRequestTopic):
        return _Topic(topic.name, ZERO_UUID, topic.partition_indexes)
    known = call.broker.image.name_of(topic.topic_id) or None
    return _Topic(known, topic.topic_id, topic.partition_indexes)


def _asked(
    group: str,
    topics: list[_Topic] | None,
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


def _pairs(topics: Sequence[_Topic] | None) -> Iterator[tuple[str, int]]:
    for topic in topics or ():
        if topic.name is not None:
            yield from ((topic.name, index) for index in topic.indexes)


def _group(
    call: Call,
    group: str,
    topics: list[_Topic] | None,
    said: Any | Refusal,  # noqa: ANN401 -- OffsetsFound, or why not
) -> OffsetFetchResponseGroup:
    # Kafka lists no partition where it refuses. librdkafka asks again for those that are listed
    # (STALE_MEMBER_EPOCH, in the middle of a rebalance), and for others never.
    rows = _by_topic(topics, said)
    if call.version >= _IDS_VERSION:
        answer = _by_id(call, topics, rows)
    else:
        answer = [_response(name, ZERO_UUID, found) for name, found in rows.items()]
    return OffsetFetchResponseGroup(group_id=group, topics=answer, error_code=code_of(said))


def _by_id(
    call: Call, topics: list[_Topic] | None, rows: dict[str, list[_Row]]
) -> list[OffsetFetchResponseTopics]:
    """Of all topics that a group has committed, those that are gone have no id and are left out."""
    names = call.broker.image.names
    if topics is None:
        return [_response(name, names[name].id, rows[name]) for name in rows if name in names]
    known = {topic.name: topic.id for topic in topics if topic.name is not None}
    unknown = (topic for topic in topics if topic.name is None)
    return [
        *(_response(name, known[name], found) for name, found in rows.items()),
        *(_response("", topic.id, _unknown(topic.indexes)) for topic in unknown),
    ]


def _unknown(indexes: Sequence[int]) -> list[_Row]:
    return [(index, _NONE, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]


def _response(name: str, topic_id: Uuid, rows: Sequence[_Row]) -> OffsetFetchResponseTopics:
    told = [(index, _of_topic(value, topic_id), code) for index, value, code in rows]
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                error_code=code,
            )
            for index, value, code in told
        ],
    )


def _of_topic(value: CommittedOffset, topic_id: Uuid) -> CommittedOffset:
    """Nothing, where it was committed of another topic of that name."""
    is_other = ZERO_UUID not in {value.topic_id, topic_id} and value.topic_id != topic_id
    return _NONE if is_other else value


def _one_group(
    call: Call,
    topics: list[_Topic] | None,
    said: Any | Refusal,  # noqa: ANN401 -- as above
) -> OffsetFetchResponse:
    # Before version 2 the partitions alone can say what went wrong.
    per_row = code_of(said) if call.version < _ERROR_AT_TOP_VERSION else ErrorCode.NONE
    rows = _by_topic(topics, said)
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


def _by_topic(
    topics: list[_Topic] | None,
    said: Any | Refusal,  # noqa: ANN401 -- as above
) -> dict[str, list[_Row]]:
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


ROUTE = Route(
    API,
    range(1, 11),
    offset_fetch,
    "only what the replicas have; many groups from v8, topic ids from v10",
)
