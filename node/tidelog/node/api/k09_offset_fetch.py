"""OffsetFetch (key 9), versions 1-10. v2 all topics, v5 leader epochs, v7 stable offsets.

v8 many groups at once. v10 topic ids: what was committed of a topic that had the name before is
not told of its successor.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Uuid
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_in_parts, code_of
from tidelog.node.api.parts import Parting, Parts, Turn, cost_of_name, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.groups.records import CommittedOffset
from tidelog.node.groups.requests import FetchOffsets, OffsetsFound
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k09_offset_fetch import (
    API,
    OffsetFetchRequest,
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
_AnyTopic = OffsetFetchRequestTopic | OffsetFetchRequestTopics
_NONE: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
_INDEXES_PER_ROW: Final = 16
"""That are merged while one other row is done."""


class _Topic(NamedTuple):
    """One that was asked for."""

    name: str | None
    """None: nobody knows a topic of this id."""
    id: Uuid
    """Zeros where the client names it."""
    indexes: Sequence[int]


class _Group(NamedTuple):
    """One that was asked for."""

    name: str
    topics: list[_AnyTopic] | None
    member_id: str | None = None
    member_epoch: int = -1


_Topics = list[_Topic] | None
"""None: all that the group has committed."""


def offset_fetch(call: Call, request: OffsetFetchRequest) -> object | None:
    return in_parts(call, _asked_in_parts(call, request))


def _asked_in_parts(call: Call, request: OffsetFetchRequest) -> Parts:
    asked: dict[str, _Topics] = {}
    questions: list[tuple[str, FetchOffsets]] = []
    done = partial(_said, call, asked, {})
    turn = Turn()
    for one in (yield from _merged(call, request, turn)):
        if turn.is_over(cost_of_name(one.name)):
            yield None
        topics = asked[one.name] = yield from _topics(call, one.topics, turn)
        wanted = yield from _wanted(topics, turn)
        question = FetchOffsets(
            one.name, one.member_id, one.member_epoch, wanted, request.require_stable
        )
        questions.append((one.name, question))
    if not asked:
        return OffsetFetchResponse(groups=[])
    if call.version < _MANY_GROUPS_VERSION and "" in asked:
        done("", Refusal(ErrorCode.INVALID_GROUP_ID))
        return None
    return (yield from ask_in_parts(call, questions, done))


def _said(
    call: Call,
    asked: Mapping[str, _Topics],
    said: dict[str, Any],
    name: str,
    one: Any | Refusal,  # noqa: ANN401 -- OffsetsFound, or why not
) -> None:
    """A group has answered; the last of them has the whole answer made."""
    said[name] = one
    if len(said) == len(asked) and not call.abandoned:
        answer = in_parts(call, _told_in_parts(call, asked, said))
        if answer is not None:
            call.answer(answer)


def _merged(call: Call, request: OffsetFetchRequest, turn: Turn) -> Parting[Iterable[_Group]]:
    """Each group once, however often it stands there: else a short request for all that a group has
    committed would be answered with gigabytes.
    """
    if call.version < _MANY_GROUPS_VERSION:
        return [_Group(request.group_id, _own(request.topics))]
    found: dict[str, _Group] = {}
    for group in request.groups:
        if turn.is_over():
            yield None
        first = found.get(group.group_id)
        if first is None:
            found[group.group_id] = _Group(
                group.group_id, _own(group.topics), group.member_id, group.member_epoch
            )
        elif group.topics is None or first.topics is None:
            found[group.group_id] = first._replace(topics=None)
        else:
            first.topics.extend(group.topics)
    return found.values()


def _own(topics: Iterable[_AnyTopic] | None) -> list[_AnyTopic] | None:
    """A list that more may be added to."""
    return None if topics is None else list(topics)


def _topics(call: Call, topics: Iterable[_AnyTopic] | None, turn: Turn) -> Parting[_Topics]:
    """Each topic once, and each partition: what is committed carries a text of its own."""
    if topics is None:
        return None
    found: dict[tuple[str | None, Uuid], dict[int, None]] = {}
    for topic in topics:
        name, topic_id, indexes = _topic(call, topic)
        if turn.is_over(1 + len(indexes) // _INDEXES_PER_ROW):
            yield None
        found.setdefault((name, topic_id), {}).update(dict.fromkeys(indexes))
    told: list[_Topic] = []
    for (name, topic_id), once in found.items():
        if turn.is_over(1 + len(once) // _INDEXES_PER_ROW):
            yield None
        told.append(_Topic(name, topic_id, list(once)))
    return told


def _topic(call: Call, topic: _AnyTopic) -> _Topic:
    if call.version < _IDS_VERSION or isinstance(topic, OffsetFetchRequestTopic):
        return _Topic(topic.name, ZERO_UUID, topic.partition_indexes)
    known = call.broker.image.name_of(topic.topic_id) or None
    return _Topic(known, topic.topic_id, topic.partition_indexes)


def _wanted(topics: _Topics, turn: Turn) -> Parting[tuple[tuple[str, int], ...] | None]:
    if topics is None:
        return None
    wanted: list[tuple[str, int]] = []
    for pair in _pairs(topics):
        if turn.is_over():
            yield None
        wanted.append(pair)
    return tuple(wanted)


def _pairs(topics: Sequence[_Topic] | None) -> Iterator[tuple[str, int]]:
    for topic in topics or ():
        if topic.name is not None:
            yield from ((topic.name, index) for index in topic.indexes)


def _told_in_parts(call: Call, asked: Mapping[str, _Topics], said: Mapping[str, Any]) -> Parts:
    turn = Turn()
    if call.version < _MANY_GROUPS_VERSION:
        ((name, topics),) = asked.items()
        return (yield from _one_group(call, topics, said[name], turn))
    groups: list[OffsetFetchResponseGroup] = []
    for name, topics in asked.items():
        if turn.is_over():
            yield None
        told = yield from _group(call, topics, said[name], turn)
        code = code_of(said[name])
        groups.append(OffsetFetchResponseGroup(group_id=name, topics=told, error_code=code))
    return OffsetFetchResponse(groups=groups)


def _group(
    call: Call,
    topics: _Topics,
    said: Any | Refusal,  # noqa: ANN401 -- OffsetsFound, or why not
    turn: Turn,
) -> Parting[list[OffsetFetchResponseTopics]]:
    """Of all topics that a group has committed, those that are gone have no id and are left out."""
    # Kafka lists no partition where it refuses. librdkafka asks again for those that are listed
    # (STALE_MEMBER_EPOCH, in the middle of a rebalance), and for others never.
    ids = _ids(call, topics)
    found: dict[str, OffsetFetchResponseTopics] = {}
    for name, index, value, code in _rows(topics, said):
        if turn.is_over():
            yield None
        topic_id = ids(name)
        if topic_id is None:
            continue
        topic = found.get(name)
        if topic is None:
            topic = OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=[])
            found[name] = topic
        topic.partitions.append(_partition(index, _of_topic(value, topic_id), code))
    return [*found.values(), *(yield from _unknown(topics, turn))]


def _ids(call: Call, topics: _Topics) -> Callable[[str], Uuid | None]:
    """The id of a topic that rows are told of."""
    if call.version < _IDS_VERSION:
        return lambda _name: ZERO_UUID
    if topics is not None:
        return {topic.name: topic.id for topic in topics if topic.name is not None}.get
    names = call.broker.image.names
    return lambda name: names[name].id if name in names else None


def _unknown(topics: _Topics, turn: Turn) -> Parting[list[OffsetFetchResponseTopics]]:
    """Of those whose id nobody knows."""
    told: list[OffsetFetchResponseTopics] = []
    for topic in topics or ():
        if topic.name is not None:
            continue
        row = OffsetFetchResponseTopics(name="", topic_id=topic.id, partitions=[])
        told.append(row)
        for index in topic.indexes:
            if turn.is_over():
                yield None
            row.partitions.append(_partition(index, _NONE, ErrorCode.UNKNOWN_TOPIC_ID))
    return told


def _partition(
    index: int, value: CommittedOffset, code: ErrorCode
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=code,
    )


def _of_topic(value: CommittedOffset, topic_id: Uuid) -> CommittedOffset:
    """Nothing, where it was committed of another topic of that name."""
    is_other = ZERO_UUID not in {value.topic_id, topic_id} and value.topic_id != topic_id
    return _NONE if is_other else value


def _one_group(
    call: Call,
    topics: _Topics,
    said: Any | Refusal,  # noqa: ANN401 -- as above
    turn: Turn,
) -> Parting[OffsetFetchResponse]:
    # Before version 2 the partitions alone can say what went wrong.
    per_row = code_of(said) if call.version < _ERROR_AT_TOP_VERSION else ErrorCode.NONE
    found: dict[str, OffsetFetchResponseTopic] = {}
    for name, index, value, code in _rows(topics, said):
        if turn.is_over():
            yield None
        topic = found.get(name)
        if topic is None:
            topic = found[name] = OffsetFetchResponseTopic(name=name, partitions=[])
        topic.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                error_code=code or per_row,
            )
        )
    return OffsetFetchResponse(topics=list(found.values()), error_code=code_of(said))


def _rows(
    topics: _Topics,
    said: Any | Refusal,  # noqa: ANN401 -- as above
) -> Iterator[tuple[str, int, CommittedOffset, ErrorCode]]:
    """What was found, and of a refusal a row for each that was asked for."""
    if isinstance(said, Refusal):
        for name, index in _pairs(topics):
            yield name, index, _NONE, ErrorCode.NONE
        return
    assert isinstance(said, OffsetsFound)
    for name, index, found in said.rows:
        if isinstance(found, ErrorCode):
            yield name, index, _NONE, found
        else:
            yield name, index, found or _NONE, ErrorCode.NONE


ROUTE = Route(
    API,
    range(1, 11),
    offset_fetch,
    "only what the replicas have; many groups from v8, topic ids from v10",
)
