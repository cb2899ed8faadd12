"""Every reason why a classic group rebalances, and what its members see of it."""

from pathlib import Path

import pytest

from harness.machines.classic_clients import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    described,
    form,
    history,
    subscription,
)
from harness.machines.group_bench import GroupBench, commit, elected_again, fetch_offsets
from tidelog.wire.errors import ErrorCode

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def test_one_member_is_a_group_of_its_own(bench: GroupBench) -> None:
    one = Client(bench)
    assert form(bench, one) == {one.member_id: b"part of " + one.member_id.encode()}
    assert (one.generation, one.leads, one.beat()) == (1, True, 0)


def test_members_started_together_make_one_generation(bench: GroupBench) -> None:
    clients = [Client(bench) for _ in range(5)]
    form(bench, *clients)
    assert {client.generation for client in clients} == {1}


def test_a_join_has_the_others_join_again(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one)
    two.get_id()
    joining = two.start_joining()
    assert joining.answer() is None
    assert one.beat() == REBALANCE
    again = one.start_joining()
    assert (one.take(again.answer()), two.take(joining.answer())) == (0, 0)
    assert (one.generation, two.generation, one.leads, two.leads) == (2, 2, True, False)
    latest = history(bench).latest
    assert (latest.cause.trigger, latest.cause.member.member_id) == ("join", two.member_id)
    assert latest.last.member_id == one.member_id


def test_a_leave_moves_the_partitions_of_who_left(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    assert two.leave() == 0
    assert one.beat() == REBALANCE
    assert list(form(bench, one)) == [one.member_id]
    assert one.generation == 2
    assert two.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    cause = history(bench).latest.cause
    assert (cause.trigger, cause.member.member_id, cause.reason) == (
        "leave",
        two.member_id,
        "enough",
    )


def test_the_last_leave_empties_the_group(bench: GroupBench) -> None:
    one = Client(bench)
    form(bench, one)
    assert one.leave() == 0
    assert described(bench).group_state == "Empty"
    assert commit(bench, "g", {"t": [1]}) == [0]


def test_a_session_time_out_removes_who_is_silent(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    bench.later(SESSION_MS - 1)
    assert one.beat() == 0
    bench.later(2)
    assert one.beat() == REBALANCE
    form(bench, one)
    cause = history(bench).latest.cause
    assert (cause.trigger, cause.member.member_id) == ("session time-out", two.member_id)


def test_who_waits_for_the_others_is_not_silent(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, session_ms=60_000)
    form(bench, one, two)
    again = one.start_joining()  # it leads, so that all join again
    bench.later(SESSION_MS + 1_000)
    assert again.answer() is None
    assert two.take(two.start_joining().answer()) == 0
    assert one.take(again.answer()) == 0


def test_a_rebalance_time_out_gives_up_who_does_not_join(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, session_ms=60_000)
    form(bench, one, two)
    again = one.start_joining()
    bench.later(REBALANCE_MS - 1)
    assert two.beat() == REBALANCE
    assert again.answer() is None
    bench.later(1)
    assert one.take(again.answer()) == 0
    assert one.members == [one.member_id]
    assert [gone.member_id for gone in history(bench).latest.given_up] == [two.member_id]
    assert two.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_time_out_gives_up_who_does_not_ask_for_its_assignment(
    bench: GroupBench,
) -> None:
    clients = [Client(bench, session_ms=60_000) for _ in range(2)]
    for client in clients:
        client.get_id()
    joining = [client.start_joining() for client in clients]
    bench.later(150)
    for client, asked in zip(clients, joining, strict=True):
        client.take(asked.answer())
    leader, other = clients
    waits = other.start_syncing()
    bench.later(REBALANCE_MS)
    assert waits.answer().error_code == REBALANCE
    assert history(bench).latest.cause.trigger == "rebalance time-out"
    assert leader.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(form(bench, other)) == [other.member_id]


def test_a_changed_subscription_rebalances(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    two.protocols = {"range": subscription("t", "new")}
    again = two.start_joining()
    assert again.answer() is None
    assert one.beat() == REBALANCE
    cause = history(bench).latest.cause
    assert (cause.trigger, cause.member.member_id) == ("subscription change", two.member_id)


def test_the_leader_may_ask_for_a_rebalance_as_it_does_when_topics_grow(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    assert one.leads
    again = one.start_joining(reason="cached metadata has changed")
    assert again.answer() is None
    assert two.beat() == REBALANCE
    cause = history(bench).latest.cause
    assert (cause.trigger, cause.reason) == ("leader asks", "cached metadata has changed")


def test_a_follower_that_joins_again_unchanged_rebalances_nobody(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    assert two.take(two.start_joining().answer()) == 0
    assert (two.generation, one.beat(), two.members) == (1, 0, [])


def test_a_moved_coordinator_knows_generation_members_and_assignments(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    parts = form(bench, one, two)
    elected_again(bench, epoch=1)
    assert one.beat() == 0  # nothing is known of it yet, and nothing held against it
    assert one.start_syncing().answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.load()
    assert (one.beat(), two.beat()) == (0, 0)
    assert two.start_syncing().answer().assignment == parts[two.member_id]
    assert described(bench).group_state == "Stable"
    bench.later(SESSION_MS + 1)
    assert one.beat() == ErrorCode.UNKNOWN_MEMBER_ID  # its time began anew with the coordinator


def test_a_coordinator_that_moves_in_a_rebalance_never_gives_its_generation_again(
    bench: GroupBench,
) -> None:
    one = Client(bench)
    form(bench, one)
    two = Client(bench)
    two.get_id()
    joining = two.start_joining()
    again = one.start_joining()
    assert (one.take(again.answer()), two.take(joining.answer())) == (0, 0)
    waits = two.start_syncing()
    elected_again(bench, epoch=1)
    assert waits.answer().error_code == ErrorCode.NOT_COORDINATOR
    bench.load()
    assert history(bench).latest.cause.trigger == "coordinator moved"
    assert two.start_syncing().answer().error_code == REBALANCE
    form(bench, one, two)
    assert (one.generation, two.generation) == (3, 3)


def test_a_static_member_that_comes_back_takes_its_own_place(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, instance="two")
    parts = form(bench, one, two)
    former, two.member_id = two.member_id, ""
    assert two.take(two.start_joining().answer()) == 0
    assert (two.generation, one.beat()) == (1, 0)
    assert two.member_id != former
    assert two.start_syncing().answer().assignment == parts[former]
    two.member_id = former
    assert two.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert two.leave() == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_with_another_protocol_rebalances(bench: GroupBench) -> None:
    both = {"range": subscription("t"), "sticky": subscription("t")}
    one = Client(bench, protocols=both)
    two = Client(bench, protocols=dict(both), instance="two")
    form(bench, one, two)
    two.member_id = ""
    two.protocols = {"sticky": subscription("t")}
    again = two.start_joining()
    assert again.answer() is None
    assert one.beat() == REBALANCE
    cause = history(bench).latest.cause
    assert cause.trigger == "static member replaced"


def test_a_static_leader_comes_back_and_need_not_assign_anew(bench: GroupBench) -> None:
    one, two = Client(bench, instance="one"), Client(bench)
    form(bench, one, two)
    assert one.leads
    one.member_id = ""
    answer = one.start_joining().answer()
    assert (answer.skip_assignment, answer.leader) == (True, answer.member_id)
    assert len(answer.members) == 2
    one.member_id = ""
    older = one.start_joining(version=8).answer()
    assert older.leader != older.member_id, "it would assign anew"
    assert two.beat() == 0


def test_a_static_member_keeps_its_place_over_a_move_of_the_coordinator(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, instance="two")
    parts = form(bench, one, two)
    former, two.member_id = two.member_id, ""
    assert two.take(two.start_joining().answer()) == 0
    elected_again(bench, epoch=1)
    bench.load()
    assert (one.beat(), two.beat()) == (0, 0)
    assert two.start_syncing().answer().assignment == parts[former]


def test_offsets_of_a_group_stay_while_somebody_is_in_it(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", offsets_retention_minutes="60")
    bench.topic("t", 1)
    one = Client(bench, session_ms=1_800_000)
    form(bench, one)
    member = {"generation_id_or_member_epoch": 1, "member_id": one.member_id}
    assert commit(bench, "g", {"t": [5]}, **member) == [0]
    for _ in range(6):
        bench.later(1_200_000)
        assert one.beat() == 0
    assert fetch_offsets(bench, "g") == {("t", 0): 5}
    one.leave()
    bench.later(3_000_000)
    assert fetch_offsets(bench, "g") == {("t", 0): 5}
    bench.later(1_800_000)
    assert fetch_offsets(bench, "g") == {}
    assert described(bench).group_state == "Dead"


def test_a_member_whose_connection_ended_has_left_where_the_broker_says_so(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", group_member_disconnect_ms="500")
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    asked = two.start_syncing()
    assert asked.answer().error_code == 0
    asked.client.session.abandon()
    bench.later(499)
    assert one.beat() == 0
    bench.later(1)
    assert one.beat() == REBALANCE
    cause = history(bench).latest.cause
    assert (cause.trigger, cause.member.member_id) == ("connection ended", two.member_id)


def test_a_member_that_comes_back_on_another_connection_has_not_left(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", group_member_disconnect_ms="500")
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    asked = two.start_syncing()
    asked.client.session.abandon()
    bench.later(400)
    assert two.beat() == 0
    bench.later(200)
    assert (one.beat(), two.beat()) == (0, 0)


def test_who_is_gone_while_it_waits_for_the_others_holds_them_up_no_longer(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", group_member_disconnect_ms="500")
    one, two = Client(bench), Client(bench)
    form(bench, one)
    two.get_id()
    asked = two.start_joining()
    asked.client.session.abandon()
    bench.later(500)
    again = one.start_joining()
    assert one.take(again.answer()) == 0
    assert one.members == [one.member_id]
