"""Where replicas go when a cluster shrinks or grows: little moves, evenly, to other racks."""

from collections import Counter
from random import Random

import pytest

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.placing import TooFewError, raised, without

Placed = dict[TopicPartition, tuple[int, ...]]
NO_RACKS: dict[int, str] = {}


def placed(*replicas: tuple[int, ...], topic: str = "t") -> Placed:
    return {(topic, Partition(number)): some for number, some in enumerate(replicas)}


def test_only_what_is_on_the_broker_moves_and_keeps_its_place() -> None:
    before = placed((0, 1), (1, 2), (2, 0), (0, 3))
    after = without(before, (), 2, [0, 1, 3], NO_RACKS)
    assert after == {("t", 1): (1, 3), ("t", 2): (3, 0)}


def test_a_partition_with_as_many_replicas_as_brokers_cannot_move() -> None:
    with pytest.raises(TooFewError) as few:
        without(placed((0, 1), (2, 1, 0)), (), 2, [0, 1], NO_RACKS)
    assert (few.value.partition, few.value.replicas) == (("t", 1), 3)


@pytest.mark.parametrize("seed", range(20))
def test_replicas_and_preferred_ones_are_spread_evenly(seed: int) -> None:
    rng = Random(seed)
    brokers = rng.randint(4, 7)
    before = placed(
        *(tuple((at + more) % brokers for more in range(at % 3 + 1)) for at in range(60))
    )
    gone = rng.randrange(brokers)
    stay = [one for one in range(brokers) if one != gone]
    after = {**before, **without(before, (), gone, stay, NO_RACKS)}
    assert all(gone not in some and len(set(some)) == len(some) for some in after.values())
    preferred = Counter(some[0] for some in after.values())
    assert max(preferred.values()) - min(preferred[one] for one in stay) <= 4
    replicas = Counter(one for some in after.values() for one in some)
    assert max(replicas.values()) - min(replicas[one] for one in stay) <= 8  # of 30 and more


def test_a_replica_goes_to_a_rack_that_has_none_while_there_is_one() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    before = placed(*((0, 2, 4),) * 6, *((1, 3),) * 2)
    after = without(before, (), 4, [0, 1, 2, 3], racks)
    assert all(set(some) > {0, 2} and len(set(some)) == 3 for some in after.values())
    after = without(before, (), 2, [0, 1, 3, 4], racks)
    assert set(after.values()) == {(0, 3, 4)}  # it is the other one of that rack


def test_internal_topics_lose_a_replica_where_no_broker_is_left_for_it() -> None:
    inner = placed((0, 1, 2), (2, 0), (1, 0), topic="__consumer_offsets")
    after = without(inner, inner, 2, [0, 1], NO_RACKS)
    assert sorted(after.values()) == [(0, 1), (1, 0)]
    with pytest.raises(TooFewError):
        without(placed((2,), topic="__consumer_offsets"), inner, 2, [], NO_RACKS)


def test_internal_topics_get_more_replicas_up_to_three() -> None:
    inner = placed((0,), (0,), (0, 1), topic="__consumer_offsets")
    others = placed((0,), (0, 1))
    assert raised({**inner, **others}, inner, [0], NO_RACKS) == {}
    two = raised({**inner, **others}, inner, [0, 1], NO_RACKS)
    assert two == {("__consumer_offsets", 0): (0, 1), ("__consumer_offsets", 1): (0, 1)}
    four = {**inner, **raised({**inner, **others}, inner, [0, 1, 2, 3], NO_RACKS)}
    assert all(len(set(some)) == 3 and some[0] == 0 for some in four.values())
    assert {one for some in four.values() for one in some} == {0, 1, 2, 3}
    assert raised(four, inner, [0, 1, 2, 3, 4], NO_RACKS) == {}
