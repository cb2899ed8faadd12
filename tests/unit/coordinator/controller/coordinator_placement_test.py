"""Where new replicas go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.controller.assignment import Start, assign, growing
from tidelog.kernel.ids import BrokerId


@pytest.mark.parametrize(
    ("brokers", "factor", "start", "expected"),
    [
        (1, 1, Start(0, 0), [(0,), (0,), (0,)]),
        (3, 1, Start(1, 0), [(1,), (2,), (0,)]),
        (3, 3, Start(0, 0), [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2)]),
        (
            5,
            3,
            Start(0, 0),
            [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4)],
        ),
    ],
)
def test_replicas_are_placed_as_kafka_places_them(
    brokers: int, factor: int, start: Start, expected: list[tuple[int, ...]]
) -> None:
    ids = {BrokerId(broker): None for broker in range(brokers)}
    partitions = range(len(expected))
    assert assign(ids, partitions=partitions, replication_factor=factor, start=start) == expected


@given(
    brokers=st.integers(1, 8),
    partitions=st.integers(1, 40),
    start=st.integers(0, 7),
    data=st.data(),
)
def test_any_placement_is_even_and_names_no_broker_twice(
    brokers: int, partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = assign(
        {BrokerId(10 + broker): None for broker in range(brokers)},
        partitions=range(partitions),
        replication_factor=factor,
        start=Start(start, data.draw(st.integers(0, 7))),
    )
    assert all(len(set(replicas)) == factor for replicas in placed)
    led = [sum(replicas[0] == 10 + broker for replicas in placed) for broker in range(brokers)]
    assert max(led) - min(led) <= 1


@pytest.mark.parametrize(
    ("racks", "factor", "expected"),
    [
        # Two replicas, three racks: never twice the same one.
        ("aabbcc", 3, [(0, 2, 4), (2, 4, 1), (4, 1, 3), (1, 3, 5), (3, 5, 0), (5, 0, 2)]),
        # One rack has most of the brokers.
        ("aaab", 2, [(0, 3), (3, 1), (1, 3), (2, 3)]),
        # More replicas than racks: the second rack comes before the first one again.
        ("aab", 3, [(0, 2, 1), (2, 1, 0), (1, 2, 0)]),
        ("aaa", 2, [(0, 1), (1, 2), (2, 0)]),
    ],
)
def test_no_rack_has_a_second_replica_before_each_has_one(
    racks: str, factor: int, expected: list[tuple[int, ...]]
) -> None:
    brokers = {BrokerId(broker): rack for broker, rack in enumerate(racks)}
    partitions, start = range(len(expected)), Start(0, 0)
    placed = assign(brokers, partitions=partitions, replication_factor=factor, start=start)
    assert placed == expected


def test_racks_count_only_where_every_broker_has_one() -> None:
    brokers = {BrokerId(0): "a", BrokerId(1): "a", BrokerId(2): None}
    placed = assign(brokers, partitions=range(1), replication_factor=2, start=Start(0, 0))
    assert placed == [(0, 1)]


@given(
    racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=8),
    partitions=st.integers(1, 40),
    start=st.integers(0, 7),
    shift=st.integers(0, 7),
    data=st.data(),
)
def test_any_racks_are_used_evenly_by_each_partition(
    racks: list[str], partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers = {BrokerId(broker): rack for broker, rack in enumerate(racks)}
    factor = data.draw(st.integers(1, len(racks)))
    placed = assign(
        brokers,
        partitions=range(partitions),
        replication_factor=factor,
        start=Start(start % len(racks), shift),
    )
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({brokers[one] for one in replicas}) == min(factor, len(set(racks)))
    led = Counter(replicas[0] for replicas in placed)
    assert max(led.values()) - min(led[one] for one in brokers) <= 1


@given(
    racks=st.lists(st.sampled_from("ab-"), min_size=1, max_size=7),
    partitions=st.integers(1, 12),
    more=st.integers(1, 20),
    start=st.integers(0, 6),
    data=st.data(),
)
def test_a_topic_that_grows_is_led_as_evenly_as_one_made_at_once(
    racks: list[str], partitions: int, more: int, start: int, data: st.DataObject
) -> None:
    brokers = {BrokerId(n): None if rack == "-" else rack for n, rack in enumerate(racks)}
    factor = data.draw(st.integers(1, len(racks)))
    begun = Start(start % len(racks), data.draw(st.integers(0, 6)))
    whole = range(partitions + more)
    old = assign(brokers, partitions=whole[:partitions], replication_factor=factor, start=begun)
    new = assign(
        brokers,
        partitions=whole[partitions:],
        replication_factor=factor,
        start=growing(brokers, old[0][0]),
    )
    at_once = assign(brokers, partitions=whole, replication_factor=factor, start=begun)
    assert [row[0] for row in old + new] == [row[0] for row in at_once]


def test_growth_begins_at_the_first_broker_where_the_old_one_is_gone() -> None:
    brokers = {BrokerId(1): None, BrokerId(2): None}
    assert growing(brokers, BrokerId(2)) == Start(1, 1)
    assert growing(brokers, BrokerId(7)) == Start(0, 0)
