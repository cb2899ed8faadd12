"""What people are told of committed records: elections, in-sync replicas, fencing. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from tidelog.coordinator.controller.recovery import Window
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.node.ipc.events import Happening, Kind
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerUnfenced,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
)

Windows = Mapping[PartitionChanged, Window]
"""What was lost by each election that may have cost its partition records."""


def happenings(
    before: MetadataImage, records: Iterable[MetadataRecord], lost: Windows
) -> Iterator[Happening]:
    """What the records change in the image as it was before them."""
    changed: dict[tuple[Uuid, int], PartitionView] = {}
    for record in records:
        match record:
            case PartitionCreated(topic, partition, view):
                changed[topic, partition] = view
                values = (view.replicas, view.isr, view.leader, view.leader_epoch)
                yield Happening(Kind.CREATED, topic, partition, values)
            case PartitionChanged(topic, partition, view) as change:
                old = changed.get((topic, partition)) or before.topics[topic].partitions[partition]
                changed[topic, partition] = view
                yield from _change(topic, partition, old, view)
                if change in lost:
                    yield _lossy(change, lost[change])
            case BrokerFenced(broker, epoch):
                yield Happening(Kind.BROKER_FENCED, ZERO_UUID, -1, (broker, epoch))
            case BrokerUnfenced(broker, epoch):
                yield Happening(Kind.BROKER_UNFENCED, ZERO_UUID, -1, (broker, epoch))
            case _:
                pass


def _change(
    topic: Uuid, partition: int, old: PartitionView, new: PartitionView
) -> Iterator[Happening]:
    """The election last: it is made among those who are in sync then."""
    if _placement(new) != _placement(old):
        moved = (new.replicas, new.adding, new.removing, old.replicas, new.partition_epoch)
        yield Happening(Kind.REASSIGNED, topic, partition, moved)
    if set(new.isr) != set(old.isr) or set(new.elr) != set(old.elr):
        values = (new.isr, old.isr, new.elr, new.partition_epoch)
        yield Happening(Kind.ISR_CHANGED, topic, partition, values)
    if new.leader != old.leader or new.leader_epoch != old.leader_epoch:
        elected = (new.leader, new.leader_epoch, old.leader, new.isr, new.elr)
        yield Happening(Kind.ELECTED, topic, partition, elected)


def _lossy(election: PartitionChanged, lost: Window) -> Happening:
    values = (election.view.leader, election.view.leader_epoch, lost.records, lost.start)
    return Happening(Kind.RECORDS_LOST, election.topic, election.partition, values)


def _placement(view: PartitionView) -> tuple[object, ...]:
    return (view.replicas, view.adding, view.removing)
