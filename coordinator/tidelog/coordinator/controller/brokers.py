"""Lives of brokers: registration, fencing, and what it does to the partitions.

A broker registers fenced. Once it has applied its own registration, so that it knows every topic
before clients are sent to it, it is unfenced and takes the partitions that wait for it.
"""

from collections.abc import Callable

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.requests import RegisterBroker
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Offset
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    MetadataRecord,
    PartitionChanged,
    PartitionView,
)

Change = Callable[[PartitionView], PartitionView | None]


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


def register(image: MetadataImage, request: RegisterBroker) -> tuple[MetadataRecord, ...]:
    """A new life begins; whatever its last one led, it leads no more."""
    known = image.brokers.get(request.broker)
    fenced = () if known is None else fence(image, known)
    return (
        *fenced,
        BrokerRegistered(
            broker=request.broker,
            incarnation=request.incarnation,
            epoch=Offset(image.offset + len(fenced) + 1),
            host=request.host,
            port=request.port,
            rack=request.rack,
            log_dirs=request.log_dirs,
            stopped=request.stopped,
        ),
    )


def fence(image: MetadataImage, broker: BrokerView) -> tuple[MetadataRecord, ...]:
    """Clients are sent elsewhere from now on; nothing where it is fenced already."""
    if broker.fenced:
        return ()

    def alive(other: BrokerId) -> bool:
        return other != broker.id and image.is_alive(other)

    return (
        BrokerFenced(broker.id, broker.epoch),
        *_changes(image, lambda view: elections.broker_lost(view, broker.id, alive)),
    )


def unfence(image: MetadataImage, broker: BrokerView) -> tuple[MetadataRecord, ...]:
    assert broker.fenced, broker

    def alive(other: BrokerId) -> bool:
        return other == broker.id or image.is_alive(other)

    return (
        BrokerUnfenced(broker.id, broker.epoch),
        *_changes(image, lambda view: elections.broker_joined(view, alive)),
    )


def fence_all(image: MetadataImage) -> tuple[MetadataRecord, ...]:
    """None of these brokers lives any more: the machine or the supervisor was restarted."""
    fenced = tuple(
        BrokerFenced(broker.id, broker.epoch)
        for broker in image.brokers.values()
        if not broker.fenced
    )
    return (*fenced, *_changes(image, elections.everyone_lost)) if fenced else ()


def _changes(image: MetadataImage, change: Change) -> list[PartitionChanged]:
    return [
        PartitionChanged(topic.id, partition, after)
        for topic in image.topics.values()
        for partition, view in enumerate(topic.partitions)
        for after in [change(view)]
        if after is not None
    ]
