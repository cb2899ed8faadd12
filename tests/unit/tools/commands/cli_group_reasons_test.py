"""What `tidelog why group` says of a group: its states and its story, made into sentences."""

import pytest
from msgspec import structs

from tidelog.clients.admin.groups import DescribedGroup, GroupMember
from tidelog.node.groups.history import Trigger
from tidelog.tools.group_log import Generation
from tidelog.tools.group_reasons import (
    RESTLESS_COUNT,
    KnownGroup,
    Place,
    because,
    fine,
    of_group,
    passed,
)
from tidelog.tools.group_story import Outcome, Rebalance, Someone
from tidelog.tools.reasons import DOWN, Code

NOW_MS = 1_800_000_000_000
ONE = Someone("id-1", "one", "/127.0.0.1")


def rebalance(
    trigger: str = "join", second: int = 0, *, took: int | None = 2, **more: object
) -> Rebalance:
    """So many seconds ago is 59 - second."""
    at = "2027-01-15T07:59:{:02}.000000Z"
    made = Rebalance(at.format(second), "broker-1", "classic", 5, trigger, ONE, "", "", 3, 0)
    if took is not None:
        made.gathered_at = made.ended_at = at.format(second + took)
        made.outcome = Outcome.DONE
    return structs.replace(made, **more)


@pytest.mark.parametrize(
    ("trigger", "detail", "sentence"),
    [
        (Trigger.JOIN, "", "one (127.0.0.1) joined"),
        (Trigger.LEAVE, "", "one (127.0.0.1) left"),
        (Trigger.SESSION_TIMEOUT, "", "one (127.0.0.1) was silent for its session time-out"),
        (
            Trigger.SESSION_TIMEOUT,
            "and 2 more at once",
            "one (127.0.0.1) was silent for its session time-out: and 2 more at once",
        ),
        (
            Trigger.REBALANCE_TIMEOUT,
            "",
            "one (127.0.0.1) kept the others waiting for its rebalance time-out",
        ),
        (
            Trigger.SUBSCRIPTION,
            "it reads b too",
            "one (127.0.0.1) changed its subscription: it reads b too",
        ),
        (
            Trigger.GROWTH,
            "t grew from 3 to 6 partitions",
            "t grew from 3 to 6 partitions, as one (127.0.0.1) saw",
        ),
        (Trigger.TOPIC, "t2 came", "t2 came, as one (127.0.0.1) saw"),
        (Trigger.TOPIC_GONE, "t2 is gone", "t2 is gone, as one (127.0.0.1) saw"),
        (
            Trigger.GIVEN_UP,
            "it gave up t:1",
            "one (127.0.0.1) gave up what others shall have: it gave up t:1",
        ),
        (
            Trigger.LEADER,
            "",
            "one (127.0.0.1), which shares out the partitions, asked for it",
        ),
        (
            Trigger.STATIC,
            "",
            "one (127.0.0.1) took the place of a static member, with other protocols",
        ),
        (Trigger.DISCONNECT, "", "the connection of one (127.0.0.1) ended"),
        (Trigger.MOVED, "", "the group's coordinator moved in the middle of a rebalance"),
        ("of a later version", "", "one (127.0.0.1): of a later version"),
    ],
)
def test_each_trigger_has_its_sentence(trigger: str, detail: str, sentence: str) -> None:
    assert because(rebalance(trigger, detail=detail)) == sentence
    assert because(rebalance(trigger, detail=detail, reason="why")) == f"{sentence} (why)"


def test_topics_of_the_consumer_protocol_are_seen_by_the_coordinator_itself() -> None:
    nobody = Someone()
    assert because(rebalance(Trigger.TOPIC, detail="t2 came", member=nobody)) == "t2 came"
    unknown = rebalance(Trigger.TOPIC, member=nobody)
    assert because(unknown) == "topics that it reads came, grew or went"


def test_how_a_rebalance_passed() -> None:
    assert passed(rebalance()) == "took 2.00 s"
    assert passed(rebalance(took=None)) == "is under way"
    overtaken = rebalance(took=None, outcome=Outcome.OVERTAKEN)
    assert passed(overtaken) == "was overtaken by the next one"
    moved = rebalance(took=None, outcome=Outcome.MOVED)
    assert passed(moved) == "was not through when its coordinator, broker 1, was gone"


# -- what is the matter -------------------------------------------------------------------------


def reader(
    name: str,
    assigned: tuple[int, ...] = (0,),
    target: tuple[int, ...] | None = None,
    epoch: int = 5,
) -> GroupMember:
    return GroupMember(
        f"id-{name}",
        None,
        name,
        "/127.0.0.1",
        {"t": assigned},
        None if target is None else {"t": target},
        None if target is None else epoch,
    )


def group(state: str = "Stable", *members: GroupMember, epoch: int | None = None) -> DescribedGroup:
    return DescribedGroup("g", "classic", state, "range", 1, members, epoch, epoch)


def known(found: DescribedGroup | None, *story: Rebalance, **more: object) -> KnownGroup:
    made = KnownGroup("g", NOW_MS, found, 5, (), story)
    return structs.replace(made, **more)


def place(lag: int, committed_s: int | None, *, owner: GroupMember | None) -> Place:
    commit_ms = None if committed_s is None else NOW_MS - committed_s * 1000
    return Place("t", 0, owner, NOW_MS - 200_000, 10, 10 + lag, commit_ms)


def sentences(seen: KnownGroup) -> list[str]:
    return [one.sentence for one in of_group(seen)]


def test_a_group_that_is_well_says_why_it_rebalanced_last() -> None:
    seen = known(group("Stable", reader("a")), rebalance("leave"))
    assert of_group(seen) == []
    assert fine(seen) == (
        "g is stable: generation 5, 1 member; its last rebalance took 2.00 s: one (127.0.0.1) left"
    )
    modern = known(group("Stable", reader("a"), reader("b"), epoch=7), generation=7)
    assert fine(modern) == "g is stable: epoch 7, 2 members"
    assert fine(known(group("Stable", reader("a")), generation=None)) == "g is stable: 1 member"


def test_a_group_without_members_says_who_was_the_last_to_go_and_what_waits() -> None:
    seen = known(group("Empty"), rebalance("leave"), places=[place(7, 1, owner=None)])
    (reason,) = of_group(seen)
    assert (reason.code, reason.sentence) == (
        Code.NO_MEMBERS,
        "g has no members: one (127.0.0.1) left at 2027-01-15T07:59:00.000000Z; 7 records wait",
    )


def test_of_another_kafka_the_log_tells_who_was_the_last_to_go() -> None:
    gone = Generation(3, 0, (), ("one", "two"))
    seen = known(group("Empty"), rebalances=None, generations=[gone])
    assert sentences(seen) == ["g has no members: one, two went at 1970-01-01T00:00:00.000Z"]


def test_a_rebalance_under_way_says_since_when_why_and_whom_it_waits_for() -> None:
    late = rebalance(took=None, waits_for=["a (h)", "b (h)"], waits_count=3)
    seen = known(group("PreparingRebalance", reader("a")), late)
    (sentence,) = sentences(seen)
    assert sentence == (
        "g rebalances since 2027-01-15T07:59:00.000000Z: one (127.0.0.1) joined; it waits for "
        "a (h) and b (h) and 1 more"
    )


def test_members_of_the_consumer_protocol_that_are_late_are_named_by_what_they_have() -> None:
    members = [
        reader("old", (0,), (0,), epoch=4),
        reader("poor", (), (1,)),
        reader("there", (2,), (2,)),
    ]
    seen = known(group("Reconciling", *members, epoch=5), rebalance())
    assert sentences(seen) == [
        "g is Reconciling, with 3 members; it waits for old (127.0.0.1) and poor (127.0.0.1)"
    ]
    many = [reader(name, (), (1,)) for name in "abcde"]
    (found,) = sentences(known(group("Reconciling", *many, epoch=5)))
    assert found.endswith("a (127.0.0.1), b (127.0.0.1) and c (127.0.0.1) and 2 more")
    assert sentences(known(group("PreparingRebalance", reader("a")))) == [
        "g is PreparingRebalance, with 1 member"
    ]


def test_a_group_that_rebalances_all_the_time_says_for_whom() -> None:
    two = Someone("id-2", "two", "/127.0.0.1")
    story = [rebalance("session time-out", at) for at in range(RESTLESS_COUNT)]
    story[0] = rebalance("leave", member=two)
    seen = known(group("Stable", reader("a")), *story)
    (reason,) = of_group(seen)
    assert reason.code is Code.RESTLESS
    often = f"g rebalanced {RESTLESS_COUNT} times in 5 minutes, most often for one (127.0.0.1)"
    because_of = "the last time, one (127.0.0.1) was silent for its session time-out"
    assert reason.sentence == f"{often}; {because_of}"
    assert of_group(structs.replace(seen, rebalances=story[1:])) == []
    assert of_group(structs.replace(seen, now_ms=NOW_MS + 400_000)) == []
    untold = [rebalance("leave", untold=RESTLESS_COUNT)]
    assert of_group(structs.replace(seen, rebalances=untold))[0].code is Code.RESTLESS
    starting = [rebalance("join") for _ in range(20)]
    assert of_group(structs.replace(seen, rebalances=starting)) == []


def test_who_does_not_get_on_is_named_with_what_waits() -> None:
    one = reader("a")
    stable = group("Stable", one)
    assert sentences(known(stable, places=[place(5, 120, owner=one)])) == [
        "5 records of t-0 wait, and a (127.0.0.1) has committed nothing for 2 min"
    ]
    assert sentences(known(stable, places=[place(1, 120, owner=None)])) == [
        "1 record of t-0 waits, and nobody reads it"
    ]
    assert sentences(known(stable, places=[place(5, 10, owner=one)])) == []
    assert sentences(known(stable, places=[place(0, 120, owner=one)])) == []
    many = sentences(known(stable, places=[place(5, 120, owner=one)] * 5))
    assert (len(many), many[-1]) == (4, "so it is with 2 more partitions")


def test_who_has_just_got_a_partition_may_have_committed_nothing_yet() -> None:
    one = reader("a")
    fresh = structs.replace(place(5, 120, owner=one), since_ms=NOW_MS - 1_000)
    assert sentences(known(group("Stable", one), places=[fresh])) == []


def test_a_cluster_that_is_down_and_a_coordinator_that_does_not_answer_are_told() -> None:
    assert of_group(known(None, is_down=True)) == [DOWN]
    assert sentences(known(None)) == ["the coordinator of g does not answer"]
