"""CreatePartitions: more partitions for a topic that lives. Their number never falls.

The records of the partitions that are there stay where they are, so keys may change their
partition: that is for whoever asks to know.
"""

from collections import Counter
from collections.abc import Sequence

from tidelog.coordinator.controller.elections import new_partition
from tidelog.coordinator.controller.placement import check_replicas, place_more
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.limits import (
    PARTITIONS_IN_CLUSTER_MAX,
    PARTITIONS_PER_DECISION_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.wire.metadata_records import MetadataRecord, PartitionCreated, PartitionView


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest
) -> tuple[tuple[MetadataRecord, ...], CreatePartitionsResponse]:
    """One topic's failure never touches its neighbours."""
    times = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            _check_once(times[topic.name])
            records += _grown(image, topic, taken=len(records))
        except Rejected as refused:
            result.error_code = refused.code
            result.error_message = refused.detail or None
    response = CreatePartitionsResponse(results=list(results.values()))
    return () if request.validate_only else tuple(records), response


def _check_once(times: int) -> None:
    if times > 1:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


def _grown(
    image: MetadataImage, asked: CreatePartitionsTopic, *, taken: int
) -> list[PartitionCreated]:
    topic = image.names.get(asked.name)
    if topic is None:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if topic.name in INTERNAL_TOPICS:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"The partitions of internal topic {topic.name} cannot be increased.",
        )
    _check_count(image, topic, asked, taken)
    first = len(topic.partitions)
    if asked.assignments is None:
        views = place_more(topic, image, range(first, asked.count))
    else:
        views = _assigned(image, topic, asked.assignments)
    return [PartitionCreated(topic.id, first + n, view) for n, view in enumerate(views)]


def _check_count(
    image: MetadataImage, topic: TopicView, asked: CreatePartitionsTopic, taken: int
) -> None:
    there = len(topic.partitions)
    added = asked.count - there
    if added == 0:
        raise _bad_count(f"Topic already has {there} partition(s).")
    if added < 0:
        raise _bad_count(
            f"The topic {topic.name} currently has {there} partition(s); {asked.count} would not "
            "be an increase."
        )
    if asked.count > PARTITIONS_PER_TOPIC_MAX:
        raise _bad_count(
            f"{asked.count} partitions asked for, a topic has at most {PARTITIONS_PER_TOPIC_MAX}."
        )
    if taken + added > PARTITIONS_PER_DECISION_MAX:
        raise _bad_count("Excessively large number of partitions per request.")
    if image.partitions_count + taken + added > PARTITIONS_IN_CLUSTER_MAX:
        raise _bad_count(
            f"The cluster has {image.partitions_count + taken} partitions, {added} more would "
            f"pass its limit of {PARTITIONS_IN_CLUSTER_MAX}."
        )
    if asked.assignments is not None and len(asked.assignments) != added:
        raise Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified.",
        )


def _assigned(
    image: MetadataImage, topic: TopicView, assignments: Sequence[CreatePartitionsAssignment]
) -> list[PartitionView]:
    factor = len(topic.partitions[0].target)
    views = []
    for number, assignment in enumerate(assignments, len(topic.partitions)):
        brokers = tuple(BrokerId(broker) for broker in assignment.broker_ids)
        check_replicas(brokers, image, factor)
        if not any(image.is_active(broker) for broker in brokers):
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{number} are fenced or in controlled shutdown.",
            )
        views.append(new_partition(brokers, image.is_active))
    return views


def _bad_count(detail: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_PARTITIONS, detail)
