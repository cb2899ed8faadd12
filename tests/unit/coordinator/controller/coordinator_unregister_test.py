"""UnregisterBroker: what the cluster forgets of a broker, and what it does not."""

import pytest

from harness.machines.controllers import (
    ONE,
    THREE,
    TWO,
    Controlled,
    replayed,
    through_snapshot,
    topic,
)
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.requests import BrokerLeaving, Done, UnregisterBroker
from tidelog.kernel.ids import NO_LEADER, BrokerId, Incarnation
from tidelog.node.metadata.difference import difference
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerUnregistered,
    PartitionChanged,
    PartitionView,
    StopKind,
)

NONE = UnregisterBrokerResponse(error_message=None)


def unregistering(broker: int) -> UnregisterBroker:
    return UnregisterBroker(0, UnregisterBrokerRequest(broker_id=broker))


def only_view(controlled: Controlled) -> PartitionView:
    (view,) = controlled.image.names["t"].partitions
    return view


def test_a_broker_that_has_stopped_is_forgotten_and_its_replicas_stay_assigned() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.create(topic("t", assignments={0: [3, 1, 2]}))
    controlled.lose(THREE)
    before = through_snapshot(controlled.image)
    assert controlled.everywhere(unregistering(3)) == NONE
    assert isinstance(controlled.log[-1], BrokerUnregistered)
    assert set(controlled.image.brokers) == {ONE, TWO}
    assert only_view(controlled).replicas == (3, 1, 2)
    assert controlled.image.offline(only_view(controlled)) == [3]
    assert difference(before, controlled.image).brokers == [3]


def test_an_image_without_the_broker_is_loaded_and_replayed_alike() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [2, 1]}))
    controlled.everywhere(unregistering(2))
    assert replayed(controlled.log) == controlled.image == through_snapshot(controlled.image)


def test_a_broker_that_nobody_knows_is_not_registered() -> None:
    controlled = Controlled(ONE)
    with pytest.raises(Rejected, match="Broker ID 7 is not currently registered") as refused:
        controlled.ask(unregistering(7))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_living_broker_is_given_up_first_so_that_others_lead() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [2, 1]}))
    controlled.ask(unregistering(2))
    kinds = [type(one) for one in controlled.last_records]
    assert kinds == [BrokerFenced, PartitionChanged, BrokerUnregistered]
    assert (only_view(controlled).leader, only_view(controlled).isr) == (ONE, (ONE,))


def test_it_comes_back_by_registering_and_leads_what_waited_for_it() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [2]}))
    controlled.ask(unregistering(2))
    assert (only_view(controlled).leader, only_view(controlled).elr) == (NO_LEADER, (TWO,))
    controlled.join(TWO, 2)
    assert only_view(controlled).leader == TWO


@pytest.mark.parametrize("stopped", [StopKind.FIRST_START, StopKind.POWER_LOSS])
def test_what_it_lost_while_nobody_knew_it_is_not_trusted(stopped: StopKind) -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [2, 1]}))
    controlled.lose(ONE)
    controlled.ask(unregistering(2))
    assert only_view(controlled).elr == (TWO,)
    controlled.join(TWO, 2, stopped=stopped)
    view = only_view(controlled)
    assert (view.leader, view.elr, view.last_known) == (NO_LEADER, (), (TWO,))


def test_who_was_about_to_leave_has_left() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", assignments={0: [2, 1]}))
    controlled.ask(BrokerLeaving(TWO, Incarnation(1)))
    leaving = controlled.last_asked
    controlled.everywhere(unregistering(2))
    controlled.tick()
    assert controlled.replies[leaving] == Done()
    assert set(controlled.image.brokers) == {ONE}


def test_a_living_broker_registers_anew_at_once() -> None:
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(2):
        talk.start_broker(broker)
    talk.settle()
    asked = talk.unregister(0, 1)
    talk.settle()
    assert asked.codes() == [0]
    assert (talk.sides[BrokerId(1)].fenced, talk.shard.image.active()) == (1, [0, 1])


def test_a_living_broker_registers_anew_also_where_the_coordinator_dies_in_between() -> None:
    """Before its fence word was up: the next coordinator does not know whose it was."""
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(2):
        talk.start_broker(broker)
    talk.settle()
    asked = talk.unregister(0, 1)
    while not talk.written:
        assert talk.deliver_one()
    talk.kill_coordinator(found=1)
    talk.start_coordinator()
    for _ in range(3):
        talk.settle()
        talk.wait(5_000)
    assert asked.codes() == [0]
    side = talk.sides[BrokerId(1)]
    assert (side.fenced, len(side.epochs)) == (1, 2)
    assert talk.shard.image.active() == [0, 1]


def test_a_living_broker_that_registers_anew_has_lost_nothing() -> None:
    """Its life began with no files, which was told and counted when it did."""
    talk = Conversation()
    talk.start_coordinator()
    talk.start_broker(0, stopped=StopKind.FIRST_START)
    talk.settle()
    talk.create(0, topic("t"))
    talk.settle()
    talk.unregister(0, 0)
    talk.settle()
    (view,) = talk.shard.image.names["t"].partitions
    assert (view.leader, view.isr, view.lossy_elections) == (0, (0,), 0)
    assert talk.logged == []
