"""Times are looked up among the records that readers see: a marker's time is none of theirs."""

from typing import Any

import pytest

from harness.machines.toy_topics import Log, ToyTopics, at
from tidelog.clients.asking import Address, Ask
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.at_times import first_at_times
from tidelog.clients.consumer.offsets import Place, parse_range, plan_offsets
from tidelog.clients.failures import TimedOutError
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.instant import WallMs, s

LATE = 1_000
"""Seconds: when transactions ended whose records are older."""


def found(toy: ToyTopics, times: dict[TopicPartition, int]) -> dict[int, tuple[int, int]]:
    client = toy.client()
    client.run(refresh(client.view, None))
    places = client.run(first_at_times(client.view, times, Isolation.READ_COMMITTED))
    return {one[1]: (where.offset, where.timestamp) for one, where in places.items()}


def copied() -> ToyTopics:
    """Records of 0 to 39 seconds, in transactions that ended much later."""
    return ToyTopics({"t": [Log(0, 40, markers={5: LATE, 11: LATE, 39: LATE}), Log(0, 40)]})


def test_the_first_record_is_found_behind_markers_that_are_younger() -> None:
    assert found(copied(), {at(0): 20_000, at(1): 20_000}) == {0: (20, 20_000), 1: (20, 20_000)}
    assert found(copied(), {at(0): 5_000}) == {0: (6, 6_000)}
    assert found(copied(), {at(0): 3_000}) == {0: (3, 3_000)}


def test_nothing_is_found_where_only_markers_are_as_young() -> None:
    assert found(copied(), {at(0): 39_000, at(1): 40_000}) == {0: (-1, -1), 1: (-1, -1)}
    assert found(copied(), {at(0): 2_000_000}) == {0: (-1, -1)}


def test_what_is_not_stable_yet_is_not_found() -> None:
    toy = ToyTopics({"t": [Log(0, 40, stable=15, markers={5: LATE})]})
    assert found(toy, {at(0): 14_000}) == {0: (14, 14_000)}
    assert found(toy, {at(0): 15_000}) == {0: (-1, -1)}


def test_a_log_that_is_cut_while_it_is_looked_at_ends_the_search() -> None:
    toy = copied()
    network = toy.network()
    client = toy.client(network)
    client.run(refresh(client.view, None))

    def cut(to: Address, ask: Ask) -> Any:
        if ask.api.name == "Fetch":
            toy.topics["t"][0].latest = 8
        return toy.answer(to, ask)

    network.answer = cut
    plan = first_at_times(client.view, {at(0): 38_000}, Isolation.READ_UNCOMMITTED)
    assert client.run(plan)[at(0)].offset == -1


def test_reading_far_takes_longer_than_one_answer_may_take() -> None:
    toy = ToyTopics({"t": [Log(0, 400, markers={1: LATE})]})
    network = toy.network()
    network.delay_ns = s(1)
    client = toy.client(network)
    client.run(refresh(client.view, None))
    times = {at(0): 399_000}
    plan = first_at_times(client.view, times, Isolation.READ_UNCOMMITTED)
    assert client.run(plan, s(10))[at(0)].offset == 399
    assert network.time > s(100)


def test_a_leader_that_is_silent_is_not_progress() -> None:
    toy = copied()
    network = toy.network()
    client = toy.client(network)
    client.run(refresh(client.view, None))
    network.answer = lambda to, ask: None if ask.api.name == "Fetch" else toy.answer(to, ask)
    with pytest.raises(TimedOutError):
        client.run(first_at_times(client.view, {at(0): 20_000}, Isolation.READ_UNCOMMITTED), s(9))


def test_a_range_by_time_begins_and_ends_at_records() -> None:
    client = copied().client()
    client.run(refresh(client.view, None))
    span = parse_range("@-20s:@-5s", WallMs(30_000))
    places = client.run(plan_offsets(client.view, [at(0)], span))
    assert places == {at(0): Place(Offset(10), Offset(25))}
