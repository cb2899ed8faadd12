"""Lives of brokers: registration, fencing, and what it does to the partitions.

A broker registers fenced. Once it has applied its own registration, so that it knows every topic
before clients are sent to it, it is unfenced and takes the partitions that wait for it. A broker
that wants to stop gives away what it leads, and is fenced when the others know.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.elections import Rules
from tidelog.coordinator.controller.requests import RegisterBroker
from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import COORDINATOR_ID, NO_LEADER, BrokerId, Offset, Uuid
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    MetadataRecord,
    PartitionChanged,
    PartitionView,
    StopKind,
)

_LOST_FILES: Final = frozenset({StopKind.FIRST_START, StopKind.POWER_LOSS})
_Change = Callable[[PartitionView, Rules], PartitionView | None]


class _Place(NamedTuple):
    """One partition, and what its topic's settings say."""

    topic: Uuid
    partition: int
    view: PartitionView
    rule: Rules


def check_registration(image: MetadataImage, request: RegisterBroker) -> None:
    """Rejected where this broker must not join."""
    if request.cluster_id != image.cluster_id:
        raise Rejected(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker} is of cluster {request.cluster_id}, "
            f"this is cluster {image.cluster_id}",
        )
    if not 0 <= request.broker < COORDINATOR_ID:
        raise Rejected(ErrorCode.INVALID_REGISTRATION, f"{request.broker} is no broker's id")
    known = image.brokers.get(request.broker)
    if known is not None and request.incarnation < known.incarnation:
        raise Rejected(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker} has been started again since",
        )


def is_current(image: MetadataImage, request: RegisterBroker) -> bool:
    """The same life comes back, after the coordinator or the connection was lost."""
    known = image.brokers.get(request.broker)
    return known is not None and not known.fenced and known.incarnation == request.incarnation


def register(
    image: MetadataImage, rules: RulesOf, request: RegisterBroker
) -> tuple[MetadataRecord, ...]:
    """A new life begins; whatever its last one led, it leads no more. What it lost of its files it
    must get from others before it is trusted again; it keeps its places where it lost nothing of
    what it vouched for."""
    known = image.brokers.get(request.broker)
    fenced = () if known is None or known.fenced else (BrokerFenced(known.id, known.epoch),)
    registered = BrokerRegistered(
        broker=request.broker,
        incarnation=request.incarnation,
        epoch=Offset(image.offset + len(fenced) + 1),
        host=request.host,
        port=request.port,
        rack=request.rack,
        log_dirs=request.log_dirs,
        stopped=request.stopped,
    )
    # In one life it may register often: how it began was told the first time. Who was unregistered
    # may be trusted still with what it had.
    same_life = known is not None and known.incarnation == request.incarnation
    lost_files = not same_life and request.stopped in _LOST_FILES
    broker = request.broker

    def fit(other: BrokerId) -> bool:
        return other != broker and image.is_active(other)

    kept = {(topic, partition) for topic, those in request.kept for partition in those}

    def change(place: _Place) -> PartitionView | None:
        topic, partition, view, rule = place
        lost = elections.brokers_lost(view, {broker}, fit, rule)
        if not lost_files or (topic, partition) in kept:
            return lost
        return elections.files_lost(lost or view, broker, rule) or lost

    concerned = _places(image, rules, lambda view: broker in (*view.isr, *view.elr))
    return (*fenced, registered, *_changed(concerned, change))


def fence(
    image: MetadataImage, rules: RulesOf, brokers: Collection[BrokerView]
) -> tuple[MetadataRecord, ...]:
    """Clients are sent elsewhere from now on; nothing of those that are fenced already."""
    fenced = {broker.id: broker.epoch for broker in brokers if not broker.fenced}
    if not fenced:
        return ()

    def fit(other: BrokerId) -> bool:
        return other not in fenced and image.is_active(other)

    return (
        *(BrokerFenced(broker, epoch) for broker, epoch in fenced.items()),
        *_changes(
            image,
            rules,
            lambda view: not fenced.keys().isdisjoint(view.isr),
            lambda view, rule: elections.brokers_lost(view, fenced, fit, rule),
        ),
    )


def unfence(image: MetadataImage, rules: RulesOf, broker: BrokerView) -> tuple[MetadataRecord, ...]:
    assert broker.fenced, broker

    def fit(other: BrokerId) -> bool:
        return other == broker.id or image.is_active(other)

    return (
        BrokerUnfenced(broker.id, broker.epoch),
        *_changes(
            image,
            rules,
            lambda view: view.leader == NO_LEADER,
            lambda view, rule: elections.broker_joined(view, fit, rule),
        ),
    )


def unregister(
    image: MetadataImage, rules: RulesOf, broker_id: BrokerId
) -> tuple[MetadataRecord, ...]:
    """The cluster forgets a broker; what is placed on it stays there, and waits for it. One that
    lives is given up, and registers anew at once: Kafka does not refuse it either."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Rejected(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {broker_id} is not currently registered",
        )
    return (*fence(image, rules, [broker]), BrokerUnregistered(broker.id, broker.epoch))


def leave(
    image: MetadataImage, rules: RulesOf, broker: BrokerView, *, most: int
) -> tuple[MetadataRecord, ...]:
    """The next step of its way out: from so many partitions at a time, so that others are heard
    meanwhile. No record: nothing hangs on it any more."""
    said = () if broker.stopping else (BrokerStopping(broker.id, broker.epoch),)

    def fit(other: BrokerId) -> bool:
        return other != broker.id and image.is_active(other)

    changes = _changes(
        image,
        rules,
        lambda view: broker.id in view.isr,
        lambda view, rule: elections.broker_leaves(view, broker.id, fit, rule),
    )
    return (*said, *islice(changes, most))


def give_back(image: MetadataImage, rules: RulesOf, *, most: int) -> tuple[MetadataRecord, ...]:
    """Preferred replicas that are in sync lead again, so many at a time."""
    changes = _changes(
        image,
        rules,
        lambda view: view.leader not in {view.replicas[0], NO_LEADER},
        lambda view, rule: elections.preferred_wanted(view, image.is_active, rule),
    )
    return tuple(islice(changes, most))


def _changes(
    image: MetadataImage,
    rules: RulesOf,
    concerns: Callable[[PartitionView], bool],
    change: _Change,
) -> Iterator[PartitionChanged]:
    places = _places(image, rules, concerns)
    return _changed(places, lambda place: change(place.view, place.rule))


def _places(
    image: MetadataImage, rules: RulesOf, concerns: Callable[[PartitionView], bool]
) -> Iterator[_Place]:
    for topic in image.topics.values():
        rule = None
        for partition, view in enumerate(topic.partitions):
            if concerns(view):
                rule = rule or rules(topic)
                yield _Place(topic.id, partition, view, rule)


def _changed(
    places: Iterable[_Place], change: Callable[[_Place], PartitionView | None]
) -> Iterator[PartitionChanged]:
    for place in places:
        after = change(place)
        if after is not None:
            yield PartitionChanged(place.topic, place.partition, after)
