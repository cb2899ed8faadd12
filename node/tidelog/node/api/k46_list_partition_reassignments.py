"""ListPartitionReassignments (key 46), version 0: what is under way, as this broker's image has it.

Whoever started or cancelled one is answered when every live broker has it in its image.
"""

from collections.abc import Iterable

from tidelog.node.api.call import Call
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
) -> ListPartitionReassignmentsResponse:
    image = call.broker.image
    if request.topics is None:
        topics = [_ongoing(image, one, range(len(one.partitions))) for one in image.topics.values()]
    else:
        # What does not exist is no error: nothing of it is under way either.
        topics = [
            _ongoing(image, image.names[one.name], one.partition_indexes)
            for one in request.topics
            if one.name in image.names
        ]
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[one for one in topics if one.partitions]
    )


def _ongoing(
    image: MetadataImage, topic: TopicView, partitions: Iterable[int]
) -> OngoingTopicReassignment:
    views = ((index, image.partition(topic.id, index)) for index in partitions)
    rows = [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(view.replicas),
            adding_replicas=[one for one in view.adding if one not in view.removing],
            removing_replicas=list(view.removing),
        )
        for index, view in views
        if view is not None and view.is_moving
    ]
    return OngoingTopicReassignment(name=topic.name, partitions=rows)


ROUTE = Route(API, range(1), list_partition_reassignments, "what is under way")
