"""What a partition and a replica can be, and what may become of what: two tables.

No state is stored: it follows from the image, so it cannot contradict it. Each record of the log
is a number of steps; a step that the tables do not have is a bug of ours, and ends the process
before anyone hears of it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerUnfenced,
    BrokerUnregistered,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    TopicDeleted,
)


class PartitionState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()
    """Its replicas are placed."""
    ONLINE = auto()
    """Someone leads it."""
    OFFLINE = auto()
    """Nobody does."""


class ReplicaState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()
    """Placed on a broker that makes it when it hears of it."""
    ONLINE = auto()
    OFFLINE = auto()
    """Its broker is fenced, or the partition is about to go."""
    REASSIGNMENT_STARTED = auto()
    """It comes, or goes, while the others lead and follow."""
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()
    """Its broker is fenced: it deletes what is left when it comes back and finds that it is no
    replica."""


P, R = PartitionState, ReplicaState
PARTITION_STEPS: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    P.NON_EXISTENT: frozenset({P.NEW}),
    P.NEW: frozenset({P.ONLINE, P.OFFLINE}),
    P.ONLINE: frozenset({P.ONLINE, P.OFFLINE}),
    P.OFFLINE: frozenset({P.ONLINE, P.OFFLINE, P.NON_EXISTENT}),
}
REPLICA_STEPS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    R.NON_EXISTENT: frozenset({R.NEW}),
    R.NEW: frozenset({R.ONLINE, R.OFFLINE, R.REASSIGNMENT_STARTED}),
    R.ONLINE: frozenset({R.ONLINE, R.OFFLINE, R.REASSIGNMENT_STARTED}),
    R.OFFLINE: frozenset(
        {R.ONLINE, R.OFFLINE, R.REASSIGNMENT_STARTED, R.DELETION_STARTED, R.DELETION_INELIGIBLE}
    ),
    R.REASSIGNMENT_STARTED: frozenset({R.REASSIGNMENT_STARTED, R.ONLINE, R.OFFLINE}),
    R.DELETION_STARTED: frozenset({R.DELETION_SUCCESSFUL, R.DELETION_INELIGIBLE}),
    R.DELETION_SUCCESSFUL: frozenset({R.NON_EXISTENT}),
    R.DELETION_INELIGIBLE: frozenset({R.ONLINE, R.OFFLINE}),
}


def partition_state(view: PartitionView | None) -> PartitionState:
    if view is None:
        return P.NON_EXISTENT
    return P.OFFLINE if view.leader == NO_LEADER else P.ONLINE


def replica_state(
    image: MetadataImage, view: PartitionView | None, broker: BrokerId
) -> ReplicaState:
    if view is None or broker not in view.replicas:
        return R.NON_EXISTENT
    if broker in view.adding or broker in view.removing:
        return R.REASSIGNMENT_STARTED
    return R.ONLINE if image.is_alive(broker) else R.OFFLINE


def check_steps(image: MetadataImage, record: MetadataRecord) -> None:
    """Before the image takes the record: every step it makes is in the tables."""
    for states in partition_paths(image, record):
        for before, after in pairwise(states):
            assert after in PARTITION_STEPS[before], (before, after, record)
    for paths in replica_paths(image, record):
        for was, becomes in pairwise(paths):
            assert becomes in REPLICA_STEPS[was], (was, becomes, record)


def partition_paths(
    image: MetadataImage, record: MetadataRecord
) -> Iterator[tuple[PartitionState, ...]]:
    """The states that partitions pass through with this record."""
    match record:
        case PartitionCreated():
            before = partition_state(image.partition(record.topic, record.partition))
            yield before, P.NEW, partition_state(record.view)
        case PartitionChanged():
            before = partition_state(image.partition(record.topic, record.partition))
            yield before, partition_state(record.view)
        case TopicDeleted():
            for view in image.topics[record.topic].partitions:
                yield partition_state(view), P.OFFLINE, P.NON_EXISTENT
        case _:
            pass


def replica_paths(
    image: MetadataImage, record: MetadataRecord
) -> Iterator[tuple[ReplicaState, ...]]:
    """The states that replicas pass through with this record; all of one broker go together."""
    match record:
        case PartitionCreated() | PartitionChanged():
            yield from _changed(image, record)
        case TopicDeleted():
            yield from _deleted(image, image.topics[record.topic])
        case BrokerFenced() | BrokerUnfenced():
            alive = image.is_alive(record.broker)
            becomes = R.OFFLINE if isinstance(record, BrokerFenced) else R.ONLINE
            yield (R.ONLINE if alive else R.OFFLINE), becomes
        case BrokerUnregistered():
            yield (R.ONLINE if image.is_alive(record.broker) else R.OFFLINE), R.OFFLINE
        case _:
            pass


def _changed(
    image: MetadataImage, record: PartitionCreated | PartitionChanged
) -> Iterator[tuple[ReplicaState, ...]]:
    before, after = image.partition(record.topic, record.partition), record.view
    if before is not None and _placement(before) == _placement(after):
        return  # a new leader or ISR is no news to where the replicas are
    for broker in after.replicas:
        was = replica_state(image, before, broker)
        becomes = replica_state(image, after, broker)
        yield (was, R.NEW, becomes) if was is R.NON_EXISTENT else (was, becomes)
    for broker in () if before is None else before.replicas:
        if broker not in after.replicas:
            yield _gone(image, replica_state(image, before, broker), broker)


def _placement(view: PartitionView) -> tuple[tuple[BrokerId, ...], ...]:
    return (view.replicas, view.adding, view.removing)


def _deleted(image: MetadataImage, topic: TopicView) -> Iterator[tuple[ReplicaState, ...]]:
    for view in topic.partitions:
        for broker in view.replicas:
            yield _gone(image, replica_state(image, view, broker), broker)


def _gone(image: MetadataImage, was: ReplicaState, broker: BrokerId) -> tuple[ReplicaState, ...]:
    """A replica that the cluster has no more."""
    path = (was,) if was is R.OFFLINE else (was, R.OFFLINE)
    if not image.is_alive(broker):
        return (*path, R.DELETION_INELIGIBLE)
    # It is deleted with the record itself: nothing waits for its broker to have done so.
    return (*path, R.DELETION_STARTED, R.DELETION_SUCCESSFUL, R.NON_EXISTENT)
