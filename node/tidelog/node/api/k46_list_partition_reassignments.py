"""ListPartitionReassignments (key 46), version 0: what is under way, as this broker's image has it.

Whoever started or cancelled one is answered when every live broker has it in its image.
"""

from collections.abc import Iterator

from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.messages.k46_list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_partition_reassignments(
    call: Call, request: ListPartitionReassignmentsRequest
) -> object | None:
    return in_parts(call, _listed(call.broker.image, request))


def _listed(image: MetadataImage, request: ListPartitionReassignmentsRequest) -> Parts:
    turn = Turn()
    topics: dict[str, OngoingTopicReassignment] = {}
    for topic, index in _asked(image, request):
        if turn.is_over():
            yield None
        # What does not exist is no error: nothing of it is under way either.
        row = None if topic is None else _row(image, topic, index)
        if topic is not None and row is not None:
            name = topic.name
            topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(row)
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def _asked(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicView | None, int]]:
    if request.topics is None:
        for topic in list(image.topics.values()):
            yield from ((topic, index) for index in range(len(topic.partitions)))
    else:
        for one in request.topics:
            known = image.names.get(one.name)
            yield from ((known, index) for index in one.partition_indexes)


def _row(image: MetadataImage, topic: TopicView, index: int) -> OngoingPartitionReassignment | None:
    """None where nothing is under way."""
    view = image.partition(topic.id, index)
    if view is None or not view.is_moving:
        return None
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(view.replicas),
        adding_replicas=[one for one in view.adding if one not in view.removing],
        removing_replicas=list(view.removing),
    )


ROUTE = Route(API, range(1), list_partition_reassignments, "what is under way")
