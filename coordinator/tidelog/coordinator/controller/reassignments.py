"""AlterPartitionReassignments: other replicas for partitions, or the end of what is under way."""

from collections.abc import Iterator, Sequence

from tidelog.coordinator.controller import reassigning
from tidelog.coordinator.controller.placement import check_replicas
from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import BrokerId, Uuid
from tidelog.kernel.limits import PARTITIONS_PER_DECISION_MAX
from tidelog.kernel.texts import quoted
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.metadata_records import PartitionChanged, PartitionView


def alter_reassignments(
    image: MetadataImage, rules: RulesOf, request: AlterPartitionReassignmentsRequest
) -> tuple[tuple[PartitionChanged, ...], AlterPartitionReassignmentsResponse]:
    """Each partition for itself: one that cannot be done hinders nobody."""
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_PER_DECISION_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    altering = _Altering(image, rules, factor_may_change=request.allow_replication_factor_change)
    responses = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[altering.row(topic.name, one) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return tuple(altering.records()), AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


class _Altering:
    """One request, and what it has decided so far."""

    def __init__(self, image: MetadataImage, rules: RulesOf, *, factor_may_change: bool) -> None:
        self._image = image
        self._rules = rules
        self._factor_may_change = factor_may_change
        self._taken: dict[tuple[Uuid, int], list[PartitionView]] = {}

    def records(self) -> Iterator[PartitionChanged]:
        for place, views in self._taken.items():
            for view in views:
                yield PartitionChanged(*place, view)

    def row(self, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
        row = ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_message=None
        )
        try:
            self._decide(name, asked)
        except Rejected as refused:
            row.error_code, row.error_message = refused.code, refused.detail or None
        return row

    def _decide(self, name: str, asked: ReassignablePartition) -> None:
        topic = self._image.names.get(name)
        if topic is None:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find a topic named {quoted(name)}.",
            )
        place = (topic.id, asked.partition_index)
        view = self._image.partition(*place)
        if view is None:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find partition {name}:{asked.partition_index}.",
            )
        known = self._taken.get(place, [view])[-1]
        after = (
            self._cancelled(topic, asked.partition_index, known)
            if asked.replicas is None
            else self._started(topic, known, [BrokerId(one) for one in asked.replicas])
        )
        if after is not None:
            self._taken.setdefault(place, []).append(after)

    def _cancelled(self, topic: TopicView, partition: int, view: PartitionView) -> PartitionView:
        if not view.is_moving:
            raise Rejected(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        after = reassigning.cancelled(view, self._image.is_active, self._rules(topic))
        if after is None:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition} because it "
                "would require an unclean leader election.",
            )
        return after

    def _started(
        self, topic: TopicView, view: PartitionView, target: Sequence[BrokerId]
    ) -> PartitionView | None:
        check_replicas(target, self._image, len(target))
        standing = len(view.target)
        if not self._factor_may_change and len(target) != standing:
            raise Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {standing} to {len(target)}",
            )
        return reassigning.started(view, target, self._image.is_active, self._rules(topic))
