"""The pipes of the simulator do to messages what sockets do, and nothing else."""

from functools import partial
from random import Random
from typing import Any

import pytest

from harness.simulation.clock import Timeline
from harness.simulation.network import Network
from tidelog.kernel.instant import Instant, s

A, B, C = 0, 1, 2
Got = list[tuple[int, int, Any]]


class Room:
    """Three processes that note what they are told."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.got: Got = []
        self.asleep: set[int] = set()
        self.network = Network(
            self.timeline,
            Random(seed),
            lambda sender, to, message: self.got.append((sender, to, message)),
            lambda process: process not in self.asleep,
        )

    def run(self) -> Got:
        """What arrived until nothing moves any more."""
        until = Instant(self.timeline.now + s(1))
        while self.timeline.step(until):
            pass
        got, self.got = self.got, []
        return got


@pytest.mark.parametrize("seed", range(20))
def test_a_pipe_keeps_its_order(seed: int) -> None:
    room = Room(seed)
    for number in range(300):
        assert room.network.push(A, B, number)
    assert room.run() == [(A, B, number) for number in range(300)]


def test_pipes_overtake_each_other() -> None:
    room = Room()
    for number in range(100):
        room.network.push(A, C, number)
        room.network.push(B, C, number)
    senders = [sender for sender, _, _ in room.run()]
    assert senders != [A, B] * 100
    assert sorted(senders) == [A] * 100 + [B] * 100


def test_a_cut_goes_one_way() -> None:
    room = Room()
    room.network.cut_from(A, B)
    room.network.push(A, B, "lost?")
    room.network.push(B, A, "heard")
    assert room.run() == [(B, A, "heard")]
    room.network.heal(lose=False)
    assert room.run() == [(A, B, "lost?")]


@pytest.mark.parametrize("seed", range(20))
def test_a_link_that_heals_loses_the_oldest(seed: int) -> None:
    room = Room(seed)
    room.network.cut(A, B)
    for number in range(10):
        room.network.push(A, B, number)
    room.network.heal(lose=True)
    came = [message for _, _, message in room.run()]
    assert came == list(range(10 - len(came), 10))


def test_a_full_pipe_says_so() -> None:
    room = Room()
    room.network.capacity = 2
    room.network.cut(A, B)
    assert [room.network.push(A, B, number) for number in range(3)] == [True, True, False]


def test_a_sleeper_gets_its_messages_when_it_wakes() -> None:
    room = Room()
    room.asleep.add(B)
    room.network.push(A, B, 1)
    assert room.run() == []
    room.asleep.clear()
    room.network.awake(B)
    room.network.push(A, B, 2)
    assert room.run() == [(A, B, 1), (A, B, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_the_dead_take_along_what_they_had(seed: int) -> None:
    room = Room(seed)
    room.network.cut(A, B)
    for number in range(4):
        room.network.push(A, B, number)
        room.network.push(B, A, number)
    room.network.died(B)
    room.network.heal(lose=False)
    came = room.run()
    to_b = [message for _, to, message in came if to == B]
    of_b = [message for _, to, message in came if to == A]
    assert to_b == list(range(4 - len(to_b), 4))
    assert of_b == list(range(len(of_b)))


def test_what_happens_at_the_same_time_happens_as_it_was_asked() -> None:
    timeline, seen = Timeline(), list[int]()
    for number in range(5):
        timeline.after(1, partial(seen.append, number))
    while timeline.step(Instant(timeline.now + s(1))):
        pass
    assert seen == [0, 1, 2, 3, 4]
