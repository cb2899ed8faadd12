"""What a leader may have written down of who is in sync with it."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.requests import AlterIsr, BrokerLost, IsrOutcomes
from tidelog.kernel.ids import ZERO_UUID, BrokerId, Epoch, Incarnation, Offset, Uuid
from tidelog.kernel.limits import ALTER_ISR_TIMEOUT_MS, COORDINATOR_DOWN_WAIT_MS
from tidelog.wire.control import Failed, IsrChange, decode_to_broker
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import BrokerFenced, PartitionChanged, PartitionView


@dataclass
class Asked:
    """A controller with one partition on three brokers, led by the first."""

    controlled: Controlled
    topic: Uuid

    @property
    def view(self) -> PartitionView:
        view = self.controlled.image.partition(self.topic, 0)
        assert view is not None
        return view

    def change(self, *isr: BrokerId) -> IsrChange:
        brokers = self.controlled.image.brokers
        return IsrChange(
            topic=self.topic,
            partition=0,
            leader_epoch=self.view.leader_epoch,
            partition_epoch=self.view.partition_epoch,
            isr=tuple((one, brokers[one].epoch) for one in isr),
        )

    def alter(self, *changes: IsrChange, leader: BrokerId = ONE) -> tuple[ErrorCode, ...]:
        incarnation = self.controlled.image.brokers[leader].incarnation
        reply = self.controlled.ask(AlterIsr(leader, incarnation, changes))
        assert isinstance(reply, IsrOutcomes)
        return reply.outcomes


@pytest.fixture
def asked() -> Asked:
    controlled = Controlled(ONE, TWO, THREE)
    (created,) = controlled.create(topic(assignments={0: [ONE, TWO, THREE]}))
    return Asked(controlled, created.topic_id)


def test_a_leader_s_change_is_written_and_raises_the_partition_epoch_alone(asked: Asked) -> None:
    before = asked.view
    assert asked.alter(asked.change(ONE, TWO)) == (ErrorCode.NONE,)
    shrunk = asked.view
    assert shrunk.isr == (ONE, TWO)
    assert shrunk.leader_epoch == before.leader_epoch
    assert shrunk.partition_epoch == before.partition_epoch + 1
    assert asked.alter(asked.change(ONE, TWO, THREE)) == (ErrorCode.NONE,)
    assert asked.view.isr == (ONE, TWO, THREE)


def test_a_change_of_an_older_state_is_refused(asked: Asked) -> None:
    late = asked.change(ONE, TWO, THREE)
    asked.alter(asked.change(ONE))
    assert asked.alter(late) == (ErrorCode.INVALID_UPDATE_VERSION,)
    assert asked.view.isr == (ONE,)


def test_stale_alter_partition(asked: Asked) -> None:
    """5.11, KIP-903, with its broker epochs: the follower caught up as 7, and is 9 by now."""
    brokers = asked.controlled.image.brokers
    asked.alter(asked.change(ONE))
    brokers[TWO].epoch = Offset(7)
    held = asked.change(ONE, TWO)
    brokers[TWO].epoch = Offset(9)
    assert asked.alter(held) == (ErrorCode.INELIGIBLE_REPLICA,)
    current = asked.change(ONE, TWO)
    late = replace(current, partition_epoch=Epoch(current.partition_epoch - 1))
    assert asked.alter(late) == (ErrorCode.INVALID_UPDATE_VERSION,)
    assert asked.view.isr == (ONE,)
    assert asked.alter(current) == (ErrorCode.NONE,)


def test_of_two_changes_of_one_partition_the_second_is_of_an_older_state(asked: Asked) -> None:
    outcomes = asked.alter(asked.change(ONE, TWO), asked.change(ONE, THREE))
    assert outcomes == (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)
    assert asked.view.isr == (ONE, TWO)
    assert len(asked.controlled.last_records) == 1


def test_an_earlier_leader_changes_nothing(asked: Asked) -> None:
    late = asked.change(ONE)
    asked.controlled.lose(ONE)
    asked.controlled.join(ONE, incarnation=2)
    assert asked.view.leader == TWO
    assert asked.alter(late) == (ErrorCode.FENCED_LEADER_EPOCH,)
    assert asked.alter(asked.change(ONE, TWO), leader=ONE) == (ErrorCode.FENCED_LEADER_EPOCH,)
    assert asked.view.isr == (TWO, THREE)


def test_a_leader_that_saw_more_than_this_controller_is_told_so(asked: Asked) -> None:
    change = asked.change(ONE)
    assert asked.alter(
        IsrChange(change.topic, 0, Epoch(1), change.partition_epoch, change.isr),
        IsrChange(change.topic, 0, change.leader_epoch, Epoch(1), change.isr),
    ) == (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)


def test_a_partition_that_is_not_there_is_unknown(asked: Asked) -> None:
    known = asked.change(ONE)
    strangers = [
        IsrChange(ZERO_UUID, 0, Epoch(0), Epoch(0), known.isr),
        IsrChange(known.topic, 1, Epoch(0), Epoch(0), known.isr),
        IsrChange(known.topic, -1, Epoch(0), Epoch(0), known.isr),
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked.alter(*strangers, known) == (unknown, unknown, unknown, ErrorCode.NONE)


@pytest.mark.parametrize("isr", [(), (TWO,), (ONE, ONE), (ONE, BrokerId(9))])
def test_an_impossible_set_is_refused(asked: Asked, isr: tuple[BrokerId, ...]) -> None:
    change = asked.change(ONE)
    impossible = IsrChange(
        change.topic,
        0,
        change.leader_epoch,
        change.partition_epoch,
        tuple((one, Offset(3)) for one in isr),
    )
    assert asked.alter(impossible) == (ErrorCode.INVALID_REQUEST,)


def test_a_broker_that_was_born_again_since_does_not_come_into_the_isr(asked: Asked) -> None:
    """KIP-903: it may have come back with an empty disk."""
    asked.alter(asked.change(ONE))
    late = asked.change(ONE, TWO)
    asked.controlled.lose(TWO)
    asked.controlled.join(TWO, incarnation=2)
    assert asked.alter(late) == (ErrorCode.INELIGIBLE_REPLICA,)
    assert asked.view.isr == (ONE,)
    assert asked.alter(asked.change(ONE, TWO)) == (ErrorCode.NONE,)


def test_a_fenced_broker_does_not_come_into_the_isr(asked: Asked) -> None:
    """KIP-841: it would be the last member, and dead."""
    asked.alter(asked.change(ONE))
    asked.controlled.lose(TWO)
    assert asked.alter(asked.change(ONE, TWO)) == (ErrorCode.INELIGIBLE_REPLICA,)


def test_a_fenced_broker_may_change_nothing(asked: Asked) -> None:
    change = asked.change(ONE)
    asked.controlled.lose(ONE)
    with pytest.raises(Rejected) as refused:
        asked.alter(change)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_another_life_of_the_leader_may_change_nothing(asked: Asked) -> None:
    with pytest.raises(Rejected) as refused:
        asked.controlled.ask(AlterIsr(ONE, Incarnation(9), (asked.change(ONE),)))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


# -- over the pipes


def talking() -> tuple[Conversation, IsrChange]:
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(3):
        talk.start_broker(broker)
    talk.settle()
    talk.create(0, topic("t", assignments={0: [0, 1, 2]}))
    talk.settle()
    image = talk.shard.image
    members = tuple((BrokerId(one), image.brokers[BrokerId(one)].epoch) for one in (0, 1))
    return talk, IsrChange(image.names["t"].id, 0, Epoch(0), Epoch(0), members)


def test_a_leader_hears_of_its_change_when_its_image_has_it() -> None:
    talk, change = talking()
    altered = talk.alter_isr(0, change)
    while altered.result is None:
        if not talk.deliver_one():
            assert talk.written
            talk.force()
    assert altered.result == (ErrorCode.NONE,)
    link = talk.sides[BrokerId(0)].link
    view = link.image.names["t"].partitions[0]
    assert (view.isr, view.partition_epoch) == ((0, 1), 1)
    assert isinstance(talk.durable[-1], PartitionChanged)


def test_every_change_of_a_call_has_its_own_outcome() -> None:
    talk, change = talking()
    stranger = IsrChange(ZERO_UUID, 0, Epoch(0), Epoch(0), ())
    altered = talk.alter_isr(0, stranger, change)
    talk.settle()
    assert altered.result == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)


def test_a_leader_that_is_fenced_meanwhile_changes_nothing_and_hears_no_outcome() -> None:
    talk, change = talking()
    altered = talk.alter_isr(0, change)
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    talk.settle()
    assert altered.result is ErrorCode.REQUEST_TIMED_OUT
    view = talk.shard.image.names["t"].partitions[0]
    assert (view.leader, view.isr) == (1, (1, 2))


def test_a_change_of_a_life_that_is_over_is_refused_as_a_whole() -> None:
    talk, change = talking()
    altered = talk.alter_isr(0, change)
    talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))
    assert talk.deliver_one(), "the change reaches the controller before the broker hears of it"
    assert talk.ignored == []
    assert isinstance(talk.written[-1].records[0], BrokerFenced)
    talk.force()
    failed = [decode_to_broker(one) for one in talk.sides[BrokerId(0)].inbox]
    assert [one.code for one in failed if isinstance(one, Failed)] == [ErrorCode.STALE_BROKER_EPOCH]
    assert altered.result is None


def test_a_change_under_way_when_the_coordinator_dies_is_of_unknown_outcome() -> None:
    talk, change = talking()
    altered = talk.alter_isr(0, change)
    while talk.deliver_one():
        pass
    talk.kill_coordinator(found=1)
    assert altered.result is ErrorCode.REQUEST_TIMED_OUT
    talk.start_coordinator()
    talk.settle()
    again = talk.alter_isr(0, change)
    talk.settle()
    assert again.result == (ErrorCode.INVALID_UPDATE_VERSION,)


def test_a_change_that_never_left_is_refused_so_that_it_may_be_made_again() -> None:
    talk, change = talking()
    talk.kill_coordinator()
    altered = talk.alter_isr(0, change)
    talk.wait(COORDINATOR_DOWN_WAIT_MS)
    assert altered.result is ErrorCode.NOT_CONTROLLER


def test_a_change_that_nobody_answers_is_given_up() -> None:
    talk, change = talking()
    altered = talk.alter_isr(0, change)
    talk.wait(ALTER_ISR_TIMEOUT_MS)
    assert altered.result is ErrorCode.REQUEST_TIMED_OUT


def test_no_outcome_is_told_before_the_records_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is far behind is sent no records for a while. It takes a refusal for the end of
    its proposal, so it must not hear of one while the record that took it is held back."""
    monkeypatch.setattr("tidelog.coordinator.controller.feed.FEED_RECORDS_IN_FLIGHT", 1)
    conversation = Conversation()
    conversation.start_coordinator()
    for broker in (1, 2, 3):
        conversation.start_broker(broker)
    conversation.settle()
    conversation.create(1, topic("t", assignments={0: [1, 2, 3]}))
    conversation.settle()

    def coordinate() -> None:
        while conversation.inbox:
            conversation.deliver_one()
        conversation.force()

    conversation.create(2, topic("other"))
    coordinate()  # broker 1 is sent this, and does not say that it has it
    image = conversation.sides[ONE].link.image
    view = image.names["t"].partitions[0]
    change = IsrChange(
        topic=image.names["t"].id,
        partition=0,
        leader_epoch=view.leader_epoch,
        partition_epoch=view.partition_epoch,
        isr=tuple((one, image.brokers[one].epoch) for one in (ONE, TWO)),
    )
    taken = conversation.alter_isr(1, change)
    coordinate()
    refused = conversation.alter_isr(1, change)
    coordinate()
    assert conversation.front is not None
    assert conversation.front.feed.image.names["t"].partitions[0].isr == (ONE, TWO)
    conversation.settle()
    assert image.names["t"].partitions[0].isr == (ONE, TWO)
    assert (taken.result, refused.result) == (ErrorCode.REQUEST_TIMED_OUT,) * 2
