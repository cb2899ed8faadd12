"""Replicas whose files are damaged: what the controller makes of what brokers tell of them."""

from harness.machines.controllers import ONE, THREE, TWO, registering
from harness.machines.lossy_controller import Lossy
from tidelog.coordinator.controller.requests import (
    TellDamage,
)
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, Incarnation
from tidelog.wire.control import DamagedLog


def test_nobody_is_elected_for_whose_log_might_still_be_mended() -> None:
    lossy = Lossy()
    for broker in (ONE, TWO, THREE):
        lossy.lose(broker)
    lossy.join(ONE, 2)
    for broker in (TWO, THREE):
        lossy.ask(registering(broker, 2))
        lossy.tell_damage(broker)
        lossy.apply(broker, 2)
        lossy.tell(broker, -1, NO_OFFSET, NO_OFFSET)
    assert (lossy.view.elr, lossy.view.last_known) == ((), (TWO, THREE))
    lossy.tell(ONE, 0, 60)
    assert lossy.view.leader == NO_LEADER
    assert lossy.elect_unclean() == 0
    assert lossy.view.leader == ONE


def back_with_damage(*, late: bool) -> Lossy:
    """All are lost, and THREE comes back first, with a damaged log."""
    lossy = Lossy()
    for broker in (ONE, TWO, THREE):
        lossy.lose(broker)
    assert set(lossy.view.elr) == {TWO, THREE}
    lossy.ask(registering(THREE, 2))
    lossy.tell_damage(THREE, late=late)
    lossy.apply(THREE, 2)
    assert (lossy.view.leader, lossy.view.elr, lossy.view.last_known) == (
        NO_LEADER,
        (TWO,),
        (THREE,),
    )
    return lossy


def test_who_comes_back_with_a_damaged_log_is_not_elected() -> None:
    lossy = back_with_damage(late=False)
    lossy.join(TWO, 2)
    assert lossy.view.leader == TWO
    lossy.take_back(THREE)
    assert lossy.view.lossy_elections == 0


def test_who_is_not_let_in_yet_may_tell_of_a_damaged_log_by_an_image_that_is_old() -> None:
    """Else it is let in as one that has everything, and elected."""
    lossy = back_with_damage(late=True)
    lossy.join(TWO, 2)
    assert (lossy.view.leader, lossy.view.lossy_elections) == (TWO, 0)


def test_what_is_old_of_who_was_let_in_and_fenced_since_counts_for_nothing() -> None:
    """It may have got its log anew meanwhile: then it has everything."""
    lossy = Lossy()
    for broker in (ONE, THREE):
        lossy.lose(broker)
    lossy.tell_damage(THREE, late=True)
    assert (lossy.view.isr, lossy.view.elr) == ((TWO,), (THREE,))


def test_damage_told_of_another_state_or_life_counts_for_nothing() -> None:
    lossy = Lossy()
    before = lossy.view
    lossy.lose(THREE)
    lossy.tell_damage(ONE, late=True)
    lossy.tell_damage(THREE, late=True)
    assert (lossy.view.leader, lossy.view.isr) == (ONE, (ONE, TWO))
    log = DamagedLog(lossy.image.names["t"].id, 0, lossy.view.partition_epoch, usable=True)
    lossy.ask(TellDamage(ONE, Incarnation(7), (log,)))
    assert (lossy.view.leader, lossy.view.leader_epoch) == (ONE, before.leader_epoch)
    lossy.tell_damage(ONE)
    assert (lossy.view.leader, lossy.view.isr) == (TWO, (TWO,))


def test_damage_of_a_replica_that_is_not_trusted_voids_proposals_of_before() -> None:
    """Told twice of one state of the partition it counts once."""
    lossy = Lossy()
    lossy.lose(THREE)
    lossy.join(THREE, 2)
    before = lossy.view
    assert not before.trusts(THREE)
    lossy.tell_damage(THREE)
    assert (lossy.view.leader, lossy.view.isr) == (before.leader, before.isr)
    assert lossy.view.leader_epoch == before.leader_epoch + 1
    after = lossy.view
    lossy.tell_damage(THREE, late=True)
    assert lossy.view == after


def test_a_broker_that_is_not_let_in_yet_raises_no_epoch_by_an_old_image() -> None:
    """It would tell again with each change of its image, and each would be another change."""
    lossy = Lossy()
    lossy.lose(THREE)
    lossy.ask(registering(THREE, 2))
    before = lossy.view
    lossy.tell_damage(THREE, late=True)
    assert lossy.view == before
