"""Named scenario 5.17: replicas that move while the coordinator, or somebody else, is killed."""

import pytest

from harness.simulation.cluster import A, B, C, D
from harness.simulation.moves import Move
from tidelog.kernel.ids import BrokerId
from tidelog.wire.errors import ErrorCode


@pytest.fixture
def move() -> Move:
    return Move()


def test_replicas_move_and_the_old_files_go(move: Move) -> None:
    epoch = move.view.leader_epoch
    assert move.cluster.reassign(B, C, D) == [0, 0]
    move.until_settled_on(B, C, D)
    assert move.leader() == B
    assert move.view.leader_epoch == epoch + 1
    move.check(B, C, D)


def test_killed_before_the_first_record_is_on_disk_nothing_has_changed_and_the_next_is_asked_again(
    move: Move,
) -> None:
    """5.17 (1)."""
    before = move.view
    move.begin(B, C, D)
    move.cluster.until(lambda: bool(move.undecided()))
    move.restart_coordinator(forgets=True)
    assert (move.view.replicas, move.view.leader) == (before.replicas, before.leader)
    assert move.placement() == ((A, B, C), set(), set())
    assert move.holders() == {A, B, C}
    move.until_settled_on(B, C, D)
    move.check(B, C, D)


def test_killed_when_the_first_record_is_on_disk_the_next_one_goes_on(move: Move) -> None:
    """5.17 (2)."""
    controllers, epoch = move.cluster.image.controller_epoch, move.view.leader_epoch
    move.hold_back(D)
    move.begin(B, C, D)
    move.until_moving()
    assert move.placement() == ((B, C, D, A), {D}, {A})
    move.restart_coordinator()
    move.cluster.run(1_000)
    assert move.placement() == ((B, C, D, A), {D}, {A})
    move.let_go()
    move.until_settled_on(B, C, D)
    assert move.cluster.image.controller_epoch == controllers + 1
    assert (move.leader(), move.view.leader_epoch) == (B, epoch + 1)
    move.check(B, C, D)


def test_killed_before_the_last_record_is_on_disk_it_is_proposed_again(move: Move) -> None:
    """5.17 (3): the ISR and the replicas change with one record, so it is there or it is not."""
    move.begin(B, C, D)
    move.until_moving()
    move.cluster.until(lambda: any(not one.view.is_moving for one in move.undecided()))
    assert move.holders() >= {A, B, C}
    move.restart_coordinator(forgets=True)
    assert move.placement() == ((B, C, D, A), {D}, {A})
    assert A in move.holders()
    move.until_settled_on(B, C, D)
    move.check(B, C, D)


def test_killed_when_the_last_record_is_on_disk_the_old_files_go_when_they_hear_of_it(
    move: Move,
) -> None:
    """5.17 (4): A has not heard of it, and keeps its files until it has."""
    move.begin(B, C, D)
    move.until_moving()
    move.cluster.until(move.leader_knows)
    move.cluster.network.cut_from(3_000, A)
    move.cluster.until(lambda: move.view.replicas == (B, C, D))
    move.cluster.run(50)
    assert A in move.holders()
    move.cluster.kill_coordinator()
    move.cluster.run(50)
    assert A in move.holders()
    move.cluster.start_coordinator()
    move.cluster.mend_all()
    move.until_settled_on(B, C, D)
    move.check(B, C, D)


# -- cancelled, replaced, interrupted


def test_cancelled_in_the_middle_it_is_what_it_was_and_what_was_added_goes(move: Move) -> None:
    """5.17, its last sentence."""
    move.hold_back(D)
    assert move.cluster.reassign(B, C, D) == [0, 0]
    move.cluster.run(500)
    assert D in move.holders()
    assert move.cluster.reassign() == [0, 0]
    move.until_settled_on(B, C, A)
    assert move.leader() == A
    move.check(A, B, C)
    assert move.cluster.reassign() == [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_the_same_replica_comes_back_and_begins_anew(move: Move) -> None:
    """What it vouched for before it went must not count, also where the leader hears of both at
    once."""
    move.away_and_back()
    move.check(A, B, C, D)


def test_another_target_takes_the_place_of_the_first() -> None:
    move = Move(A, B)
    move.hold_back(C)
    move.cluster.reassign(B, C)
    move.cluster.run(200)
    move.cluster.reassign(B, D)
    move.until_settled_on(B, D)
    move.check(B, D)


def test_the_only_replica_moves_and_no_write_is_refused() -> None:
    """`min.insync.replicas` 2 asks for one where there is one, and for no more meanwhile."""
    move = Move(A)
    move.hold_back(D)
    move.cluster.reassign(D)
    move.wrote(A, 3)
    move.let_go()
    move.until_settled_on(D)
    move.check(D)


@pytest.mark.parametrize("dies", [A, B, D])
def test_a_broker_that_dies_in_the_middle_is_waited_for(move: Move, dies: BrokerId) -> None:
    move.hold_back(D)
    move.cluster.reassign(B, C, D)
    move.cluster.run(100)
    move.cluster.kill(dies)
    move.let_go()
    move.wrote(move.the_leader(), 3)
    move.cluster.run(1_000)
    assert move.view.is_moving == (dies != A)  # it moves away from a dead one, too
    move.start(dies)
    move.until_settled_on(B, C, D)
    move.check(B, C, D)


def test_who_was_away_when_its_replica_went_deletes_it_when_it_returns(move: Move) -> None:
    move.cluster.kill(A)
    move.cluster.reassign(B, C, D)
    move.until_settled_on(B, C, D)
    move.start(A)
    move.until_settled_on(B, C, D)
    assert "t-0" not in move.cluster.disks[A].directory().names()
    move.check(B, C, D)


def test_who_was_away_while_its_replica_went_and_came_keeps_what_it_has(move: Move) -> None:
    move.cluster.kill(A)
    move.cluster.reassign(B, C, D)
    move.until_settled_on(B, C, D)
    move.wrote(B, 5)
    move.cluster.reassign(A, B, C)
    move.start(A)
    move.until_settled_on(A, B, C)
    move.check(A, B, C)


def test_a_broker_that_leaves_in_the_middle_hands_over_and_it_goes_on(move: Move) -> None:
    move.hold_back(D)
    move.cluster.reassign(B, C, D)
    move.cluster.stop(A)
    move.let_go()
    move.until_settled_on(B, C, D)
    move.start(A)
    move.until_settled_on(B, C, D)
    move.check(B, C, D)


def test_a_topic_is_deleted_in_the_middle_and_nothing_stays(move: Move) -> None:
    move.hold_back(D)
    move.cluster.reassign(B, C, D)
    move.cluster.run(100)
    move.cluster.delete("t")
    move.cluster.until(lambda: move.holders() == set())
    assert move.cluster.image.names == {}
