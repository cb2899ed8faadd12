"""Lives of brokers: who is let in, who is fenced, and who leads afterwards."""

import msgspec
import pytest

from harness.machines.controllers import (
    CLUSTER,
    ONE,
    THREE,
    TWO,
    Controlled,
    registering,
    topic,
)
from tidelog.coordinator.controller.requests import (
    Activate,
    BrokerApplied,
    BrokerLost,
    BrokerRegistration,
    BrokerStarted,
)
from tidelog.kernel.ids import NO_LEADER, BrokerId, Incarnation, Offset
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ControllerActivated,
    FeatureChanged,
    PartitionChanged,
    StopKind,
)


def test_the_first_controller_of_a_cluster_names_it_and_finalizes_its_features() -> None:
    controlled = Controlled()
    assert controlled.log == [
        ClusterCreated(CLUSTER),
        FeatureChanged("metadata.version", 27),
        FeatureChanged("group.version", 1),
        FeatureChanged("transaction.version", 2),
        ControllerActivated(controlled.image.controller_epoch, Incarnation(1), "run-1"),
    ]
    assert controlled.image.finalized_features() == (
        4,
        {"metadata.version": 27, "group.version": 1, "transaction.version": 2},
    )


def test_each_controller_raises_the_epoch() -> None:
    controlled = Controlled()
    controlled.ask(Activate(CLUSTER, Incarnation(2), "run-1"))
    assert controlled.image.controller_epoch == 2
    assert len(controlled.last_records) == 1


def test_the_log_of_another_cluster_is_refused() -> None:
    with pytest.raises(Rejected, match=CLUSTER):
        Controlled().ask(Activate("another", Incarnation(2), "run-1"))


def test_a_broker_s_epoch_is_the_offset_of_its_registration() -> None:
    controlled = Controlled()
    assert controlled.ask(registering(ONE)) == BrokerRegistration(Offset(5))
    assert isinstance(controlled.log[5], BrokerRegistered)
    assert controlled.log[5].epoch == 5


def test_a_broker_is_fenced_until_it_has_applied_its_registration() -> None:
    controlled = Controlled()
    controlled.ask(registering(ONE))
    assert not controlled.image.is_alive(ONE)
    controlled.ask(BrokerApplied(ONE, Incarnation(1), Offset(4)))
    assert not controlled.image.is_alive(ONE)
    controlled.ask(BrokerApplied(ONE, Incarnation(1), Offset(5)))
    assert controlled.last_records == (BrokerUnfenced(ONE, Offset(5)),)
    assert controlled.image.alive() == [ONE]


def test_the_same_life_comes_back_without_a_record() -> None:
    controlled = Controlled()
    epoch = controlled.join(ONE)
    assert controlled.ask(registering(ONE)) == BrokerRegistration(epoch)
    assert controlled.last_records == ()
    assert controlled.image.is_alive(ONE)


def test_an_earlier_life_is_turned_away() -> None:
    controlled = Controlled()
    controlled.join(ONE, incarnation=5)
    with pytest.raises(Rejected) as refused:
        controlled.ask(registering(ONE, 4))
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_of_another_cluster_is_turned_away() -> None:
    with pytest.raises(Rejected) as refused:
        Controlled().ask(registering(ONE, cluster="another"))
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("broker", [-1, 3000, 2**31])
def test_an_id_that_is_no_broker_s_is_turned_away(broker: int) -> None:
    with pytest.raises(Rejected) as refused:
        Controlled().ask(registering(BrokerId(broker)))
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION


def test_a_dead_broker_leads_nothing_and_its_only_replicas_wait_for_it() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic(partitions=2))
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    assert isinstance(controlled.last_records[0], BrokerFenced)
    assert all(isinstance(one, PartitionChanged) for one in controlled.last_records[1:])
    for view in controlled.image.names["t"].partitions:
        assert (view.leader, view.leader_epoch) == (NO_LEADER, 1)
        assert (view.isr, view.elr) == ((), (ONE,))


def test_a_returning_broker_leads_its_partitions_in_a_new_epoch() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic())
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    controlled.join(ONE, incarnation=2)
    (view,) = controlled.image.names["t"].partitions
    assert (view.leader, view.leader_epoch, view.partition_epoch) == (ONE, 2, 2)


def test_a_new_life_that_comes_before_news_of_the_old_one_s_death_starts_new_epochs_too() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic())
    controlled.join(ONE, incarnation=2)
    assert controlled.image.names["t"].partitions[0].leader_epoch == 2
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    assert controlled.last_records == ()
    assert controlled.image.is_alive(ONE)


def test_the_start_of_a_new_life_ends_the_one_before() -> None:
    controlled = Controlled(ONE)
    controlled.ask(BrokerStarted(ONE, Incarnation(1)))
    assert controlled.image.is_alive(ONE)
    controlled.ask(BrokerStarted(ONE, Incarnation(2)))
    assert not controlled.image.is_alive(ONE)


def test_a_broker_that_nobody_registered_cannot_be_lost() -> None:
    controlled = Controlled(ONE)
    controlled.ask(BrokerLost(TWO, Incarnation(1)))
    assert controlled.last_records == ()


def test_an_old_acknowledgement_does_not_bring_a_hung_broker_back() -> None:
    controlled = Controlled(ONE)
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    controlled.apply(ONE)
    assert not controlled.image.is_alive(ONE)


def test_a_fenced_broker_that_registers_again_gets_a_new_epoch_and_is_taken_back() -> None:
    controlled = Controlled(ONE)
    first = controlled.image.brokers[ONE].epoch
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    assert controlled.join(ONE) > first


def test_an_acknowledgement_of_another_life_counts_for_nothing() -> None:
    controlled = Controlled()
    controlled.ask(registering(ONE, 2))
    controlled.apply(ONE, incarnation=1)
    assert not controlled.image.is_alive(ONE)


def test_a_new_run_knows_that_no_broker_of_the_last_one_lives() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic(partitions=2))
    controlled.ask(Activate(CLUSTER, Incarnation(9), "run-2"))
    assert controlled.image.alive() == []
    assert {view.leader for view in controlled.image.names["t"].partitions} == {NO_LEADER}


def test_a_restarted_controller_of_the_same_run_leaves_brokers_alone() -> None:
    controlled = Controlled(ONE)
    controlled.ask(Activate(CLUSTER, Incarnation(9), "run-1"))
    assert controlled.image.alive() == [ONE]


def test_after_a_power_loss_a_broker_keeps_its_places_where_it_says_that_it_lost_nothing() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    configs: dict[str, str | None] = {"min.insync.replicas": "2"}
    controlled.create(topic("t", partitions=2, replicas=3, configs=configs))
    for broker in (TWO, THREE):
        controlled.lose(broker)
    made = controlled.image.names["t"]
    eligible = [view.elr for view in made.partitions]
    assert all(view.isr == (ONE,) for view in made.partitions)
    gone = next(one for one in (TWO, THREE) if all(one in elr for elr in eligible))
    kept = ((made.id, (1,)),)
    request = registering(gone, 2, stopped=StopKind.POWER_LOSS)
    controlled.ask(msgspec.structs.replace(request, kept=kept))
    zero, one = controlled.image.names["t"].partitions
    assert (gone in zero.elr, gone in zero.last_known) == (False, True)
    assert (gone in one.elr, gone in one.last_known) == (True, False)
