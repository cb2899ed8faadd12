"""Who leads after a broker went or came."""

from tidelog.coordinator.controller import elections
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch
from tidelog.wire.metadata_records import PartitionView

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)


def view(*isr: BrokerId, leader: BrokerId = ONE, epoch: int = 5) -> PartitionView:
    return PartitionView(
        replicas=ALL, isr=isr, leader=leader, leader_epoch=Epoch(epoch), partition_epoch=Epoch(7)
    )


def alive(*brokers: BrokerId) -> elections.Alive:
    return lambda broker: broker in brokers


def test_a_new_partition_starts_with_the_replicas_that_live() -> None:
    assert elections.new_partition(ALL, alive(TWO, THREE)) == PartitionView(
        replicas=ALL, isr=(TWO, THREE), leader=TWO
    )


def test_the_next_replica_in_sync_leads_when_the_leader_is_lost() -> None:
    after = elections.broker_lost(view(ONE, TWO, THREE), ONE, alive(TWO, THREE))
    assert after == PartitionView(
        replicas=ALL,
        isr=(TWO, THREE),
        leader=TWO,
        leader_epoch=Epoch(6),
        partition_epoch=Epoch(8),
    )


def test_the_order_of_replicas_decides_not_the_order_of_the_isr() -> None:
    after = elections.broker_lost(view(THREE, TWO, ONE), ONE, alive(TWO, THREE))
    assert after is not None
    assert after.leader == TWO


def test_a_lost_follower_leaves_the_isr_and_the_leader_stays_in_its_epoch() -> None:
    after = elections.broker_lost(view(ONE, TWO), TWO, alive(ONE, THREE))
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((ONE,), ONE, 5)
    assert after.partition_epoch == 8


def test_a_lost_replica_that_was_behind_changes_nothing() -> None:
    assert elections.broker_lost(view(ONE, TWO), THREE, alive(ONE, TWO)) is None


def test_the_last_in_sync_stays_so_that_nobody_behind_it_is_elected() -> None:
    after = elections.broker_lost(view(ONE), ONE, alive(TWO, THREE))
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((ONE,), NO_LEADER, 6)


def test_the_last_in_sync_is_lost_only_once() -> None:
    assert elections.broker_lost(view(ONE, leader=NO_LEADER), ONE, alive(TWO)) is None


def test_a_partition_that_waited_takes_who_is_in_sync() -> None:
    after = elections.broker_joined(view(TWO, leader=NO_LEADER), alive(ONE, TWO))
    assert after is not None
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (TWO, 6, 8)


def test_a_partition_goes_on_waiting_for_who_is_in_sync() -> None:
    assert elections.broker_joined(view(TWO, leader=NO_LEADER), alive(ONE, THREE)) is None


def test_a_leader_is_not_replaced_because_someone_came() -> None:
    assert elections.broker_joined(view(ONE, TWO), alive(*ALL)) is None


def test_all_in_sync_stay_in_sync_when_all_are_lost_at_once() -> None:
    after = elections.everyone_lost(view(ONE, TWO))
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch) == ((ONE, TWO), NO_LEADER, 6)
    assert elections.everyone_lost(after) is None
