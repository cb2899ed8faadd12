"""What people are told of the coordinator's decisions, out of the records alone."""

from msgspec import structs

from harness.machines.controllers import topic
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.recovery import Window
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.coordinator.controller.story import happenings
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch, Incarnation, Offset, Uuid
from tidelog.node.ipc.events import Kind, fields_of
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import (
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
)

A, B = BrokerId(0), BrokerId(1)
TOPIC = Uuid(bytes(range(16)))


def running(*brokers: int) -> Conversation:
    talk = Conversation()
    talk.start_coordinator()
    for broker in brokers:
        talk.start_broker(broker)
    talk.settle()
    return talk


def test_a_death_is_told_as_fencing_then_in_sync_replicas_then_the_election() -> None:
    talk = running(0, 1, 2)
    talk.create(0, topic("t", 1, 3))
    talk.settle()
    (created,) = [one for one in talk.happened if one.kind is Kind.CREATED]
    fields = fields_of(created.kind, created.values)
    assert fields["replicas"] == fields["isr"] == [0, 1, 2]
    leader = fields["leader"]
    assert isinstance(leader, int)
    talk.happened.clear()
    talk.tell(BrokerLost(BrokerId(leader), Incarnation(1)))
    assert talk.happened == []  # nothing is so before it is on disk
    talk.force()
    fenced, isr, elected = talk.happened
    assert fenced.kind is Kind.BROKER_FENCED
    assert fields_of(fenced.kind, fenced.values)["broker"] == leader
    assert isr.kind is Kind.ISR_CHANGED
    told = fields_of(isr.kind, isr.values)
    assert told["before"] == [0, 1, 2]
    assert told["isr"] == sorted({0, 1, 2} - {leader})
    assert elected.kind is Kind.ELECTED
    told = fields_of(elected.kind, elected.values)
    assert (told["before"], told["leader_epoch"]) == (leader, 1)
    assert told["leader"] in {0, 1, 2} - {leader}
    assert (elected.topic, elected.partition) == (created.topic, 0)


def test_a_return_is_told_as_unfencing() -> None:
    talk = running(0, 1)
    talk.happened.clear()
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    talk.settle()
    assert [one.kind for one in talk.happened] == [Kind.BROKER_FENCED, Kind.BROKER_UNFENCED]


def test_changes_of_one_commit_are_told_one_after_the_other() -> None:
    views = [
        PartitionView(replicas=(A, B), isr=(A, B), leader=A),
        PartitionView(replicas=(A, B), isr=(B,), leader=B, leader_epoch=Epoch(1)),
        PartitionView(replicas=(A, B), isr=(A, B), leader=B, leader_epoch=Epoch(1)),
    ]
    told = happenings(
        MetadataImage(),
        [
            PartitionCreated(TOPIC, 0, views[0]),
            PartitionChanged(TOPIC, 0, views[1]),
            PartitionChanged(TOPIC, 0, views[2]),
        ],
        {},
    )
    kinds = [Kind.CREATED, Kind.ISR_CHANGED, Kind.ELECTED, Kind.ISR_CHANGED]
    assert [one.kind for one in told] == kinds


def test_records_that_an_election_may_have_lost_are_told() -> None:
    before = PartitionView(replicas=(A, B), isr=(), leader=NO_LEADER, lost_records=3)
    after = structs.replace(before, isr=(B,), leader=B, lossy_elections=1, lost_records=10)
    election = PartitionChanged(TOPIC, 0, after)
    records: list[MetadataRecord] = [PartitionCreated(TOPIC, 0, before), election]
    *_, lost = happenings(MetadataImage(), records, {election: Window(7, Offset(30))})
    assert lost.kind is Kind.RECORDS_LOST
    told = fields_of(lost.kind, lost.values)
    assert (told["at_least"], told["from"]) == (7, 30)
