"""Groups whose members speak both protocols: who may come, what each is asked and told."""

from typing import Any

import pytest

from harness.machines.classic_clients import subscription
from harness.machines.consumer_groups import topic_id
from harness.machines.mixed_groups import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Classic,
    Coordinator,
    Modern,
    turns,
)
from harness.machines.mixed_scenes import code, coordinator, join_request, keep, latest, mixed
from tidelog.node.groups import requests as ask
from tidelog.node.groups.consumer_mixed import MixedGroup
from tidelog.node.groups.embedded import read_assignment
from tidelog.wire.errors import ErrorCode

UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
REBALANCE, FENCED = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- members of the classic protocol in it ------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"protocol_type": "connect"}, INCONSISTENT),
        ({"protocols": ()}, INCONSISTENT),
        ({"protocols": (("other", subscription("t")),)}, INCONSISTENT),
        ({"protocols": (("eager", b"\xff"),)}, INCONSISTENT),
        ({"member_id": "nobody"}, UNKNOWN),
        ({"member_id": "nobody", "instance": "i"}, UNKNOWN),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_who_may_not_join_a_mixed_group_is_told_why(
    changes: dict[str, Any], refused: ErrorCode
) -> None:
    at = coordinator()
    mixed(at)
    assert code(at.answer(join_request(at, changes.pop("member_id", ""), **changes))) == refused


def test_nobody_of_the_classic_protocol_joins_where_that_is_disabled() -> None:
    at = coordinator(group_consumer_migration_policy="disabled")
    Modern(at, "new", "t").turn()
    assert code(at.answer(join_request(at))) == INCONSISTENT


def test_a_full_group_takes_nobody_and_an_id_is_a_place() -> None:
    at = coordinator(group_consumer_max_size=2)
    mixed(at)
    assert code(at.answer(join_request(at))) == ErrorCode.GROUP_MAX_SIZE_REACHED
    at = coordinator(group_consumer_max_size=2)
    Modern(at, "new", "t").turn()
    promised = [at.answer(join_request(at)) for _ in range(3)]
    assert [one.code for one in promised] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert isinstance(at.answer(join_request(at, promised[0].member_id)), ask.Joined)


def test_an_id_that_nobody_came_back_with_expires() -> None:
    at = coordinator()
    new = Modern(at, "new", "t")
    new.turn()
    promised = at.answer(join_request(at)).member_id
    at.wait(SESSION_MS / 1000)
    new.turn()
    assert code(at.answer(join_request(at, promised))) == UNKNOWN


def test_before_version_4_who_joins_without_an_id_is_let_in_at_once() -> None:
    at = coordinator()
    new = Modern(at, "new", "t")
    new.turn()
    joined = at.answer(join_request(at, needs_known_id=False))
    assert (joined.generation, joined.leader, joined.members) == (2, "", ())
    assert joined.member_id


def test_a_member_of_the_classic_protocol_is_held_to_its_generation_and_protocol() -> None:
    at = coordinator()
    one, new = mixed(at)
    epoch = one.generation
    right = ask.Who(one.member_id, None, epoch)
    wrong = ask.Who(one.member_id, None, epoch - 1)
    other = ask.Who(new.member_id, None, new.generation)
    assert code(at.answer(ask.Heartbeat(GROUP, right))) == 0
    for who, refused in ((wrong, ILLEGAL), (other, UNKNOWN), (ask.Who("x", None, 1), UNKNOWN)):
        assert code(at.answer(ask.Heartbeat(GROUP, who))) == refused
        assert code(at.answer(ask.SyncGroup(GROUP, who, "consumer", "eager", ()))) == refused
    for named in (("connect", "eager"), ("consumer", "other")):
        assert code(at.answer(ask.SyncGroup(GROUP, right, *named, ()))) == INCONSISTENT
    assert at.answer(ask.SyncGroup(GROUP, right, None, None, ())).protocol == "eager"


def test_a_commit_of_the_classic_protocol_is_of_its_generation() -> None:
    at = coordinator()
    one, _ = mixed(at)
    place = min(one.uses)
    assert one.commit({place: 3})
    row = ask.OffsetToCommit("t", topic_id("t"), place[1], 4, -1, "")
    lost = next(number for number in range(6) if ("t", number) not in one.uses)

    def commit(generation: int, partition: int) -> ErrorCode:
        who = ask.Who(one.member_id, None, generation)
        rows = (row._replace(partition=partition),)
        return code(at.answer(ask.CommitOffsets(GROUP, who, rows)))

    assert commit(one.generation + 1, place[1]) == ILLEGAL
    assert commit(one.generation - 1, lost) == ILLEGAL
    assert commit(one.generation, place[1]) == 0


def test_it_is_asked_to_join_again_when_it_can_come_further() -> None:
    at = coordinator()
    one, new = mixed(at)
    assert code(at.answer(ask.Heartbeat(GROUP, one.who()))) == 0
    at.topics.set(t=8)
    new.turn()
    assert code(at.answer(ask.Heartbeat(GROUP, one.who()))) == REBALANCE, "the epoch has moved"
    sync = ask.SyncGroup(GROUP, one.who(), "consumer", "eager", ())
    assert code(at.answer(sync)) == REBALANCE
    turns([one, new])
    assert (len(one.uses), len(new.uses)) == (4, 4)


def test_what_it_waits_for_is_told_it_once_all_of_it_is_free() -> None:
    at = coordinator()
    new = Modern(at, "new", "t")
    new.turn()
    one = Classic(at, "one", "t")
    for _ in range(3):
        one.turn()
    assert (one.is_joined, one.uses) == (True, frozenset())
    assert code(at.answer(ask.Heartbeat(GROUP, one.who()))) == 0, "nothing is free yet"
    new.turn()
    new.turn()
    assert code(at.answer(ask.Heartbeat(GROUP, one.who()))) == REBALANCE
    turns([one, new])
    assert (len(one.uses), len(new.uses)) == (3, 3)


# -- time ---------------------------------------------------------------------------------------


def test_its_session_is_its_own() -> None:
    at = coordinator()
    _, new = mixed(at)
    keep(at, SESSION_MS / 1000 + 1, new)
    assert (len(new.uses), latest(at)["trigger"]) == (6, "session time-out")


@pytest.mark.parametrize("owes", ["join", "sync"])
def test_who_neither_joins_nor_syncs_in_time_is_out(owes: str) -> None:
    at = coordinator()
    one, new = mixed(at)
    at.topics.set(t=7)
    new.turn()
    if owes == "sync":
        assert isinstance(at.answer(join_request(at, one.member_id)), ask.Joined)
    for _ in range(REBALANCE_MS // 1000 + 2):
        at.wait(1)
        new.turn()
        at.answer(ask.Heartbeat(GROUP, ask.Who(one.member_id, None, _epoch_of(at, one))))
    assert not _has(at, one)
    assert latest(at)["trigger"] == "rebalance time-out"
    turns([new])
    assert len(new.uses) == 7


def _epoch_of(at: Coordinator, member: Classic) -> int:
    group = at.group
    assert isinstance(group, MixedGroup)
    known = group.log.members.get(member.member_id)
    return -1 if known is None else known.epoch


def _has(at: Coordinator, member: Classic) -> bool:
    group = at.group
    return isinstance(group, MixedGroup) and member.member_id in group.log.members


def test_one_whose_connection_ended_has_little_time() -> None:
    at = coordinator(group_member_disconnect_ms=500)
    one, new = mixed(at)
    at.answer(ask.MemberDisconnected(GROUP, one.member_id))
    at.answer(ask.MemberDisconnected(GROUP, "nobody"))
    at.wait(1)
    assert not _has(at, one)
    turns([new])
    assert len(new.uses) == 6


# -- static members -----------------------------------------------------------------------------


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_static_member_changes_its_protocol_in_place(*, up: bool) -> None:
    at = coordinator()
    kinds: list[type[Classic | Modern]] = [Classic, Modern] if up else [Modern, Classic]
    (other,) = (Modern(at, "other", "t"),)
    before = kinds[0](at, "before", "t", instance="i")
    turns([other, before])
    mine = before.uses
    epoch = at.number()
    if not up:
        before.leave()
    after = kinds[1](at, "after", "t", instance="i")
    turns([after, other])
    assert (after.uses, at.number()) == (mine, epoch), "nobody else had to move"
    before.turn()
    before.turn()
    assert before.is_fenced or not before.uses


def test_a_static_member_of_the_classic_protocol_that_starts_again_fences_its_former_self() -> None:
    at = coordinator()
    other = Modern(at, "other", "t")
    one = Classic(at, "one", "t", instance="i")
    turns([other, one])
    again = Classic(at, "again", "t", instance="i")
    turns([again, other])
    assert again.uses
    assert code(at.answer(ask.Heartbeat(GROUP, one.who()))) == FENCED
    assert code(at.answer(join_request(at, one.member_id, instance="i"))) == FENCED
    leaving = ask.LeavingMember(one.member_id, "i")
    assert at.answer(ask.LeaveGroup(GROUP, (leaving,))) == (FENCED,)


@pytest.mark.parametrize("is_modern", [False, True])
def test_a_static_member_started_again_in_mid_revocation_leaves_what_it_was_asked_for(
    *, is_modern: bool
) -> None:
    """Its former self cannot say any more that it gave that up. The log never says of a member that
    owes nothing that it does."""
    at = coordinator()
    new = Modern(at, "new", "t")
    one = Classic(at, "one", "t", instance="i", cooperative=True)
    turns([new, one])
    more = Modern(at, "more", "t")
    more.turn()
    while not revoking(at, one.member_id):
        one.turn()
    again: Classic | Modern = Classic(at, "again", "t", instance="i", cooperative=True)
    if is_modern:
        again = Modern(at, "again", "t", instance="i")
    again.turn()
    assert not revoking(at, one.member_id)
    turns([again, more, new])
    assert sorted(len(each.uses) for each in (again, more, new)) == [2, 2, 2]


def revoking(at: Coordinator, member_id: str) -> bool:
    group = at.group
    assert isinstance(group, MixedGroup)
    member = group.log.members.get(member_id)
    return member is not None and bool(member.revoking)


def test_a_member_of_the_consumer_protocol_does_not_commit_by_an_old_request() -> None:
    at = coordinator()
    one, new = mixed(at)

    def commit(member: Classic | Modern) -> ErrorCode:
        ((_, partition), *_) = sorted(member.uses)
        row = ask.OffsetToCommit("t", topic_id("t"), partition, 1, -1, "")
        asked = ask.CommitOffsets(GROUP, member.who(), (row,), knows_epochs=False)
        return code(at.answer(asked))

    assert commit(new) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(one) == 0


def test_a_topic_that_is_gone_is_in_nobody_s_share() -> None:
    at = coordinator()
    at.topics.set(u=2)
    one = Classic(at, "one", "t", "u")
    turns([one])
    at.wait(1)
    turns([one])
    assert len(one.uses) == 8
    at.topics.drop("u")
    new = Modern(at, "new", "t", "u")
    turns([new, one])
    assert one.uses | new.uses == {("t", number) for number in range(6)}
    at.topics.set(v=2)
    more = Modern(at, "more", "v")
    classic = Classic(at, "classic", "v")
    turns([more, classic, new, one])
    assert len(classic.uses) == 1
    at.topics.drop("v")
    answer = at.answer(ask.SyncGroup(GROUP, classic.who(), None, None, ()))
    assert read_assignment(answer.assignment) == {}
