"""Classic groups: who is let in, who is refused and with which code, what is told of them."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.classic_clients import (
    SESSION_MS,
    Client,
    described,
    form,
    join_all,
    listed,
    subscription,
)
from harness.machines.group_bench import GroupBench, commit, elected_again, fetch_offsets
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import (
    k13_leave_group,
    k14_sync_group,
    k42_delete_groups,
    k47_offset_delete,
)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", group_max_size="3")
    bench.topic("t", 3)
    bench.topic("u", 1)
    return bench


def refused(client: Client, version: int = 9) -> int:
    answer = client.start_joining(version).answer()
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
    return int(answer.error_code)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"other": b""}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "group": "new"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_not_join_is_told_why(
    bench: GroupBench, changes: dict[str, Any], code: ErrorCode
) -> None:
    form(bench, Client(bench))
    client = Client(bench)
    for name, value in changes.items():
        setattr(client, name, value)
    assert refused(client) == code


def test_a_refusal_names_no_protocol_and_old_clients_read_no_null(bench: GroupBench) -> None:
    client = Client(bench, session_ms=1)
    assert client.start_joining(6).answer().protocol_name == ""
    assert client.start_joining(7).answer().protocol_name is None


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_without_an_id_is_let_in_at_once(
    bench: GroupBench, version: int
) -> None:
    asked = Client(bench).start_joining(version)
    bench.later(60)
    assert (asked.answer().error_code, asked.answer().generation_id) == (0, 1)


def test_an_id_that_nobody_came_back_with_expires(bench: GroupBench) -> None:
    client = Client(bench)
    client.get_id()
    bench.later(client.session_ms)
    assert refused(client) == ErrorCode.UNKNOWN_MEMBER_ID
    assert listed(bench) == []


def test_a_group_holds_no_more_members_than_its_broker_allows(bench: GroupBench) -> None:
    form(bench, *[Client(bench) for _ in range(3)])
    assert refused(Client(bench)) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_ids_given_away_are_bounded_too(bench: GroupBench) -> None:
    for _ in range(3):
        Client(bench).get_id()
    assert refused(Client(bench)) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_protocol_that_most_members_like_is_chosen(bench: GroupBench) -> None:
    ours = subscription("t")
    likes = (["a", "b"], ["b", "a"], ["c", "b", "a"])
    clients = [Client(bench, protocols=dict.fromkeys(names, ours)) for names in likes]
    for client in clients:
        client.get_id()
    joining = [client.start_joining() for client in clients]
    bench.later(150)
    assert [asked.answer().protocol_name for asked in joining] == ["b", "b", "b"]


def test_a_member_asks_twice_where_its_first_answer_was_lost(bench: GroupBench) -> None:
    client = Client(bench)
    client.get_id()
    lost = client.start_joining()
    bench.later(60)
    assert lost.answer().error_code == 0
    assert client.take(client.start_joining().answer()) == 0
    assert (client.generation, client.members) == (1, [client.member_id])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"instance": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_request_of_nobody_in_this_generation_is_refused(
    bench: GroupBench, changes: dict[str, Any], code: ErrorCode
) -> None:
    client = Client(bench)
    form(bench, client)
    for name, value in changes.items():
        setattr(client, name, value)
    assert client.start_syncing().answer().error_code == code
    assert client.beat() == code


def test_a_sync_must_name_the_protocol_that_was_chosen(bench: GroupBench) -> None:
    client = Client(bench)
    form(bench, client)
    client.protocols = {"other": b""}
    assert client.start_syncing().answer().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = k14_sync_group.SyncGroupRequest(
        group_id="g", generation_id=client.generation, member_id=client.member_id
    )
    answer = bench.ask(k14_sync_group.API, 5, request)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.ask(k14_sync_group.API, 3, request).error_code == 0


def test_only_the_owner_in_this_generation_commits(bench: GroupBench) -> None:
    client = Client(bench)
    form(bench, client)

    def code(**fields: Any) -> int:
        return int(commit(bench, "g", {"t": [1]}, **fields)[0])

    own = {"member_id": client.member_id, "generation_id_or_member_epoch": client.generation}
    assert code(**own) == 0
    assert code() == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(**own | {"generation_id_or_member_epoch": 0}) == ErrorCode.ILLEGAL_GENERATION
    assert code(**own | {"member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
    other = Client(bench)
    other.get_id()
    joining = other.start_joining()
    assert code(**own) == 0, "who is about to join anew commits first"
    client.take(client.start_joining().answer())
    assert joining.answer().error_code == 0
    own = {"member_id": client.member_id, "generation_id_or_member_epoch": client.generation}
    assert code(**own) == ErrorCode.REBALANCE_IN_PROGRESS


def test_many_leave_at_once_and_each_is_told(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, instance="i")
    form(bench, one, two)
    members = [
        k13_leave_group.MemberIdentity(member_id=one.member_id),
        k13_leave_group.MemberIdentity(member_id="", group_instance_id="i"),
        k13_leave_group.MemberIdentity(member_id="x"),
    ]
    request = k13_leave_group.LeaveGroupRequest(group_id="g", members=members)
    answer = bench.ask(k13_leave_group.API, 4, request)
    assert [row.error_code for row in answer.members] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert described(bench).group_state == "Empty"
    alone = k13_leave_group.LeaveGroupRequest(group_id="g", member_id="x")
    assert bench.ask(k13_leave_group.API, 2, alone).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_described_with_members_and_assignments(bench: GroupBench) -> None:
    client = Client(bench, instance="i")
    parts = form(bench, client)
    found = described(bench)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.group_instance_id) == (client.member_id, "i")
    assert (member.client_id, member.client_host) == ("raw-test", "/127.0.0.1")
    assert member.member_metadata == subscription("t")
    assert member.member_assignment == parts[client.member_id]


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(bench: GroupBench, version: int, code: int) -> None:
    found = described(bench, version=version)
    assert (found.group_state, found.error_code) == ("Dead", code)


def test_groups_are_listed_by_state_and_type(bench: GroupBench) -> None:
    form(bench, Client(bench, "stable"))
    Client(bench, "pending").get_id()
    commit(bench, "simple", {"t": [1]})
    rows = {
        "simple": ("simple", "", "Empty", "classic"),
        "pending": ("pending", "", "Empty", "classic"),
        "stable": ("stable", "consumer", "Stable", "classic"),
    }
    assert listed(bench) == [rows["pending"], rows["simple"], rows["stable"]]
    assert listed(bench, ("stable",)) == [rows["stable"]]
    assert listed(bench, ("Empty",), ("classic",)) == [rows["pending"], rows["simple"]]
    assert listed(bench, types=("consumer",)) == []


def test_a_group_is_deleted_once_nobody_is_in_it(bench: GroupBench) -> None:
    client = Client(bench)
    form(bench, client)
    member = {"member_id": client.member_id, "generation_id_or_member_epoch": 1}
    commit(bench, "g", {"t": [4]}, **member)
    commit(bench, "simple", {"t": [1]})
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=["g", "simple", "none"])

    def codes() -> list[int]:
        results = bench.ask(k42_delete_groups.API, 2, request).results
        return [row.error_code for row in results]

    assert codes() == [ErrorCode.NON_EMPTY_GROUP, 0, ErrorCode.GROUP_ID_NOT_FOUND]
    client.leave()
    assert codes() == [0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND]
    elected_again(bench, epoch=1)
    bench.load()
    assert fetch_offsets(bench, "g") == {}
    assert listed(bench) == []


def delete_offsets(bench: GroupBench, group: str, *topics: str) -> list[int] | int:
    request = k47_offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            k47_offset_delete.OffsetDeleteRequestTopic(
                name=name,
                partitions=[k47_offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
            )
            for name in topics
        ],
    )
    answer = bench.ask(k47_offset_delete.API, 0, request)
    if answer.error_code:
        return int(answer.error_code)
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def test_offsets_of_topics_that_nobody_reads_are_deleted(bench: GroupBench) -> None:
    client = Client(bench)
    form(bench, client)
    member = {"member_id": client.member_id, "generation_id_or_member_epoch": 1}
    commit(bench, "g", {"t": [4], "u": [5]}, **member)
    assert delete_offsets(bench, "g", "t", "u", "nowhere") == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert fetch_offsets(bench, "g") == {("t", 0): 4}
    client.leave()
    assert delete_offsets(bench, "g", "t") == [0]
    assert delete_offsets(bench, "none", "t") == ErrorCode.GROUP_ID_NOT_FOUND
    form(bench, Client(bench, "other", protocol_type="connect"))
    assert delete_offsets(bench, "other", "t") == ErrorCode.NON_EMPTY_GROUP


def test_a_join_says_nothing_before_the_generation_is_complete(bench: GroupBench) -> None:
    client = Client(bench)
    client.get_id()
    asked = client.start_joining()
    bench.later(19)
    assert asked.answer() is None
    assert described(bench).group_state == "PreparingRebalance"
    bench.later(1)
    assert asked.answer().error_code == 0
    assert described(bench).group_state == "CompletingRebalance"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_a_static_member_that_gives_itself_no_time_to_join_stops_nobody(
    bench: GroupBench, rebalance_ms: int
) -> None:
    """Alone and away while the group gathers, it is waited for again and again."""
    away = Client(bench, instance="i", session_ms=300_000, rebalance_ms=rebalance_ms)
    other = Client(bench, rebalance_ms=5_000)
    form(bench, away, other)
    assert other.leave() == 0
    bench.later(60_000)
    assert described(bench).group_state == "PreparingRebalance"
    form(bench, away, Client(bench))


def test_a_static_member_that_is_away_while_the_others_sync_is_given_up(bench: GroupBench) -> None:
    """It may come back for as long as a rebalance takes, however long its session is."""
    away = Client(bench, instance="i", session_ms=300_000, rebalance_ms=5_000)
    other = Client(bench, rebalance_ms=5_000, session_ms=60_000)
    form(bench, other, away)
    assert other.leads
    joining = other.start_joining()
    bench.later(5_000)
    assert other.take(joining.answer()) == 0
    assert sorted(other.members) == sorted([other.member_id, away.member_id])
    assert other.start_syncing({other.member_id: b"all"}).answer().error_code == 0
    assert {one.member_id for one in described(bench).members} == {other.member_id, away.member_id}
    bench.later(5_000)
    assert {one.member_id for one in described(bench).members} == {other.member_id}
    assert other.beat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_a_new_coordinator_loads_have_their_whole_session_ahead(
    bench: GroupBench,
) -> None:
    form(bench, Client(bench))
    bench.later(SESSION_MS - 1_000)
    elected_again(bench, epoch=1)
    bench.load()
    bench.later(SESSION_MS - 1)
    assert described(bench).group_state == "Stable"
    bench.later(1)
    assert described(bench).group_state == "Empty"


def test_a_new_coordinator_waits_for_all_to_join_for_as_long_as_a_rebalance_takes(
    bench: GroupBench,
) -> None:
    """The group had joined, and its leader had not shared out anything yet."""
    comes, stays_away = (Client(bench, session_ms=300_000, rebalance_ms=5_000) for _ in range(2))
    join_all(bench, comes, stays_away)
    elected_again(bench, epoch=1)
    bench.load()
    assert described(bench).group_state == "PreparingRebalance"
    joining = comes.start_joining()
    bench.later(4_999)
    assert joining.answer() is None
    bench.later(1)
    assert comes.take(joining.answer()) == 0
    assert comes.members == [comes.member_id]


def test_a_new_coordinator_takes_a_group_with_one_assignment_for_shared_out(
    bench: GroupBench,
) -> None:
    """A member may have been given nothing."""
    leads, follows = Client(bench), Client(bench)
    join_all(bench, leads, follows)
    assert leads.leads
    assert leads.start_syncing({leads.member_id: b"all"}).answer().error_code == 0
    elected_again(bench, epoch=1)
    bench.load()
    assert described(bench).group_state == "Stable"
