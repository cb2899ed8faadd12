"""The assignors of the coordinator: each partition once, even, and no move without need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.assignors import (
    Assignment,
    Assignor,
    Subscriber,
    assign_range,
    assign_uniform,
)

TOPICS = [Uuid(bytes([number]) * 16) for number in range(4)]
A, B, C, _ = TOPICS

GROUPS = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]),
    st.frozensets(st.sampled_from(TOPICS)),
    max_size=5,
)
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))


def members_of(
    subscriptions: dict[str, frozenset[Uuid]], held: dict[str, Assignment] | None = None
) -> dict[str, Subscriber]:
    before = held or {}
    return {
        member: Subscriber(instance_id=None, topics=topics, held=before.get(member, {}))
        for member, topics in subscriptions.items()
    }


def pairs(assignment: Assignment) -> set[tuple[Uuid, int]]:
    return {(topic, one) for topic, partitions in assignment.items() for one in partitions}


def loads(target: dict[str, Assignment]) -> dict[str, int]:
    return {member: len(pairs(assignment)) for member, assignment in target.items()}


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@given(subscriptions=GROUPS, sizes=SIZES)
def test_each_partition_that_someone_wants_goes_to_one_who_does(
    assign: Assignor, subscriptions: dict[str, frozenset[Uuid]], sizes: dict[Uuid, int]
) -> None:
    target = assign(members_of(subscriptions), sizes)
    assert target.keys() == subscriptions.keys()
    given_out = [one for assignment in target.values() for one in pairs(assignment)]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {
        (topic, number) for topic in wanted & sizes.keys() for number in range(sizes[topic])
    }
    for member, assignment in target.items():
        assert assignment.keys() <= subscriptions[member]
        assert all(assignment.values())


@given(before=GROUPS, after=GROUPS, sizes=SIZES, grown=SIZES)
def test_uniform_leaves_nobody_two_above_another_who_could_take_one(
    before: dict[str, frozenset[Uuid]],
    after: dict[str, frozenset[Uuid]],
    sizes: dict[Uuid, int],
    grown: dict[Uuid, int],
) -> None:
    held = assign_uniform(members_of(before), sizes)
    target = assign_uniform(members_of(after, held), grown)
    load = loads(target)
    for giver, assignment in target.items():
        for topic in assignment:
            for taker, topics in after.items():
                if topic in topics:
                    assert load[giver] - load[taker] < 2, (giver, taker)


@given(
    before=st.integers(0, 6),
    after=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_uniform_moves_only_what_a_group_of_equals_must_move(
    before: int, after: int, sizes: list[int]
) -> None:
    topics = dict(zip(TOPICS, sizes, strict=False))
    held = assign_uniform(members_of({f"m{n}": frozenset(topics) for n in range(before)}), topics)
    members = members_of({f"m{n}": frozenset(topics) for n in range(after)}, held)
    target = assign_uniform(members, topics)
    each, more = divmod(sum(sizes), after)
    had = sorted((len(pairs(held.get(member, {}))) for member in members), reverse=True)
    possible = sum(min(count, each + (place < more)) for place, count in enumerate(had))
    kept = sum(len(pairs(target[one]) & pairs(held.get(one, {}))) for one in members)
    assert kept == possible


def test_uniform_asked_again_moves_nothing() -> None:
    subscriptions = {"m1": frozenset({A, B}), "m2": frozenset({B, C}), "m3": frozenset({A})}
    sizes = {A: 5, B: 4, C: 3}
    target = assign_uniform(members_of(subscriptions), sizes)
    assert assign_uniform(members_of(subscriptions, target), sizes) == target


def test_uniform_takes_back_what_is_no_longer_there_or_no_longer_wanted() -> None:
    held: dict[str, Assignment] = {"m1": {A: frozenset({0, 7}), B: frozenset({0})}}
    members = members_of({"m1": frozenset({A}), "m2": frozenset({A})}, held)
    target = assign_uniform(members, {A: 2, B: 1})
    assert target == {"m1": {A: frozenset({0})}, "m2": {A: frozenset({1})}}


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
def test_a_group_of_nobody_has_no_target(assign: Assignor) -> None:
    assert assign({}, {A: 3}) == {}


def test_range_gives_runs_and_the_same_ones_of_topics_partitioned_alike() -> None:
    members = members_of({"m2": frozenset({A, B}), "m1": frozenset({A, B, C})})
    assert assign_range(members, {A: 3, B: 3, C: 1}) == {
        "m1": {A: frozenset({0, 1}), B: frozenset({0, 1}), C: frozenset({0})},
        "m2": {A: frozenset({2}), B: frozenset({2})},
    }


def test_range_puts_static_members_first_by_their_instance() -> None:
    members = {
        "m1": Subscriber(instance_id=None, topics=frozenset({A})),
        "m2": Subscriber(instance_id="z", topics=frozenset({A})),
        "m3": Subscriber(instance_id="b", topics=frozenset({A})),
    }
    assert assign_range(members, {A: 3}) == {
        "m3": {A: frozenset({0})},
        "m2": {A: frozenset({1})},
        "m1": {A: frozenset({2})},
    }
