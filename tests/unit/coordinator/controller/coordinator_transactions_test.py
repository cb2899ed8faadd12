"""Lives of the transaction coordinator: one epoch each, and no word of a life that is over."""

import pytest

from harness.machines.controllers import CLUSTER, ONE, Controlled, topic
from harness.machines.conversations import Conversation, Side
from tidelog.coordinator.controller.requests import (
    AllocateProducerIds,
    BrokerRegistration,
    ProducerIdBlock,
    RegisterTransactions,
)
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Epoch, Incarnation, Offset, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import PRODUCER_ID_BLOCK
from tidelog.node.metadata.link import IdBlock, IdsAsked
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import ProducerIdsAllocated, TransactionsActivated


def life(incarnation: int, cluster: str = CLUSTER) -> RegisterTransactions:
    return RegisterTransactions(cluster, Incarnation(incarnation))


def test_each_life_is_given_a_higher_epoch() -> None:
    controlled = Controlled(ONE)
    assert controlled.ask(life(5)) == BrokerRegistration(Offset(1))
    assert controlled.log[-1] == TransactionsActivated(Epoch(1), Incarnation(5))
    assert controlled.ask(life(9)) == BrokerRegistration(Offset(2))
    assert controlled.image.transactions_epoch == 2


def test_a_life_that_connects_again_keeps_its_epoch() -> None:
    controlled = Controlled(ONE)
    controlled.ask(life(5))
    records = len(controlled.log)
    assert controlled.ask(life(5)) == BrokerRegistration(Offset(1))
    assert len(controlled.log) == records


def test_a_life_that_is_over_is_turned_away() -> None:
    controlled = Controlled(ONE)
    controlled.ask(life(5))
    with pytest.raises(Rejected) as refused:
        controlled.ask(life(4))
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_one_of_another_cluster_is_turned_away() -> None:
    with pytest.raises(Rejected) as refused:
        Controlled(ONE).ask(life(5, "anotheranotheranothera"))
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_its_producer_ids_are_nobody_elses() -> None:
    controlled = Controlled(ONE)
    controlled.ask(life(5))
    asking = AllocateProducerIds(TRANSACTIONS_ID, Incarnation(5))
    blocks = [
        controlled.ask(one) for one in (asking, AllocateProducerIds(ONE, Incarnation(1)), asking)
    ]
    assert blocks == [
        ProducerIdBlock(ProducerId(first * PRODUCER_ID_BLOCK), PRODUCER_ID_BLOCK)
        for first in range(3)
    ]
    assert controlled.log[-1] == ProducerIdsAllocated(
        TRANSACTIONS_ID, ProducerId(3 * PRODUCER_ID_BLOCK)
    )


@pytest.mark.parametrize("incarnation", [4, 6])
def test_only_its_latest_life_gets_producer_ids(incarnation: int) -> None:
    controlled = Controlled(ONE)
    controlled.ask(life(5))
    with pytest.raises(Rejected):
        controlled.ask(AllocateProducerIds(TRANSACTIONS_ID, Incarnation(incarnation)))


def talking(*brokers: int) -> Conversation:
    talk = Conversation()
    talk.start_coordinator()
    for broker in brokers:
        talk.start_broker(broker)
    talk.settle()
    return talk


def heard(side: Side) -> list[int]:
    """Its epoch, each time it may begin."""
    return [int(epoch) for epoch in side.epochs]


def test_it_follows_the_image_as_brokers_do_and_brokers_learn_its_epoch() -> None:
    talk = talking(0)
    side = talk.start_observer(7)
    talk.settle()
    talk.create(0, topic("t", 3))
    talk.settle()
    assert heard(side) == [1]
    broker = talk.sides[BrokerId(0)]
    assert side.link.image == broker.link.image == talk.shard.image
    assert broker.link.image.transactions_epoch == 1
    assert broker.link.image.transactions_incarnation == 7


def test_nobody_waits_for_it_to_apply_what_a_client_asked_for() -> None:
    talk = talking(0)
    side = talk.start_observer(7)
    talk.settle()
    side.connected = False
    created = talk.create(0, topic("t"))
    talk.settle()
    assert created.codes() == [0]


def test_it_keeps_its_epoch_when_connection_or_coordinator_is_lost() -> None:
    talk = talking(0)
    side = talk.start_observer(7)
    talk.settle()
    talk.kill_coordinator()
    talk.create(0, topic("t"))
    talk.start_coordinator()
    talk.settle()
    assert heard(side) == [1]
    assert side.link.image == talk.shard.image
    assert sum(isinstance(one, TransactionsActivated) for one in talk.durable) == 1


@pytest.mark.parametrize("found", [0, 1])
def test_an_epoch_is_heard_of_only_once_it_is_on_disk(found: int) -> None:
    talk = talking()
    side = talk.start_observer(7)
    while talk.deliver_one():
        pass
    assert talk.written
    assert heard(side) == []
    talk.kill_coordinator(found=found)
    talk.start_coordinator()
    talk.settle()
    assert heard(side) == [1]
    assert sum(isinstance(one, TransactionsActivated) for one in talk.durable) == 1


def test_one_that_went_on_hears_of_its_successor_and_asks_no_more() -> None:
    talk = talking()
    old = talk.start_observer(7)
    talk.settle()
    new = talk.start_observer(8)
    # What the old one is told is under way still: its connection is closed by the new one's.
    talk.settle()
    assert heard(new) == [2]
    talk._connect(old)
    talk.settle()
    assert old.fenced or old.turned_away == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    for _ in range(5):
        talk.wait(5_000)
        talk.settle()
    assert heard(old) == [1]
    assert talk.shard.image.transactions_incarnation == 8


def test_it_draws_its_producer_ids_over_the_same_connection() -> None:
    talk = talking(0)
    talk.start_observer(7)
    talk.settle()
    deadline = Instant(talk.now + ms(5_000))
    outcome = talk.ask(TRANSACTIONS_ID + 7, IdsAsked(1, deadline))
    talk.settle()
    assert outcome.result == IdBlock(ProducerId(0), PRODUCER_ID_BLOCK)
