"""ElectLeaders: someone wants other leaders, the preferred ones or any at all."""

from collections.abc import Iterator
from enum import IntEnum

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.recovery import Recovery
from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import NO_LEADER
from tidelog.kernel.texts import quoted
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.metadata_records import PartitionChanged, PartitionView


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    image: MetadataImage, rules: RulesOf, recovery: Recovery, request: ElectLeadersRequest
) -> tuple[tuple[PartitionChanged, ...], ElectLeadersResponse]:
    """Each partition for itself; where none is named, all of them, and those that need no election
    are left out of the answer."""
    election = _Election(image, rules, recovery, _kind(request))
    rows = {
        name: [election.row(name, partition) for partition in partitions]
        for name, partitions in _asked(image, request)
    }
    if request.topic_partitions is None:
        rows = {name: [row for row in some if _is_news(row)] for name, some in rows.items()}
    results = [
        ReplicaElectionResult(topic=name, partition_result=some)
        for name, some in rows.items()
        if some
    ]
    return tuple(election.records), ElectLeadersResponse(replica_election_results=results)


def _kind(request: ElectLeadersRequest) -> ElectionType:
    try:
        return ElectionType(request.election_type)
    except ValueError:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}."
        ) from None


def _is_news(row: PartitionResult) -> bool:
    return row.error_code != ErrorCode.ELECTION_NOT_NEEDED


def _asked(image: MetadataImage, request: ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        for topic in image.topics.values():
            yield topic.name, list(range(len(topic.partitions)))
        return
    named: dict[str, list[int]] = {}
    for asked in request.topic_partitions:
        named.setdefault(asked.topic, []).extend(asked.partitions)
    yield from named.items()


class _Election:
    """One request, and what it has decided so far."""

    def __init__(
        self, image: MetadataImage, rules: RulesOf, recovery: Recovery, kind: ElectionType
    ) -> None:
        self.records: list[PartitionChanged] = []
        self._image = image
        self._rules = rules
        self._recovery = recovery
        self._kind = kind
        self._done: set[tuple[str, int]] = set()

    def row(self, name: str, partition: int) -> PartitionResult:
        code, detail = self._decide(name, partition)
        return PartitionResult(partition_id=partition, error_code=code, error_message=detail)

    def _decide(self, name: str, partition: int) -> tuple[ErrorCode, str | None]:
        topic = self._image.names.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {quoted(name)}"
        view = self._image.partition(topic.id, partition)
        if view is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
        if self._is_not_needed(view) or (name, partition) in self._done:
            return ErrorCode.ELECTION_NOT_NEEDED, None
        after = self._elect(topic, partition, view)
        if after is None:
            return self._unavailable, None
        self._done.add((name, partition))
        self.records.append(PartitionChanged(topic.id, partition, after))
        return ErrorCode.NONE, None

    def _elect(self, topic: TopicView, partition: int, view: PartitionView) -> PartitionView | None:
        rule, fit = self._rules(topic), self._image.is_active
        if self._kind is ElectionType.PREFERRED:
            return elections.preferred_wanted(view, fit, rule)
        joined = elections.broker_joined(view, fit, rule)
        place = (topic.id, partition)
        return joined or self._recovery.best_elected(place, view, fit, rule)

    def _is_not_needed(self, view: PartitionView) -> bool:
        if self._kind is ElectionType.PREFERRED:
            return view.leader == view.replicas[0]
        return view.leader != NO_LEADER

    @property
    def _unavailable(self) -> ErrorCode:
        if self._kind is ElectionType.PREFERRED:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
