"""What a coordinator tells of the rebalances of a group, in the order in which it decides."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import led_here
from harness.machines.classic_clients import REBALANCE_MS, SESSION_MS, Client, form, subscription
from harness.machines.consumer_groups import Client as Modern
from harness.machines.consumer_groups import GroupOverLog, TopicsInMemory, settle
from harness.machines.group_bench import GroupBench, elected_again
from tidelog.kernel.ids import Partition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.groups.history import (
    NOBODY,
    TOLD_MAX,
    TOLD_SPAN_MS,
    Cause,
    Chapter,
    History,
    Told,
    Trigger,
)
from tidelog.wire.metadata_records import PartitionCreated

BEGAN, WAITS, GATHERED, ENDED = Chapter


def chapters(told: list[Told]) -> list[tuple[str, object]]:
    """What was told, and of which generation."""
    return [(one.chapter, one.fields["generation"]) for one in told]


def last(told: list[Told], chapter: Chapter) -> dict[str, Any]:
    return dict(next(one.fields for one in reversed(told) if one.chapter is chapter))


def why(told: list[Told]) -> tuple[str, str, str]:
    """Trigger, client and detail of the latest rebalance."""
    said = last(told, BEGAN)
    return said["trigger"], said["client"], said["detail"]


# -- the classic protocol -----------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def grow(bench: GroupBench, topic: str, index: int) -> None:
    topic_id: Uuid = bench.image.names[topic].id
    bench.replay(PartitionCreated(topic_id, Partition(index), led_here()))


def test_a_classic_rebalance_is_told_as_it_begins_gathers_and_ends(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    assert chapters(bench.told) == [(BEGAN, 1), (GATHERED, 1), (ENDED, 1)]
    began, gathered, ended = (dict(told.fields) for told in bench.told)
    assert (began["kind"], began["trigger"], began["member"]) == ("classic", "join", one.member_id)
    assert (gathered["members"], gathered["member"]) == (2, two.member_id)
    assert ended["member"] == one.member_id, "the leader shares out"
    two.leave()
    assert (last(bench.told, BEGAN)["trigger"], last(bench.told, BEGAN)["reason"]) == (
        "leave",
        "enough",
    )
    form(bench, one)
    one.leave()
    assert chapters(bench.told)[-3:] == [(BEGAN, 3), (GATHERED, 3), (ENDED, 3)]
    assert last(bench.told, GATHERED)["members"] == 0


def test_who_holds_a_classic_rebalance_up_is_told_again_and_again_but_ever_more_seldom(
    bench: GroupBench,
) -> None:
    one, two, three = (Client(bench, session_ms=60_000) for _ in range(3))
    form(bench, one, two, three)
    one.start_joining()
    three.start_joining()
    for milliseconds in (999, 1, 3_999, 1, 15_999, 1):
        before = len(bench.told)
        bench.later(milliseconds)
        assert len(bench.told) - before == (milliseconds == 1)
    said = last(bench.told, WAITS)
    assert (said["missing_count"], len(said["missing"])) == (1, 1)
    bench.later(REBALANCE_MS)
    assert last(bench.told, GATHERED)["given_up_count"] == 1
    bench.later(1_000)
    assert last(bench.told, WAITS)["missing_count"] == 1, "the leader does not share out"


def test_a_silent_member_and_a_late_one_are_told_by_their_time_outs(bench: GroupBench) -> None:
    one, two = Client(bench, session_ms=60_000), Client(bench)
    form(bench, one, two)
    bench.later(SESSION_MS + 1)
    assert why(bench.told)[0] == Trigger.SESSION_TIMEOUT
    again = one.start_joining()
    one.take(again.answer())
    bench.later(REBALANCE_MS)
    assert why(bench.told)[0] == Trigger.REBALANCE_TIMEOUT


def test_who_falls_silent_while_the_others_wait_is_told_with_who_comes_too_late(
    bench: GroupBench,
) -> None:
    one, silent, late = (Client(bench, session_ms=ms) for ms in (60_000, SESSION_MS, 60_000))
    form(bench, one, silent, late)
    one.start_joining()
    bench.later(REBALANCE_MS)
    assert last(bench.told, GATHERED)["given_up_count"] == 2
    assert last(bench.told, GATHERED)["members"] == 1


def test_the_growth_of_a_topic_is_told_though_the_leader_asks(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    grow(bench, "t", 3)
    one.start_joining(reason="cached metadata has changed")
    assert why(bench.told)[0::2] == (Trigger.GROWTH, "t grew from 3 to 4 partitions")


def test_a_leader_that_asks_for_no_reason_that_is_known_here_is_told_so(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    one.start_joining(reason="the user wants it")
    assert why(bench.told)[0::2] == (Trigger.LEADER, "")
    assert last(bench.told, BEGAN)["reason"] == "the user wants it"


def test_a_new_topic_that_fits_a_pattern_is_told_and_one_that_was_there_is_a_wish(
    bench: GroupBench,
) -> None:
    bench.topic("old", 1)
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    bench.topic("t2", 1)
    two.protocols = {"range": subscription("t", "t2")}
    two.start_joining()
    assert why(bench.told)[0::2] == (Trigger.TOPIC, "t2 came")
    form(bench, one, two)
    two.protocols = {"range": subscription("old")}
    two.start_joining()
    assert why(bench.told)[0::2] == (
        Trigger.SUBSCRIPTION,
        "it reads old too, it does not read t, t2 any more",
    )


def test_a_topic_that_went_is_told(bench: GroupBench) -> None:
    both = {"range": subscription("t", "u")}
    gone = bench.topic("u", 1)
    one = Client(bench, protocols=both)
    form(bench, one)
    bench.delete(gone)
    one.protocols = {"range": subscription("t")}
    one.start_joining()
    assert why(bench.told)[0::2] == (Trigger.TOPIC_GONE, "u is gone")


def test_what_a_member_of_a_cooperative_group_gave_up_is_told(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    for client in (one, two):
        client.protocols = {"range": subscription("t", owned={"t": [0, 1, 2]})}
    form(bench, one, two)
    two.protocols = {"range": subscription("t", owned={"t": [0]})}
    two.start_joining()
    assert why(bench.told)[0::2] == (Trigger.GIVEN_UP, "it gave up t:1,2")


def test_another_assignor_is_told(bench: GroupBench) -> None:
    both = {"range": subscription("t"), "sticky": subscription("t")}
    one, two = Client(bench, protocols=both), Client(bench, protocols=dict(both))
    form(bench, one, two)
    two.protocols = {"sticky": subscription("t")}
    two.start_joining()
    trigger, _, detail = why(bench.told)
    assert (trigger, detail) == (
        Trigger.SUBSCRIPTION,
        "it does not offer the group's assignor any more",
    )


def test_what_nobody_can_read_is_a_subscription_change_without_words(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench)
    for client in (one, two):
        client.protocols = {"range": b"\xff"}
    form(bench, one, two)
    two.protocols = {"range": b"\xfe"}
    two.start_joining()
    assert why(bench.told)[0::2] == (Trigger.SUBSCRIPTION, "")


def test_a_coordinator_that_moves_in_a_rebalance_tells_it(bench: GroupBench) -> None:
    one = Client(bench)
    one.get_id()
    asked = one.start_joining()
    bench.later(20)
    one.take(asked.answer())
    elected_again(bench, epoch=1)
    bench.load()
    assert why(bench.told) == (Trigger.MOVED, "", "")
    assert last(bench.told, BEGAN)["generation"] == 2


# -- the consumer protocol ----------------------------------------------------------------------


def group_of(**sizes: int) -> GroupOverLog:
    return GroupOverLog(TopicsInMemory(**sizes))


def test_an_epoch_is_told_as_it_begins_gathers_and_ends() -> None:
    group = group_of(t=2)
    one, two = Modern(group, "a", "t"), Modern(group, "b", "t")
    one.beat()
    assert chapters(group.told) == [(BEGAN, 1), (GATHERED, 1), (ENDED, 1)]
    two.beat()
    assert chapters(group.told)[3:] == [(BEGAN, 2)]
    one.beat()
    one.beat()
    assert chapters(group.told)[4:] == [(GATHERED, 2)], "two has yet to get what one gave up"
    assert last(group.told, GATHERED)["member"] == "a"
    two.beat()
    assert (chapters(group.told)[-1], last(group.told, ENDED)["member"]) == ((ENDED, 2), "b")
    assert last(group.told, BEGAN)["kind"] == "consumer"


def test_who_does_not_give_up_is_told_and_then_taken_out() -> None:
    group = group_of(t=2)
    one, two = Modern(group, "a", "t"), Modern(group, "b", "t")
    settle([one])
    two.beat()
    one.beat()
    group.wait(1)
    assert last(group.told, WAITS)["missing"] == ["client (127.0.0.1)"]
    for _ in range(3):
        group.wait(25)
        two.beat()
        if "a" in group.group.log.members:
            group.heartbeat(here("a", one.epoch))
    assert why(group.told)[0] == Trigger.REBALANCE_TIMEOUT


def here(member: str, epoch: int) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(group="g", member_id=member, epoch=epoch)


def test_leaving_and_silence_move_the_epoch_and_are_told() -> None:
    group = group_of(t=2)
    one, two, three = (Modern(group, name, "t") for name in "abc")
    settle([one, two, three])
    three.leave()
    assert why(group.told)[0] == Trigger.LEAVE
    settle([one, two])
    group.wait(44)
    one.beat()
    group.wait(2)
    assert why(group.told)[0] == Trigger.SESSION_TIMEOUT
    one.beat()
    one.leave()
    assert chapters(group.told)[-3:] == [(BEGAN, 6), (GATHERED, 6), (ENDED, 6)]


def test_members_that_fall_silent_together_are_one_rebalance() -> None:
    group = group_of(t=2)
    settle([Modern(group, name, "t") for name in "abc"])
    group.wait(46)
    assert why(group.told)[0::2] == (Trigger.SESSION_TIMEOUT, "and 2 more at once")


def test_wishes_of_members_are_told() -> None:
    group = group_of(t=2, u=1)
    client = Modern(group, "a", "t")
    client.beat()
    client.subscribe("t", "u")
    client.beat()
    assert why(group.told)[0::2] == (Trigger.SUBSCRIPTION, "it reads u too")
    client.assignor = "range"
    client.beat(full=True)
    assert why(group.told)[2] == "it asks for the assignor range"
    client.topics, client.regex = (), "u.*"
    client.beat(full=True)
    assert why(group.told)[2] == "it reads what fits u.*"


def test_topics_that_come_grow_and_go_are_told() -> None:
    group = group_of(t=2)
    client = Modern(group, "a", regex="t.*")
    client.beat()
    group.topics.set(t=4)
    client.beat()
    assert why(group.told) == (Trigger.GROWTH, "", "t grew from 2 to 4 partitions")
    group.topics.set(t2=1)
    client.beat()
    assert why(group.told) == (Trigger.TOPIC, "", "t2 came")
    group.topics.drop("t2")
    client.beat()
    assert why(group.told) == (Trigger.TOPIC_GONE, "", "t2 is gone")


def test_a_fail_over_in_the_middle_of_an_epoch_goes_on_telling_of_it() -> None:
    group = group_of(t=2)
    one, two = Modern(group, "a", "t"), Modern(group, "b", "t")
    settle([one])
    two.beat()
    group.restart()
    before = len(group.told)
    settle([one, two])
    assert chapters(group.told)[before:] == [(GATHERED, 2), (ENDED, 2)]
    group.restart()
    settle([one, two])
    assert len(group.told) == before + 2, "a group that stands still has nothing to tell"


def test_a_static_member_that_is_away_holds_nobody_up() -> None:
    group = group_of(t=2)
    one, two = Modern(group, "a", "t", instance="i"), Modern(group, "b", "t")
    settle([one, two])
    one.leave(for_now=True)
    group.topics.set(t=3)
    settle([two])
    assert chapters(group.told)[-2] == (GATHERED, 3)


# -- how much is told ---------------------------------------------------------------------------


def test_a_group_that_rebalances_without_end_is_told_of_seldom_and_counted() -> None:
    told: list[Told] = []
    history = History("g", "classic", told.append)
    now = Instant(0)
    for generation in range(TOLD_MAX + 30):
        history.began(Cause(Trigger.JOIN), now, generation, 1)
        history.gathered(now, 1, NOBODY)
        history.ended()
    assert len(told) == 3 * TOLD_MAX, "a rebalance is told to its end, or not at all"
    history.began(Cause(Trigger.JOIN), Instant(ms(TOLD_SPAN_MS)), 99, 1)
    assert told[-1].fields["untold"] == 30
