"""What leaders want written down of who is in sync: taken or refused, one partition at a time.

A leader sees its followers, the controller sees lives of brokers. A change counts only if both mean
the same leader, the same last change, and of every member the life that is there now.
"""

from collections.abc import Sequence

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.requests import AlterIsr, TellDamage, TellNoRoom
from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import BrokerId, Uuid
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import PartitionChanged, PartitionView


def alter_isr(
    image: MetadataImage, rules: RulesOf, request: AlterIsr
) -> tuple[tuple[PartitionChanged, ...], tuple[ErrorCode, ...]]:
    """What is taken, and what became of each change, in the order of the request."""
    broker = image.brokers.get(request.broker)
    if broker is None or broker.fenced or broker.incarnation != request.incarnation:
        raise Rejected(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {request.broker} leads nothing in this life"
        )
    taken: dict[tuple[Uuid, int], PartitionView] = {}
    outcomes = []
    for change in request.changes:
        place = (change.topic, change.partition)
        view = taken.get(place) or image.partition(*place)
        outcome = _fault(image, broker.id, view, change)
        if outcome is ErrorCode.NONE:
            assert view is not None
            topic_rules = rules(image.topics[change.topic])
            taken[place] = elections.in_sync_changed(
                view, _members(change), image.is_active, topic_rules
            )
        outcomes.append(outcome)
    records = tuple(PartitionChanged(*place, view) for place, view in taken.items())
    return records, tuple(outcomes)


def damaged(
    image: MetadataImage, rules: RulesOf, request: TellDamage, *, joins: bool
) -> tuple[PartitionChanged, ...]:
    """Replicas whose files are no good are taken out of the ISR and the eligible ones; the leader
    epoch rises, so that nothing counts any more that they vouched for. What is told of another
    state of a partition is old: it is told again.

    Not so of a broker that is not let in yet, if it is trusted. Its image may be older than what
    was decided, but its log is no better since: nobody takes it in sync before. It must be heard
    first, else it is let in as one that has everything.
    """
    broker = image.brokers.get(request.broker)
    if broker is None or broker.incarnation != request.incarnation:
        return ()
    records = {}
    for log in request.logs:
        view = image.partition(log.topic, log.partition)
        if view is None:
            continue
        is_old = view.partition_epoch != log.partition_epoch
        if is_old and not (joins and view.trusts(broker.id)):
            continue
        rule = rules(image.topics[log.topic])
        after = elections.log_damaged(view, broker.id, image.is_active, rule, usable=log.usable)
        if after is not None:
            records[log.topic, log.partition] = PartitionChanged(log.topic, log.partition, after)
    return tuple(records.values())


def without_room(
    image: MetadataImage, rules: RulesOf, request: TellNoRoom
) -> tuple[PartitionChanged, ...]:
    """Leaders whose disk is full hand over to those who have room. What is told of another state of
    a partition is old: if it is still so, it is told again."""
    broker = image.brokers.get(request.broker)
    if broker is None or broker.fenced or broker.incarnation != request.incarnation:
        return ()
    records = {}
    for place in request.places:
        view = image.partition(place.topic, place.partition)
        if view is None or view.partition_epoch != place.partition_epoch:
            continue
        if view.leader != broker.id:
            continue
        rule = rules(image.topics[place.topic])
        after = elections.leader_without_room(view, place.others, image.is_active, rule)
        if after is not None:
            key = place.topic, place.partition
            records[key] = PartitionChanged(place.topic, place.partition, after)
    return tuple(records.values())


def _fault(
    image: MetadataImage, leader: BrokerId, view: PartitionView | None, change: IsrChange
) -> ErrorCode:
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    of_another_state = _of_another_state(leader, view, change)
    if of_another_state is not ErrorCode.NONE:
        return of_another_state
    if not _is_possible(view, _members(change)):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, *member) for member in change.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _of_another_state(leader: BrokerId, view: PartitionView, change: IsrChange) -> ErrorCode:
    if change.leader_epoch > view.leader_epoch or change.partition_epoch > view.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # it has seen records that this controller has not
    if change.leader_epoch < view.leader_epoch or view.leader != leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    if change.partition_epoch < view.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _members(change: IsrChange) -> tuple[BrokerId, ...]:
    return tuple(broker for broker, _ in change.isr)


def _is_possible(view: PartitionView, members: Sequence[BrokerId]) -> bool:
    distinct = set(members)
    return (
        len(distinct) == len(members) and distinct <= set(view.replicas) and view.leader in distinct
    )


def _is_eligible(image: MetadataImage, member: BrokerId, epoch: int) -> bool:
    """Alive, not about to stop, and in the very life that the leader saw catch up: one that began
    since may have come back with less."""
    return image.is_active(member) and image.brokers[member].epoch == epoch
