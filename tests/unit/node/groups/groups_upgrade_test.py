"""When a group changes its protocol while its members are at work, and what becomes of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from harness.machines.classic_clients import subscription
from harness.machines.mixed_groups import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Classic,
    Coordinator,
    Modern,
    turns,
)
from harness.machines.mixed_scenes import (
    code,
    coordinator,
    formed,
    join_request,
    keep,
    latest,
    mixed,
)
from tidelog.node.groups import codec
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.consumer_mixed import MixedGroup
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from tidelog.node.groups.records import GroupRecord
from tidelog.node.groups.records_consumer import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerRecord,
)
from tidelog.wire.errors import ErrorCode

UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
REBALANCE, FENCED = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- up -----------------------------------------------------------------------------------------


def test_the_first_member_of_the_consumer_protocol_changes_the_group_and_nobody_stops() -> None:
    at = coordinator()
    one, two = formed(at, "one", "two")
    before = one.uses, two.uses
    new = Modern(at, "new", "t")
    new.turn()
    assert isinstance(at.group, MixedGroup)
    assert (one.uses, two.uses) == before
    assert (new.uses, new.generation) == (frozenset(), 2), "others have everything yet"
    turns([one, two, new])
    assert [len(member.uses) for member in (one, two, new)] == [2, 2, 2]
    assert (latest(at)["kind"], latest(at)["trigger"], latest(at)["client"]) == (
        "consumer",
        "join",
        "new",
    )


def test_a_cooperative_member_gives_up_only_what_goes_to_others() -> None:
    at = coordinator()
    (one,) = formed(at, "one", cooperative=True)
    new = Modern(at, "new", "t")
    new.turn()
    had = one.uses
    for _ in range(6):
        one.turn()
        assert one.uses <= had
        assert len(one.uses) >= 3, "it never stops reading what it keeps"
    turns([one, new])
    assert (len(one.uses), len(new.uses)) == (3, 3)


def test_what_the_log_says_of_the_change_is_kafka_s_form() -> None:
    at = coordinator()
    (one,) = formed(at, "one")
    written = len(at.written)
    Modern(at, "new", "t").turn()
    records = [codec.read(key, value) for key, value in at.written[written:]]
    assert records[0] == GroupRecord(GROUP, None)
    said = {
        record.key.member: record.value
        for record in records
        if isinstance(record, ConsumerRecord)
        and isinstance(record.key, ConsumerGroupMemberMetadataKey)
        and isinstance(record.value, ConsumerGroupMemberMetadataValue)
    }
    side = said[one.member_id].classic_member_metadata
    assert side is not None
    assert (side.session_timeout_ms, said[one.member_id].subscribed_topic_names) == (
        SESSION_MS,
        ["t"],
    )
    assert [(row.name, bytes(row.metadata)) for row in side.supported_protocols] == [
        ("eager", subscription("t"))
    ]
    assert said["new"].classic_member_metadata is None


@pytest.mark.parametrize("compacted", [False, True])
def test_a_fail_over_keeps_who_speaks_what(*, compacted: bool) -> None:
    at = coordinator()
    one, two = formed(at, "one", "two")
    new = Modern(at, "new", "t")
    turns([one, two, new])
    before = one.uses, two.uses, new.uses
    at.restart(compacted=compacted)
    turns([one, two, new])
    assert (one.uses, two.uses, new.uses) == before
    described = at.answer(DescribeConsumerGroup(GROUP))
    kinds = {row.client_id: row.member_type for row in described.members}
    assert kinds == {"one": 0, "two": 0, "new": 1}


def test_who_waits_while_the_group_changes_is_asked_to_come_again() -> None:
    at = coordinator()
    one, _ = formed(at, "one", "two")
    joins = at.ask(join_request(at, one.member_id))
    assert joins not in at.answers
    Modern(at, "new", "t").turn()
    assert code(at.answers[joins]) == REBALANCE


def test_who_waits_for_its_share_while_the_group_changes_is_asked_to_join_again() -> None:
    at = coordinator()
    leader, other = Classic(at, "leader", "t"), Classic(at, "other", "t")
    turns([leader, other], 2)
    at.wait(1)
    other.turn()
    syncs = other.pending
    assert syncs is not None
    assert at.group is not None
    assert at.group.state == "CompletingRebalance"
    Modern(at, "new", "t").turn()
    assert code(at.answers[syncs]) == REBALANCE


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"group_consumer_migration_policy": "disabled"}, "group.consumer.migration.policy"),
        ({"group_consumer_migration_policy": "downgrade"}, "group.consumer.migration.policy"),
        ({"group_consumer_max_size": 1}, "more members than group.consumer.max.size"),
    ],
)
def test_a_group_that_may_not_change_turns_the_other_protocol_away(
    settings: Mapping[str, int | str], why: str
) -> None:
    at = coordinator(**settings)
    one, two = formed(at, "one", "two")
    answer = _heartbeat(at, "new")
    assert answer.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert why in answer.detail
    assert one.uses | two.uses
    assert isinstance(at.group, ClassicGroup)


def _heartbeat(at: Coordinator, member: str) -> Any:
    return at.answer(
        ConsumerHeartbeat(
            GROUP, member, 0, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned=()
        )
    )


@pytest.mark.parametrize(
    ("changes", "share", "why"),
    [
        ({"protocol_type": "connect"}, b"", "no consumers"),
        ({"protocols": (("eager", b"\xff"),)}, b"", "subscription of one of its members"),
        ({}, b"\x00\x00\xff", "assignment of one of its members"),
        ({}, b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x", "data of its own"),
    ],
)
def test_a_group_that_cannot_be_read_stays_classic(
    changes: dict[str, Any], share: bytes, why: str
) -> None:
    at = coordinator()
    asked = at.ask(join_request(at, needs_known_id=False, **changes))
    at.wait(1)
    joined = at.answers.pop(asked)
    who = ask.Who(joined.member_id, None, joined.generation)
    protocol = joined.protocol_type, joined.protocol
    at.answer(ask.SyncGroup(GROUP, who, *protocol, ((joined.member_id, share),)))
    answer = _heartbeat(at, "new")
    assert (answer.code, why in answer.detail) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


# -- down ---------------------------------------------------------------------------------------


def test_when_the_last_of_the_consumer_protocol_leaves_the_group_is_classic_again() -> None:
    at = coordinator()
    one, two = formed(at, "one", "two")
    new = Modern(at, "new", "t")
    turns([one, two, new])
    number = at.number()
    assert one.commit({min(one.uses): 9})
    new.leave()
    assert isinstance(at.group, ClassicGroup)
    assert (latest(at)["kind"], latest(at)["trigger"]) == ("classic", "leave")
    turns([one, two])
    at.wait(1)
    turns([one, two])
    assert (len(one.uses), len(two.uses), at.number()) == (3, 3, number + 1)
    found = at.answer(ask.FetchOffsets(GROUP, None, -1, None, require_stable=False))
    assert [row[2].offset for row in found.rows] == [9]


def test_silence_of_the_last_one_of_the_consumer_protocol_does_it_too() -> None:
    at = coordinator()
    one, _ = mixed(at)
    keep(at, 46, one)
    assert isinstance(at.group, ClassicGroup)
    turns([one])
    at.wait(1)
    turns([one])
    assert len(one.uses) == 6


@pytest.mark.parametrize("compacted", [False, True])
def test_a_coordinator_that_moves_before_all_have_joined_again_asks_them_again(
    *, compacted: bool
) -> None:
    at = coordinator()
    one, new = mixed(at)
    new.leave()
    at.restart(compacted=compacted)
    group = at.group
    assert isinstance(group, ClassicGroup)
    assert group.state == "PreparingRebalance"
    assert latest(at)["trigger"] == "coordinator moved"
    turns([one])
    at.wait(1)
    turns([one])
    assert len(one.uses) == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"group_consumer_migration_policy": "upgrade"},
        {"group_max_size": 1},
    ],
)
def test_a_group_that_may_not_go_back_stays_as_it_is(settings: Mapping[str, int | str]) -> None:
    at = coordinator()
    one, two = formed(at, "one", "two")
    new = Modern(at, "new", "t")
    turns([one, two, new])
    at.settings.update({name.replace("_", "."): value for name, value in settings.items()})
    new.leave()
    assert isinstance(at.group, MixedGroup)
    turns([one, two])
    assert (len(one.uses), len(two.uses)) == (3, 3)


def test_members_of_either_protocol_are_taken_out_by_who_may() -> None:
    at = coordinator()
    one, new = mixed(at)
    more = Modern(at, "more", "t")
    static = Classic(at, "static", "t", instance="i")
    turns([one, new, more, static])
    leaving = (
        ask.LeavingMember("nobody", None),
        ask.LeavingMember(more.member_id, None, "enough"),
        ask.LeavingMember(one.member_id, None),
        ask.LeavingMember("", "i"),
        ask.LeavingMember("", "nobody"),
    )
    assert at.answer(ask.LeaveGroup(GROUP, leaving)) == (UNKNOWN, 0, 0, 0, UNKNOWN)
    assert (latest(at)["reason"], latest(at)["detail"]) == ("enough", "and 2 more at once")
    turns([new])
    assert len(new.uses) == 6
    assert at.answer(ask.LeaveGroup(GROUP, (ask.LeavingMember("new", None),))) == (0,)
    assert at.group is not None
    assert at.group.is_empty


def test_the_last_of_the_consumer_protocol_may_be_taken_out_too() -> None:
    at = coordinator()
    one, new = mixed(at)
    assert at.answer(ask.LeaveGroup(GROUP, (ask.LeavingMember("new", None),))) == (0,)
    assert isinstance(at.group, ClassicGroup)
    turns([one])
    at.wait(1)
    turns([one])
    assert len(one.uses) == 6
    for _ in range(2):
        new.turn()
    assert new.generation > 0, "it was told, and comes again"
