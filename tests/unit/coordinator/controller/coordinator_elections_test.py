"""What becomes of a partition when brokers go, stop, come back, or come back with less."""

import pytest

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.elections import Rules
from tidelog.coordinator.controller.selectors import Fit
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch
from tidelog.wire.metadata_records import PartitionView

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)
ONE_OF, TWO_OF, THREE_OF = (Rules(min_in_sync=number) for number in (1, 2, 3))


def view(
    *isr: BrokerId,
    leader: BrokerId = ONE,
    elr: tuple[BrokerId, ...] = (),
    last_known: tuple[BrokerId, ...] = (),
) -> PartitionView:
    return PartitionView(
        replicas=ALL,
        isr=isr,
        leader=leader,
        leader_epoch=Epoch(5),
        partition_epoch=Epoch(7),
        elr=elr,
        last_known=last_known,
    )


def fit(*brokers: BrokerId) -> Fit:
    return lambda broker: broker in brokers


Short = tuple[tuple[BrokerId, ...], tuple[BrokerId, ...], tuple[BrokerId, ...], BrokerId, int]


def short(after: PartitionView | None) -> Short:
    """ISR, ELR, last known, leader, leader epoch."""
    assert after is not None
    return (after.isr, after.elr, after.last_known, after.leader, after.leader_epoch)


def test_a_new_partition_starts_with_the_replicas_that_live() -> None:
    assert elections.new_partition(ALL, fit(TWO, THREE)) == PartitionView(
        replicas=ALL, isr=(TWO, THREE), leader=TWO
    )


# -- brokers go


def test_an_added_replica_that_goes_is_not_eligible_while_enough_others_are_in_sync() -> None:
    """A lone replica that is being moved commits alone: whoever joins and goes misses the rest."""
    moving = PartitionView(
        replicas=ALL, isr=(ONE, TWO), leader=ONE, adding=(TWO, THREE), removing=(ONE,)
    )
    after = elections.brokers_lost(moving, {TWO}, fit(ONE, THREE), TWO_OF)
    assert after is not None
    assert (after.isr, after.elr) == ((ONE,), ())


def test_the_next_replica_in_sync_leads_when_the_leader_is_lost() -> None:
    after = elections.brokers_lost(view(ONE, TWO, THREE), {ONE}, fit(TWO, THREE), ONE_OF)
    assert after == PartitionView(
        replicas=ALL,
        isr=(TWO, THREE),
        leader=TWO,
        leader_epoch=Epoch(6),
        partition_epoch=Epoch(8),
    )


def test_a_lost_follower_leaves_the_isr_and_the_leader_stays_in_its_epoch() -> None:
    after = elections.brokers_lost(view(ONE, TWO), {TWO}, fit(ONE, THREE), ONE_OF)
    assert short(after) == ((ONE,), (), (), ONE, 5)
    assert after is not None
    assert after.partition_epoch == 8


def test_a_lost_replica_that_was_behind_changes_nothing() -> None:
    assert elections.brokers_lost(view(ONE, TWO), {THREE}, fit(ONE, TWO), ONE_OF) is None


def test_who_was_in_sync_when_they_became_too_few_is_eligible() -> None:
    after = elections.brokers_lost(view(ONE, TWO), {TWO}, fit(ONE, THREE), TWO_OF)
    assert short(after) == ((ONE,), (TWO,), (), ONE, 5)


def test_the_last_in_sync_is_eligible_and_nobody_behind_it_is_elected() -> None:
    after = elections.brokers_lost(view(ONE), {ONE}, fit(TWO, THREE), ONE_OF)
    assert short(after) == ((), (ONE,), (), NO_LEADER, 6)


def test_an_eligible_one_leads_when_nobody_in_sync_is_left() -> None:
    """It lagged, but nothing was committed since: too few were in sync."""
    after = elections.brokers_lost(view(ONE, elr=(TWO,)), {ONE}, fit(TWO, THREE), TWO_OF)
    assert short(after) == ((TWO,), (ONE,), (), TWO, 6)


def test_an_eligible_leader_does_not_take_a_stopping_one_into_its_isr() -> None:
    now = view(ONE, TWO, elr=(THREE,))
    after = elections.brokers_lost(now, {ONE}, fit(THREE), THREE_OF)
    assert short(after) == ((THREE,), (ONE, TWO), (), THREE, 6)


def test_all_that_go_at_once_are_eligible() -> None:
    after = elections.brokers_lost(view(ONE, TWO), ALL, fit(), ONE_OF)
    assert short(after) == ((), (ONE, TWO), (), NO_LEADER, 6)
    assert after is not None
    assert elections.brokers_lost(after, ALL, fit(), ONE_OF) is None


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    after = elections.brokers_lost(view(ONE, TWO, THREE), {THREE}, fit(ONE, TWO), Rules(9))
    assert short(after) == ((ONE, TWO), (THREE,), (), ONE, 5)


# -- brokers come


def test_a_partition_that_waited_takes_who_is_eligible_and_the_others_stay_so() -> None:
    waiting = view(leader=NO_LEADER, elr=(TWO, THREE))
    after = elections.broker_joined(waiting, fit(ONE, THREE), TWO_OF)
    assert short(after) == ((THREE,), (TWO,), (), THREE, 6)


def test_the_others_are_forgotten_where_one_is_enough() -> None:
    waiting = view(leader=NO_LEADER, elr=(TWO, THREE))
    after = elections.broker_joined(waiting, fit(ONE, THREE), ONE_OF)
    assert short(after) == ((THREE,), (), (), THREE, 6)


def test_a_partition_goes_on_waiting_for_who_is_eligible() -> None:
    waiting = view(leader=NO_LEADER, elr=(TWO,))
    assert elections.broker_joined(waiting, fit(ONE, THREE), TWO_OF) is None


def test_a_leader_is_not_replaced_because_someone_came() -> None:
    assert elections.broker_joined(view(ONE, TWO), fit(*ALL), ONE_OF) is None


def test_enough_in_sync_make_the_eligible_ones_be_forgotten() -> None:
    after = elections.in_sync_changed(view(ONE, elr=(TWO,)), (ONE, THREE), fit(*ALL), TWO_OF)
    assert short(after) == ((ONE, THREE), (), (), ONE, 5)


def test_who_the_leader_drops_below_the_minimum_is_eligible() -> None:
    after = elections.in_sync_changed(view(ONE, TWO, THREE), (ONE,), fit(*ALL), TWO_OF)
    assert short(after) == ((ONE,), (TWO, THREE), (), ONE, 5)


# -- brokers come back with less


def test_who_lost_files_is_eligible_no_more_but_last_known() -> None:
    waiting = view(leader=NO_LEADER, elr=(ONE, TWO))
    after = elections.files_lost(waiting, ONE, TWO_OF)
    assert short(after) == ((), (TWO,), (ONE,), NO_LEADER, 5)


def test_who_lost_files_it_was_not_trusted_with_changes_nothing() -> None:
    assert elections.files_lost(view(ONE, TWO), THREE, TWO_OF) is None


def test_who_has_a_damaged_log_leads_no_more_and_is_not_eligible() -> None:
    now = view(ONE, TWO, THREE)
    after = elections.log_damaged(now, ONE, fit(*ALL), TWO_OF, usable=True)
    assert short(after) == ((TWO, THREE), (), (), TWO, 6)
    after = elections.log_damaged(view(ONE, TWO), ONE, fit(*ALL), TWO_OF, usable=True)
    assert short(after) == ((TWO,), (), (ONE,), TWO, 6)


def test_a_follower_with_a_damaged_log_is_out_of_sync() -> None:
    """Its leader leads on in a new epoch: what it vouched for in the old one counts no more."""
    now = view(ONE, TWO, THREE)
    after = elections.log_damaged(now, TWO, fit(*ALL), TWO_OF, usable=False)
    assert short(after) == ((ONE, THREE), (), (), ONE, 6)
    assert after is not None
    assert after.partition_epoch == now.partition_epoch + 1


def test_who_is_eligible_and_has_a_damaged_log_is_so_no_more() -> None:
    waiting = view(leader=NO_LEADER, elr=(ONE, TWO))
    after = elections.log_damaged(waiting, ONE, fit(TWO), TWO_OF, usable=False)
    assert short(after) == ((), (TWO,), (ONE,), NO_LEADER, 5)


def test_an_eligible_one_leads_for_a_lone_leader_with_a_damaged_log() -> None:
    now = view(ONE, elr=(THREE,))
    after = elections.log_damaged(now, ONE, fit(*ALL), TWO_OF, usable=True)
    assert short(after) == ((THREE,), (), (ONE,), THREE, 6)


def test_a_damaged_log_is_led_while_it_can_be_read_and_nobody_else_may_lead() -> None:
    now = view(ONE)
    assert elections.log_damaged(now, ONE, fit(*ALL), ONE_OF, usable=True) is None
    after = elections.log_damaged(now, ONE, fit(*ALL), ONE_OF, usable=False)
    assert short(after) == ((), (), (ONE,), NO_LEADER, 6)


def test_the_log_of_a_lone_replica_is_all_there_is() -> None:
    alone = PartitionView(replicas=(ONE,), isr=(ONE,), leader=ONE)
    assert elections.log_damaged(alone, ONE, fit(ONE), ONE_OF, usable=False) is None


def test_a_lone_replica_that_is_gone_is_written_down_before_it_leads_again() -> None:
    waiting = PartitionView(replicas=(ONE,), isr=(), leader=NO_LEADER, elr=(ONE,))
    after = elections.log_damaged(waiting, ONE, fit(ONE), ONE_OF, usable=False)
    assert after is not None
    assert (after.leader, after.elr, after.last_known) == (NO_LEADER, (), (ONE,))
    led = elections.broker_joined(after, fit(ONE), ONE_OF)
    assert led is not None
    assert (led.leader, led.lossy_elections) == (ONE, 1)


def test_damage_of_a_replica_that_is_not_trusted_only_raises_the_epochs() -> None:
    """Its leader may have proposed it, or be about to."""
    now = view(ONE)
    after = elections.log_damaged(now, TWO, fit(*ALL), ONE_OF, usable=False)
    assert short(after) == ((ONE,), (), (), ONE, 6)
    assert after is not None
    assert after.partition_epoch == now.partition_epoch + 1


def test_damage_where_nobody_leads_or_the_broker_has_no_replica_changes_nothing() -> None:
    waiting = view(leader=NO_LEADER, elr=(ONE,))
    assert elections.log_damaged(waiting, TWO, fit(*ALL), ONE_OF, usable=False) is None
    alone = PartitionView(replicas=(ONE,), isr=(ONE,), leader=ONE)
    assert elections.log_damaged(alone, TWO, fit(*ALL), ONE_OF, usable=False) is None


def test_the_only_replica_leads_with_what_it_has_and_that_is_counted() -> None:
    alone = PartitionView(replicas=(ONE,), isr=(), last_known=(ONE,))
    after = elections.broker_joined(alone, fit(ONE), ONE_OF)
    assert short(after) == ((ONE,), (), (), ONE, 1)
    assert after is not None
    assert after.lossy_elections == 1


def test_the_last_known_are_waited_for_where_others_may_have_more() -> None:
    waiting = view(leader=NO_LEADER, last_known=(ONE,))
    assert elections.broker_joined(waiting, fit(*ALL), TWO_OF) is None


def test_an_unclean_leader_forgets_all_others_and_its_losses_are_counted() -> None:
    waiting = view(leader=NO_LEADER, elr=(ONE,), last_known=(TWO,))
    after = elections.unclean_allowed(waiting, (THREE,), fit(TWO, THREE), TWO_OF, lost_records=40)
    assert short(after) == ((THREE,), (), (), THREE, 6)
    assert after is not None
    assert (after.lossy_elections, after.lost_records) == (1, 40)


def test_an_election_that_turns_out_clean_is_not_counted() -> None:
    waiting = view(leader=NO_LEADER, elr=(ONE,), last_known=(TWO,))
    after = elections.unclean_allowed(waiting, (TWO,), fit(ONE, TWO), TWO_OF, lost_records=40)
    assert short(after) == ((ONE,), (), (TWO,), ONE, 6)
    assert after is not None
    assert (after.lossy_elections, after.lost_records) == (0, 0)


# -- brokers stop


def test_who_stops_gives_its_leadership_to_who_is_in_sync() -> None:
    after = elections.broker_leaves(view(ONE, TWO, THREE), ONE, fit(TWO, THREE), TWO_OF)
    assert short(after) == ((TWO, THREE), (), (), TWO, 6)


def test_who_stops_and_leads_not_holds_nobody_up() -> None:
    after = elections.broker_leaves(view(ONE, TWO), TWO, fit(ONE, THREE), TWO_OF)
    assert short(after) == ((ONE,), (TWO,), (), ONE, 5)


def test_a_partition_waits_for_the_last_one_that_stops() -> None:
    after = elections.broker_leaves(view(ONE), ONE, fit(TWO, THREE), TWO_OF)
    assert short(after) == ((), (ONE,), (), NO_LEADER, 6)


def test_who_stops_and_was_behind_changes_nothing() -> None:
    assert elections.broker_leaves(view(ONE), TWO, fit(ONE), TWO_OF) is None


# -- what is wanted


def test_the_preferred_one_leads_again_when_someone_wants_it() -> None:
    after = elections.preferred_wanted(view(ONE, TWO, leader=TWO), fit(ONE, TWO), ONE_OF)
    assert short(after) == ((ONE, TWO), (), (), ONE, 6)


@pytest.mark.parametrize(
    "now",
    [view(TWO, leader=TWO), view(ONE, TWO, leader=ONE), view(leader=NO_LEADER, elr=(ONE, TWO))],
    ids=["behind", "leads", "nobody in sync"],
)
def test_the_preferred_one_is_not_forced(now: PartitionView) -> None:
    assert elections.preferred_wanted(now, fit(TWO, THREE), ONE_OF) is None


def test_another_minimum_makes_the_eligible_be_forgotten_while_someone_is_in_sync() -> None:
    after = elections.eligible_forgotten(view(ONE, elr=(TWO,)))
    assert short(after) == ((ONE,), (), (), ONE, 5)
    assert after is not None
    assert after.partition_epoch == 8
    assert elections.eligible_forgotten(view(leader=NO_LEADER, elr=(TWO,))) is None
