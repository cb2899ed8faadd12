"""FindCoordinator (key 10), versions 0-6. v1 key type, v3 flexible, v4 many keys at once."""

from collections.abc import Mapping
from typing import Final

from tidelog.kernel.ids import NO_LEADER
from tidelog.node.api import internal_topics
from tidelog.node.api.call import Call
from tidelog.node.api.internal_topics import InternalTopic
from tidelog.node.api.parts import Parts, Turn, cost_of_name, each_once, go_on, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.groups.placement import partition_of
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k10_find_coordinator import (
    API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_VERSION: Final = 4
_TOPICS: Final[Mapping[int, InternalTopic]] = {0: internal_topics.OFFSETS, 1: internal_topics.STATE}
"""By what is looked for."""


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> object | None:
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic.name in call.broker.image.names:
        return in_parts(call, _answer(call, request))
    internal_topics.create(call, topic, lambda: go_on(call, _answer(call, request)))
    return None


def _answer(call: Call, request: FindCoordinatorRequest) -> Parts:
    if call.version < _BATCHED_VERSION:
        row = _row(call.broker.image, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=row.error_code,
            error_message=row.error_message,
            node_id=row.node_id,
            host=row.host,
            port=row.port,
        )
    turn, rows = Turn(), list[Coordinator]()
    for key in (yield from each_once(request.coordinator_keys, turn)):
        if turn.is_over(cost_of_name(key)):
            yield None
        rows.append(_row(call.broker.image, request.key_type, key))
    return FindCoordinatorResponse(coordinators=rows)


def _row(image: MetadataImage, key_type: int, key: str) -> Coordinator:
    try:
        at = _coordinator(image, key_type, key)
    except Rejected as refused:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=refused.code,
            error_message=refused.detail or None,
        )
    return Coordinator(
        key=key, node_id=at.id, host=at.host, port=at.port, error_code=0, error_message=None
    )


def _coordinator(image: MetadataImage, key_type: int, key: str) -> BrokerView:
    internal = _TOPICS.get(key_type)
    if internal is None:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"key type {key_type} is unknown")
    topic = image.names.get(internal.name)
    if topic is None:
        raise Rejected(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{internal.name} is being made")
    leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
    if leader == NO_LEADER or not image.is_alive(leader):
        raise Rejected(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"nobody leads the {internal.whose}'s {internal.name} now",
        )
    return image.brokers[leader]


ROUTE = Route(API, range(7), find_coordinator, "groups and transactional ids")
