"""A group of the consumer protocol: joining, giving up, taking over, leaving, being fenced."""

import pytest
from msgspec.structs import replace

from harness.machines.consumer_groups import Client, GroupOverLog, TopicsInMemory, settle, topic_id
from tidelog.node.groups.consumer_member import pairs_of
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.groups.records_consumer import MemberState
from tidelog.node.groups.requests import OffsetToCommit, Who
from tidelog.wire.errors import ErrorCode, Rejected

JOIN = ConsumerHeartbeat(
    group="g", member_id="m", epoch=0, rebalance_timeout_ms=1_000, topics=("t",), owned=()
)


def group_of(**sizes: int) -> GroupOverLog:
    return GroupOverLog(TopicsInMemory(**sizes))


def refusal(call: object, *arguments: object, **named: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(Rejected) as refused:
        call(*arguments, **named)
    return refused.value.code


def partitions(client: Client, topic: str = "t") -> list[int]:
    return sorted(number for of, number in client.uses if of == topic_id(topic))


def test_the_first_member_has_all_with_its_first_answer() -> None:
    group = group_of(t=3)
    client = Client(group, "a", "t")
    answer = client.beat()
    assert (answer.epoch, answer.interval_ms) == (1, 500)
    assert partitions(client) == [0, 1, 2]
    assert group.group.state == "Stable"
    assert client.beat().assigned is None


def test_a_second_member_gets_nothing_before_the_first_gave_it_up() -> None:
    group = group_of(t=4)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    first.beat()
    assert second.beat().assigned == {}
    assert group.group.state == "Reconciling"
    assert first.beat().assigned == {topic_id("t"): {0: 1, 1: 1}}
    assert second.beat().assigned is None, "the first has not said that it gave up"
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])
    assert (first.epoch, second.epoch) == (2, 2)
    assert group.group.state == "Stable"


def test_a_member_that_has_yet_to_apply_its_assignment_is_asked_before_others_get_it() -> None:
    group = group_of(t=4)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    first.beat(late=True)
    second.beat()
    answer = first.beat(full=True)
    assert (answer.epoch, answer.assigned) == (1, {topic_id("t"): {0: 1, 1: 1}})
    assert partitions(first) == [0, 1, 2, 3], "it applied the first answer while it asked"
    assert second.beat().assigned is None, "the first has not said that it gave up"
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])
    assert group.group.state == "Stable"


def test_a_list_without_what_the_member_keeps_does_not_confirm_that_it_gave_up_the_rest() -> None:
    """Its client still applies the first answer, and sent all again because a broker failed."""
    group = group_of(t=4)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    first.beat(late=True)
    second.beat()
    group.heartbeat(ConsumerHeartbeat(group="g", member_id="a", epoch=1))
    answer = first.beat(full=True)
    assert answer.assigned == {topic_id("t"): {0: 1, 1: 1}}
    assert second.beat().assigned is None, "the first reads all of it now"
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])


def test_what_a_member_keeps_of_a_deleted_topic_does_not_hold_up_its_confirmation() -> None:
    group = group_of(t=4, u=1)
    first, second = Client(group, "a", "t", "u"), Client(group, "b", "t")
    first.beat()
    second.beat()
    asked = first.beat()
    assert asked.assigned is not None
    kept = set(pairs_of(asked.assigned))
    group.topics.drop("u")
    owned = tuple(sorted(one for one in kept if one[0] == topic_id("t")))
    group.heartbeat(ConsumerHeartbeat(group="g", member_id="a", epoch=1, owned=owned))
    second.beat()
    second.beat()
    assert partitions(second), "the first has confirmed"


def test_a_member_whose_assignment_shrinks_to_what_it_applied_is_not_waited_for_long() -> None:
    """Its client sees nothing to change in the answer, and does not confirm it."""
    group = group_of(t=2)
    first = Client(group, "a", "t")
    first.beat()
    group.topics.set(t=3)
    first.beat(answer_lost=True)
    second = Client(group, "b", "t")
    second.beat()
    answer = first.beat()
    assert answer.assigned == {topic_id("t"): {0: 1, 1: 1}}
    group.wait(20)
    first.beat()
    assert second.beat().assigned is None, "the first may still apply what it was told"
    group.wait(20)
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2])
    assert group.group.state == "Stable"


def test_the_same_list_sent_again_does_not_confirm_before_the_client_applied_what_it_was_told() -> (
    None
):
    """It sends all again after a lost answer, and may still apply what it was told before."""
    group = group_of(t=2)
    first = Client(group, "a", "t")
    first.beat()
    group.topics.set(t=3)
    first.beat(answer_lost=True)
    second = Client(group, "b", "t")
    second.beat()
    first.beat()
    group.wait(10)
    first.beat(full=True)
    assert second.beat().assigned is None, "the first may still apply three partitions"
    group.wait(25)
    first.beat(full=True)
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2])


def test_a_full_list_that_the_first_lost_answer_brings_about_does_not_confirm_either() -> None:
    """The heartbeat whose answer asked the member to give something up had no list at all."""
    group = group_of(t=2)
    first = Client(group, "a", "t")
    first.beat()
    group.topics.set(t=3)
    first.beat(late=True)
    second = Client(group, "b", "t")
    second.beat()
    group.heartbeat(ConsumerHeartbeat(group="g", member_id="a", epoch=first.epoch))
    first.beat(full=True)
    assert partitions(first) == [0, 1, 2], "it applied the earlier answer while it asked"
    assert second.beat().assigned is None, "the first has not said that it gave up"
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2])
    assert group.group.state == "Stable"


def test_after_a_fail_over_a_member_that_sends_all_it_knows_is_not_waited_for() -> None:
    """The wait is not in the log; clients send all to a coordinator that they come to."""
    group = group_of(t=2)
    first = Client(group, "a", "t")
    first.beat()
    group.topics.set(t=3)
    first.beat(answer_lost=True)
    second = Client(group, "b", "t")
    second.beat()
    first.beat()
    group.restart()
    first.beat(full=True)
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2])
    assert group.group.state == "Stable"


def test_a_member_that_is_left_with_nothing_while_it_applies_its_assignment_is_waited_for() -> None:
    group = group_of(t=1)
    first = Client(group, "b", "t", assignor="range")
    second = Client(group, "a", "t", assignor="range")
    first.beat(late=True)
    second.beat()
    answer = first.beat(full=True)
    assert answer.assigned == {}, "the other comes first in the order of names"
    assert second.beat().assigned is None
    first.beat()
    first.beat()
    second.beat()
    assert (partitions(first), partitions(second)) == ([], [0])


def test_a_member_that_joins_again_has_dropped_all_that_it_had() -> None:
    group = group_of(t=4)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    first.beat()
    second.beat()
    first.start_again()
    assert first.beat().assigned == {topic_id("t"): {0: 1, 1: 1}}
    second.beat()
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])


def test_who_leaves_gives_up_at_once_and_the_target_moves_in_the_same_decision() -> None:
    group = group_of(t=2)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    settle([first, second])
    first.leave()
    assert group.group.log.assignment_epoch == group.group.log.epoch
    second.beat()
    assert partitions(second) == [0, 1]
    second.leave()
    assert group.group.state == "Empty"


def test_who_is_silent_for_its_session_is_taken_out() -> None:
    group = group_of(t=2)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    settle([first, second])
    group.wait(44)
    second.beat()
    group.wait(2)
    assert refusal(first.beat) == ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert partitions(second) == [0, 1]


def test_who_does_not_give_up_within_its_rebalance_time_out_is_taken_out() -> None:
    group = group_of(t=2)
    first, second = Client(group, "a", "t"), Client(group, "b", "t")
    first.beat()
    second.beat()
    here = ConsumerHeartbeat(group="g", member_id="a", epoch=1)
    for _ in range(3):
        group.heartbeat(here)
        group.wait(25)
        second.beat()
    assert refusal(group.heartbeat, here) == ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert partitions(second) == [0, 1]


def test_a_lost_answer_is_given_again() -> None:
    group = group_of(t=2)
    client = Client(group, "a", "t")
    client.beat(answer_lost=True)
    client.beat()
    assert partitions(client) == [0, 1]
    group.topics.set(t=3)
    client.beat(answer_lost=True)
    assert client.epoch == 1
    client.beat()
    assert (client.epoch, partitions(client)) == (2, [0, 1, 2])


def test_an_epoch_that_was_never_given_is_fenced() -> None:
    group = group_of(t=2)
    client = Client(group, "a", "t")
    client.beat()
    client.epoch = 7
    assert refusal(client.beat) == ErrorCode.FENCED_MEMBER_EPOCH
    client.start_again()
    client.beat()
    assert partitions(client) == [0, 1]


def test_one_epoch_back_is_fenced_for_who_owns_what_it_was_not_given() -> None:
    group = group_of(t=2)
    client = Client(group, "a", "t")
    client.beat()
    group.topics.set(t=3)
    client.beat(answer_lost=True)
    client.uses |= {(topic_id("t"), 9)}
    assert refusal(client.beat) == ErrorCode.FENCED_MEMBER_EPOCH


def test_growth_of_a_topic_starts_the_group_anew() -> None:
    group = group_of(t=1)
    client = Client(group, "a", "t")
    client.beat()
    group.topics.set(t=2, other=5)
    client.beat()
    assert (client.epoch, partitions(client)) == (2, [0, 1])
    group.topics.set(other=6)
    client.beat()
    assert client.epoch == 2, "a topic that nobody reads moves nothing"


def test_a_topic_that_comes_later_is_found_by_name_and_by_pattern() -> None:
    group = group_of(t=1)
    by_name, by_regex = Client(group, "a", "later"), Client(group, "b", regex="la.*|t")
    settle([by_name, by_regex])
    assert (by_name.uses, partitions(by_regex)) == (frozenset(), [0])
    group.topics.set(later=2)
    settle([by_name, by_regex])
    assert {*partitions(by_name, "later"), *partitions(by_regex, "later")} == {0, 1}
    assert group.group.log.matched == {"la.*|t": {"later", "t"}}


def test_an_expression_that_nobody_uses_any_more_is_forgotten() -> None:
    group = group_of(t=1)
    client = Client(group, "a", regex="t.*")
    client.beat()
    client.leave()
    assert group.group.log.matched == {}


def test_another_subscription_takes_away_what_is_not_in_it() -> None:
    group = group_of(t=1, u=1)
    client = Client(group, "a", "t")
    client.beat()
    client.subscribe("u")
    settle([client])
    assert client.uses == {(topic_id("u"), 0)}


def test_a_topic_unsubscribed_in_the_middle_of_a_revocation_is_given_up_at_once() -> None:
    group = group_of(t=4, u=2)
    first, second = Client(group, "a", "t", "u"), Client(group, "b", "t")
    first.beat()
    second.beat()
    first.beat()
    assert (partitions(first), partitions(first, "u")) == ([0], [0, 1])
    first.subscribe("t")
    first.uses |= {(topic_id("t"), 2)}  # it has yet to give this one up
    first.beat()
    assert (partitions(first), partitions(first, "u")) == ([0], [])
    third = Client(group, "c", "u")
    third.beat()
    assert partitions(third, "u") == [], "it has not said yet that it gave them up"
    settle([first, third])
    assert partitions(third, "u") == [0, 1]


def test_the_assignor_that_most_members_ask_for_decides() -> None:
    group = group_of(t=2, u=2)
    clients = [Client(group, name, "t", "u", assignor="range") for name in "ab"]
    clients.append(Client(group, "c", "t", "u", assignor="uniform"))
    settle(clients)
    assert [(partitions(one), partitions(one, "u")) for one in clients] == [
        ([0], [0]),
        ([1], [1]),
        ([], []),
    ]
    assert group.group.log.assignor() == "range"


def test_a_static_member_that_left_for_now_finds_its_partitions_under_a_new_id() -> None:
    group = group_of(t=2)
    first, second = Client(group, "a", "t", instance="i"), Client(group, "b", "t")
    settle([first, second])
    mine, epoch = partitions(first), group.group.log.epoch
    first.leave(for_now=True)
    second.beat()
    again = Client(group, "a2", "t", instance="i")
    again.beat()
    assert partitions(again) == mine
    assert group.group.log.epoch == epoch, "nobody else had to move"
    assert refusal(first.beat, full=True) == ErrorCode.UNRELEASED_INSTANCE_ID
    first.epoch = epoch
    assert refusal(first.beat) == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_loses_its_partitions() -> None:
    group = group_of(t=2)
    first, second = Client(group, "a", "t", instance="i"), Client(group, "b", "t")
    settle([first, second])
    first.leave(for_now=True)
    group.wait(44)
    second.beat()
    group.wait(2)
    settle([second])
    assert partitions(second) == [0, 1]


@pytest.mark.parametrize("fail_over", [False, True])
def test_a_static_member_that_leaves_for_now_gives_up_what_it_was_asked_for(
    *, fail_over: bool
) -> None:
    """Its process is stopped before it says that it gave them up; it reads nothing any more."""
    group = group_of(t=4)
    first, second = Client(group, "a", "t", instance="i"), Client(group, "b", "t")
    first.beat()
    second.beat()
    first.beat()
    assert partitions(second) == []
    first.leave(for_now=True)
    if fail_over:
        group.restart()
    second.beat()
    assert partitions(second) == [2, 3]
    again = Client(group, "a2", "t", instance="i")
    settle([again, second])
    assert (partitions(again), partitions(second)) == ([0, 1], [2, 3])


def test_a_static_member_that_comes_back_has_all_that_is_its_own_with_its_first_answer() -> None:
    """What it was asked to give up before it left is its own again."""
    group = group_of(t=4)
    first, second = Client(group, "a", "t", instance="i"), Client(group, "b", "t")
    first.beat()
    second.beat()
    first.beat()
    first.leave(for_now=True)
    second.leave()
    again = Client(group, "a2", "t", instance="i")
    again.beat()
    assert partitions(again) == [0, 1, 2, 3]


def test_a_static_member_that_leaves_for_good_is_gone() -> None:
    group = group_of(t=1)
    client = Client(group, "a", "t", instance="i")
    client.beat()
    client.leave()
    assert group.group.is_empty
    assert group.group.log.instances == {}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (replace(JOIN, group=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, instance_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rack_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, epoch=-3), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, epoch=-2), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, owned=None), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, owned=((topic_id("t"), 0),)), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, topics=None), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, assignor="mine"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (replace(JOIN, topics=None, regex="(a"), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (replace(JOIN, epoch=3), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(JOIN, epoch=3, instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(JOIN, epoch=-1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_member_may_not_say(request_: ConsumerHeartbeat, code: ErrorCode) -> None:
    group = group_of(t=1)
    assert refusal(group.heartbeat, request_) == code
    assert group.written == []


def test_a_full_group_takes_nobody() -> None:
    group = GroupOverLog(TopicsInMemory(t=1), **{"group.consumer.max.size": 1})
    Client(group, "a", "t").beat()
    assert refusal(Client(group, "b", "t").beat) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_offsets_are_committed_and_fetched_in_the_members_epoch() -> None:
    group = group_of(t=1)
    of = group.group
    of.check_commit(group.now, Who("", None, -1), of_t(0))
    client = Client(group, "a", "t")
    client.beat()
    of.check_commit(group.now, Who("a", None, 1), of_t(0, 1))
    of.check_fetch("a", 1)
    of.check_fetch(None, -1)
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(of.check_commit, group.now, Who("a", None, 0), of_t(0)) == stale
    assert refusal(of.check_commit, group.now, Who("", None, -1), of_t(0)) == unknown
    assert refusal(of.check_fetch, "a", 2) == stale
    group.topics.set(t=2)
    client.beat()
    assert client.epoch == 2
    of.check_fetch("a", 2)
    assert refusal(of.check_fetch, "a", 1) == stale
    assert refusal(of.check_fetch, "b", 1) == unknown


def of_t(*partitions: int) -> tuple[OffsetToCommit, ...]:
    return tuple(OffsetToCommit("t", topic_id("t"), one, 5, -1, "") for one in partitions)


def test_an_older_epoch_may_still_commit_what_the_member_has_had_since_then() -> None:
    group = group_of(t=1)
    one = Client(group, "a", "t")
    one.beat()
    group.topics.set(t=2)
    one.beat()
    assert group.group.log.members["a"].assigned == {topic_id("t"): {0: 1, 1: 2}}

    def commit(epoch: int, *partitions: int) -> None:
        group.group.check_commit(group.now, Who("a", None, epoch), of_t(*partitions))

    commit(1, 0)
    commit(2, 0, 1)
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(commit, 1, 1) == stale, "somebody else may have had it then"
    assert refusal(commit, 1, 0, 1) == stale, "all or nothing"
    assert refusal(commit, 0, 0) == stale
    assert refusal(commit, 1, 7) == stale
    assert refusal(commit, 3, 0) == stale


def test_what_is_to_be_given_up_may_be_committed_until_it_is() -> None:
    group = group_of(t=2)
    one, two = Client(group, "a", "t"), Client(group, "b", "t")
    one.beat()
    two.beat()
    given_up = set(one.uses)
    one.beat()
    (gone,) = given_up - one.uses
    group.group.check_commit(group.now, Who("a", None, 1), of_t(gone[1]))
    one.beat()
    late = (group.now, Who("a", None, 1), of_t(gone[1]))
    assert refusal(group.group.check_commit, *late) == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("compacted", [False, True])
def test_a_fail_over_forgets_nothing_that_was_said(*, compacted: bool) -> None:
    group = group_of(t=5)
    clients = [Client(group, "a", "t"), Client(group, "b", regex="t"), Client(group, "c", "t")]
    for client in clients:
        client.beat()
    clients[0].beat()
    assert group.group.log.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    before = vars(group.group.log)
    group.restart(compacted=compacted)
    assert vars(group.group.log) == before
    settle(clients)
    assert sorted(one for client in clients for one in partitions(client)) == [0, 1, 2, 3, 4]


def test_who_is_silent_after_a_fail_over_has_its_whole_session_again() -> None:
    group = group_of(t=1)
    client = Client(group, "a", "t")
    client.beat()
    group.wait(40)
    group.restart()
    group.wait(40)
    assert client.beat().epoch == 1
    group.restart()
    group.wait(46)
    assert group.group.is_empty


def test_an_empty_group_can_be_taken_back_whole() -> None:
    group = group_of(t=1)
    client = Client(group, "a", "t")
    client.beat()
    client.leave()
    assert [record.value for record in group.group.forgotten()] == [None, None]


@pytest.mark.parametrize("first", [None, "i0"])
def test_a_member_that_joins_again_under_another_instance_has_that_one_alone(
    first: str | None,
) -> None:
    group = group_of(t=2)
    Client(group, "a", "t", instance=first).beat()
    again = Client(group, "a", "t", instance="i1")
    again.beat()
    assert partitions(again) == [0, 1]
    assert group.group.log.instances == {"i1": "a"}
    group.restart()
    assert group.group.log.instances == {"i1": "a"}
    again.leave()
    assert group.group.log.instances == {}
    left = replace(JOIN, member_id="a", instance_id="i0", epoch=1)
    assert refusal(group.heartbeat, left) is ErrorCode.UNKNOWN_MEMBER_ID
