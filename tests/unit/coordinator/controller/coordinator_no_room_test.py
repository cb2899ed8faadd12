"""Leaders whose disk is full: what the controller makes of what brokers tell of them."""

from harness.machines.controllers import ONE, THREE, TWO
from harness.machines.lossy_controller import Lossy
from tidelog.coordinator.controller.elections import Rules, leader_without_room
from tidelog.coordinator.controller.requests import TellNoRoom
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Uuid
from tidelog.wire.control import NoRoom
from tidelog.wire.metadata_records import PartitionView

TWO_OF_THREE = Rules(min_in_sync=2, unclean=True)


def led(
    isr: tuple[BrokerId, ...] = (ONE, TWO, THREE), elr: tuple[BrokerId, ...] = ()
) -> PartitionView:
    return PartitionView(
        replicas=(ONE, TWO, THREE),
        isr=isr,
        elr=elr,
        leader=ONE,
        leader_epoch=Epoch(3),
        partition_epoch=Epoch(5),
    )


def handed(
    view: PartitionView, *others: BrokerId, dead: tuple[BrokerId, ...] = ()
) -> PartitionView | None:
    return leader_without_room(view, others, lambda one: one not in dead, TWO_OF_THREE)


def test_the_first_replica_in_sync_that_lives_and_has_room_leads() -> None:
    for others, dead, leader in [
        ((TWO, THREE), (), TWO),
        ((THREE, TWO), (), TWO),
        ((THREE,), (), THREE),
        ((TWO, THREE), (TWO,), THREE),
    ]:
        after = handed(led(), *others, dead=dead)
        assert after is not None
        assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, 4, 6)
        assert (after.isr, after.elr, after.lossy_elections) == ((TWO, THREE), (), 0)


def test_where_nobody_in_sync_has_room_nothing_changes() -> None:
    """Not the eligible, who need not have what was acknowledged by one; nor whoever may lead where
    unclean elections are allowed."""
    assert handed(led()) is None
    assert handed(led(), ONE) is None
    assert handed(led((ONE,)), TWO, THREE) is None
    assert handed(led((ONE,), elr=(TWO, THREE)), TWO, THREE) is None
    assert handed(led((ONE, TWO)), THREE) is None
    assert handed(led(), TWO, dead=(TWO,)) is None


def test_who_has_no_room_is_eligible_as_others_are_who_leave() -> None:
    """Its log is whole: while too few are in sync, it may lead if all others go."""
    after = handed(led((ONE, TWO)), TWO)
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (TWO, (TWO,), (ONE,))


def test_a_leader_without_room_hands_over_and_is_taken_back() -> None:
    lossy = Lossy()
    lossy.tell_no_room(ONE, TWO, THREE)
    assert (lossy.view.leader, lossy.view.leader_epoch, lossy.view.isr) == (TWO, 1, (TWO, THREE))
    lossy.take_back(ONE)
    assert lossy.view.lossy_elections == 0


def test_only_the_leader_of_now_is_heard_in_the_life_and_state_of_now() -> None:
    lossy = Lossy()
    lossy.tell_no_room(TWO, ONE, THREE)
    lossy.tell_no_room(ONE, TWO, incarnation=2)
    assert lossy.view.partition_epoch == 0
    lossy.lose(THREE)
    lossy.tell_no_room(ONE, TWO, late=True)
    lossy.tell_no_room(ONE, THREE)
    assert (lossy.view.leader, lossy.view.isr) == (ONE, (ONE, TWO))
    lossy.tell_no_room(ONE, TWO)
    assert lossy.view.leader == TWO
    before = lossy.view
    lossy.tell_no_room(ONE, TWO)  # once more: it had not heard of it
    assert lossy.view == before


def test_a_broker_that_was_given_up_hands_nothing_over() -> None:
    lossy = Lossy()
    for broker in (TWO, THREE, ONE):
        lossy.lose(broker)
    before = lossy.view
    lossy.tell_no_room(ONE, TWO, THREE)
    assert lossy.view == before


def test_what_is_told_of_a_partition_that_is_gone_is_dropped() -> None:
    lossy = Lossy()
    gone = NoRoom(Uuid(bytes(16)), 0, Epoch(0), (TWO,))
    beyond = NoRoom(lossy.image.names["t"].id, 9, Epoch(0), (TWO,))
    lossy.ask(TellNoRoom(ONE, Incarnation(1), (gone, beyond)))
    assert lossy.view.leader == ONE
