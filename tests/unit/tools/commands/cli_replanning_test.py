"""What `partition reassign plan` proposes: replicas on the brokers asked for, evenly, and little
that moves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.replanning import TooFewError, proposed

Current = dict[TopicPartition, tuple[int, ...]]


def topic(*replicas: tuple[int, ...]) -> Current:
    return {("t", Partition(number)): row for number, row in enumerate(replicas)}


def after(current: Current, proposal: Mapping[TopicPartition, Sequence[int]]) -> Current:
    return {place: tuple(proposal.get(place, row)) for place, row in current.items()}


def copies(current: Current, proposal: Mapping[TopicPartition, Sequence[int]]) -> int:
    return sum(len(set(row) - set(current[place])) for place, row in proposal.items())


def test_what_is_even_stays() -> None:
    assert proposed(topic((0, 1), (1, 2), (2, 0)), [0, 1, 2], {}) == {}


def test_a_new_broker_gets_its_share_and_no_more_moves() -> None:
    current = topic(*[(n % 3, (n + 1) % 3) for n in range(12)])
    proposal = proposed(current, [0, 1, 2, 3], {})
    assert copies(current, proposal) == 6
    load = Counter(one for row in after(current, proposal).values() for one in row)
    assert set(load.values()) == {6}


def test_no_way_to_an_even_load_takes_fewer_copies() -> None:
    """Those two that have one too many give it away; nobody else moves anything."""
    current = topic((0, 1), (1, 2), (2, 0), (0, 2))
    assert copies(current, proposed(current, [0, 1, 2, 3], {})) == 2


def test_a_broker_that_is_not_wanted_is_left() -> None:
    current = topic((0, 1), (1, 2), (2, 0))
    proposal = proposed(current, [0, 1], {})
    assert copies(current, proposal) == 2
    assert {one for row in after(current, proposal).values() for one in row} == {0, 1}


def test_more_or_fewer_replicas_are_given() -> None:
    current = topic((0, 1), (1, 2), (2, 0))
    assert all(len(row) == 3 for row in proposed(current, [0, 1, 2], {}, 3).values())
    fewer = after(current, proposed(current, [0, 1, 2], {}, 1))
    assert sorted(fewer.values()) == [(0,), (1,), (2,)]


def test_leads_are_shared_by_the_order_alone() -> None:
    current = topic((0, 1, 2), (0, 1, 2), (0, 1, 2))
    proposal = proposed(current, [0, 1, 2], {})
    assert copies(current, proposal) == 0
    assert sorted(row[0] for row in after(current, proposal).values()) == [0, 1, 2]


def test_a_replica_comes_to_a_rack_that_has_none() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    current = topic((0,), (1,))
    proposal = after(current, proposed(current, [0, 1, 2, 3], racks, 2))
    assert all({racks[one] for one in row} == {"a", "b"} for row in proposal.values())


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(TooFewError):
        proposed(topic((0, 1, 2)), [0, 1], {})


@st.composite
def situations(draw: st.DrawFn) -> tuple[Current, set[int]]:
    """A topic somehow placed, and the brokers that shall have it."""
    brokers, wanted = draw(st.integers(1, 7)), draw(st.sets(st.integers(0, 8), min_size=1))
    factor = draw(st.integers(1, min(brokers, len(wanted))))
    rng = Random(draw(st.integers(0, 1 << 32)))
    rows = [tuple(rng.sample(range(brokers), factor)) for _ in range(draw(st.integers(1, 12)))]
    return topic(*rows), wanted


@given(situations())
def test_any_proposal_is_even_on_the_brokers_asked_for(situation: tuple[Current, set[int]]) -> None:
    current, wanted = situation
    found = after(current, proposed(current, wanted, {}))
    for place, row in found.items():
        assert len(set(row)) == len(current[place])
        assert set(row) <= wanted
    load = Counter(one for row in found.values() for one in row)
    assert max(load.values()) - min(load[one] for one in wanted) <= 1
    # Once it is so, nothing more is proposed.
    assert proposed(found, wanted, {}) == {}


@given(situations())
def test_where_no_broker_goes_only_what_is_above_a_share_is_copied(
    situation: tuple[Current, set[int]],
) -> None:
    current, wanted = situation
    had = Counter(one for row in current.values() for one in row)
    brokers = {*wanted, *had}
    share = sum(had.values()) // len(brokers)
    above = sum(max(0, had[one] - share) for one in brokers)
    assert copies(current, proposed(current, brokers, {})) <= above


@given(situations(), st.integers(0, 511))
def test_no_partition_comes_to_fewer_racks(situation: tuple[Current, set[int]], bits: int) -> None:
    current, wanted = situation
    racks = {broker: "ab"[bits >> broker & 1] for broker in range(9)}
    for place, row in after(current, proposed(current, wanted, racks)).items():
        kept = {racks[one] for one in current[place] if one in wanted}
        assert len({racks[one] for one in row}) >= len(kept)
