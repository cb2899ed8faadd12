"""AlterPartitionReassignments: who the replicas are meanwhile, and when it is over."""

from harness.machines.controllers import ONE, THREE, TWO
from harness.machines.reassigning import FOUR, UNCLEAN, moving
from tidelog.kernel.ids import NO_LEADER
from tidelog.wire.errors import ErrorCode

NONE = ErrorCode.NONE


# -- how it goes on


def test_while_it_runs_the_replicas_are_those_it_has_and_those_it_shall_have() -> None:
    it = moving(1, 2, 3)
    before = it.view()
    it.move(2, 3, 4)
    assert it.placement() == ((2, 3, 4, 1), (4,), (1,))
    after = it.view()
    assert (after.isr, after.leader) == (before.isr, before.leader)
    assert after.leader_epoch == before.leader_epoch
    assert after.partition_epoch == before.partition_epoch + 1


def test_it_is_over_when_all_it_shall_have_are_in_sync_and_the_leader_goes_with_it() -> None:
    it = moving(1, 2, 3)
    it.move(2, 3, 4)
    before = it.view()
    it.in_sync(1, 2, 3, 4)
    assert it.placement() == ((2, 3, 4), (), ())
    after = it.view()
    assert (after.isr, after.leader) == ((2, 3, 4), TWO)
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_it_waits_for_everyone_it_shall_have_also_for_who_was_there_before() -> None:
    it = moving(1, 2, 3)
    it.in_sync(1, 2)
    it.move(1, 3, 4)
    it.in_sync(1, 2, 4)
    assert it.placement() == ((1, 3, 4, 2), (4,), (2,))
    it.in_sync(1, 4, 3)  # 2 falls behind in the same breath
    assert it.placement() == ((1, 3, 4), (), ())
    assert it.view().leader == ONE


def test_a_leader_that_stays_leads_on_in_a_new_epoch_for_somebody_went() -> None:
    """What was heard of the one that went must not count if it ever comes back."""
    it = moving(1, 2, 3)
    epoch = it.view().leader_epoch
    it.move(1, 2)
    assert it.placement() == ((1, 2), (), ())
    assert (it.view().leader, it.view().leader_epoch) == (ONE, epoch + 1)


def test_adding_alone_takes_no_new_epoch() -> None:
    it = moving(1)
    epoch = it.view().leader_epoch
    it.move(1, 2, 3)
    assert it.placement() == ((1, 2, 3), (2, 3), ())
    it.in_sync(1, 2)
    assert it.placement() == ((1, 2, 3), (2, 3), ())
    it.in_sync(1, 2, 3)
    assert it.placement() == ((1, 2, 3), (), ())
    assert (it.view().leader, it.view().leader_epoch) == (ONE, epoch)


def test_another_order_is_written_at_once() -> None:
    it = moving(1, 2, 3)
    it.move(3, 1, 2)
    assert it.placement() == ((3, 1, 2), (), ())
    assert it.view().leader == ONE


def test_what_is_so_already_writes_nothing() -> None:
    it = moving(1, 2, 3)
    it.move(1, 2, 3)
    assert it.controlled.last_records == ()
    it.move(2, 3, 4)
    before = it.view()
    it.move(2, 3, 4)
    assert it.view() == before


def test_while_it_runs_another_target_takes_its_place() -> None:
    it = moving(1, 2, 3)
    it.move(2, 3, 4)
    it.move(2, 3, 5)
    assert it.placement() == ((2, 3, 5, 1, 4), (4, 5), (1, 4))
    it.in_sync(1, 2, 3, 5)
    assert it.placement() == ((2, 3, 5), (), ())


def test_to_cancel_leads_back_to_where_the_first_one_began() -> None:
    """Kafka's controller would keep 4, that nobody wants."""
    it = moving(1, 2, 3)
    it.move(2, 3, 4)
    it.move(2, 3, 5)
    assert it.cancel() == (NONE, None)
    assert it.placement() == ((2, 3, 1), (), ())


def test_what_there_was_at_first_may_be_the_new_target() -> None:
    it = moving(1, 2, 3)
    it.in_sync(1, 2)
    it.move(2, 3, 4)
    it.move(1, 2, 3)
    assert it.placement() == ((1, 2, 3, 4), (4,), (4,))
    it.in_sync(1, 2, 3)
    assert it.placement() == ((1, 2, 3), (), ())


def test_who_was_to_go_may_stay_after_all() -> None:
    it = moving(1)
    it.move(2)
    it.move(1, 2)
    assert it.placement() == ((1, 2), (2,), ())
    it.in_sync(1, 2)
    assert it.placement() == ((1, 2), (), ())


def test_the_minimum_in_sync_does_not_rise_with_replicas_that_are_being_added() -> None:
    """Else writers of a topic with one replica were refused until the second has caught up."""
    it = moving(1, configs={"min.insync.replicas": "2"})
    it.move(2)
    assert it.placement() == ((2, 1), (2,), (1,))
    assert it.view().factor == 1
    assert it.view().elr == ()
    it.in_sync(1, 2)
    assert (it.placement(), it.view().leader) == (((2,), (), ()), TWO)


# -- brokers die meanwhile


def test_a_dead_broker_may_be_given_a_replica_and_is_waited_for() -> None:
    it = moving(1, 2, 3)
    it.controlled.lose(FOUR)
    it.move(1, 2, 4)
    assert it.placement() == ((1, 2, 4, 3), (4,), (3,))
    it.controlled.join(FOUR, 2)
    it.in_sync(1, 2, 3, 4)
    assert it.placement() == ((1, 2, 4), (), ())


def test_replicas_on_a_dead_broker_are_moved_away() -> None:
    it = moving(1, 2, 3)
    it.controlled.lose(ONE)
    it.move(2, 3, 4)
    it.in_sync(2, 3, 4)
    assert it.placement() == ((2, 3, 4), (), ())
    assert it.view().leader == TWO


def test_an_added_one_that_dies_is_waited_for_again() -> None:
    it = moving(1, 2, 3)
    it.move(1, 4, 5)
    it.in_sync(1, 2, 3, 4)
    it.controlled.lose(FOUR)
    it.in_sync(1, 2, 3, 5)
    assert it.placement() == ((1, 4, 5, 2, 3), (4, 5), (2, 3))
    it.controlled.join(FOUR, 2)
    it.in_sync(1, 2, 3, 5, 4)
    assert it.placement() == ((1, 4, 5), (), ())


def test_an_added_one_in_sync_may_lead_before_it_is_over() -> None:
    it = moving(1)
    it.move(4, 5)
    it.in_sync(1, 4)
    it.controlled.lose(ONE)
    assert (it.view().leader, it.view().isr) == (FOUR, (FOUR,))
    it.in_sync(4, 5)
    assert it.placement() == ((4, 5), (), ())


def test_an_eligible_one_that_is_elected_may_end_it() -> None:
    it = moving(1, 2, 3, configs={"min.insync.replicas": "2"})
    it.controlled.lose(THREE)
    it.controlled.lose(TWO)
    it.move(2)
    assert (it.view().isr, it.view().elr, it.placement()[2]) == ((ONE,), (TWO,), (1, 3))
    it.controlled.lose(ONE)
    it.controlled.join(TWO, 2)
    assert (it.placement(), it.view().leader) == (((2,), (), ()), TWO)


def test_an_election_that_may_have_lost_records_ends_nothing() -> None:
    """Who is to go may be the last to have them."""
    it = moving(1, configs=UNCLEAN)
    it.move(4)
    it.controlled.lose(ONE)
    assert it.view().leader == NO_LEADER
    it.has_nothing(FOUR)
    assert it.view().leader == FOUR
    assert it.view().lossy_elections == 1
    assert it.placement() == ((4, 1), (4,), (1,))
    it.controlled.join(ONE, 2)
    it.in_sync(4, 1)
    assert it.placement() == ((4,), (), ())
