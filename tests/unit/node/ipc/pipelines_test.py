"""The pipes between brokers, and their fault switches."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tidelog.kernel.ids import BrokerId
from tidelog.node.ipc.layout import Links, board_size_bytes
from tidelog.node.ipc.pipelines import Pipelines
from tidelog.wire.replication import Payload

ONE, TWO, ABSENT = BrokerId(1), BrokerId(2), BrokerId(3)
WITHIN_S = 10.0


class Pair:
    """Two brokers' ends, on one loop; what the second one hears is kept."""

    def __init__(self, runtime_dir: str) -> None:
        self._runtime_dir = runtime_dir
        self.loop = asyncio.new_event_loop()
        self.links = Links(memoryview(bytearray(board_size_bytes(1))))
        self.heard: list[list[bytes]] = []
        self._done = asyncio.Event()
        self._wanted = 0
        self.lost: asyncio.Queue[BrokerId] = asyncio.Queue()
        self.one = self._pipelines(ONE, lambda _: None)
        self.two = self._pipelines(TWO, self._on_message)
        self.two.start()

    def start_two_anew(self) -> None:
        self.two.close()
        self.heard.clear()
        self.two = self._pipelines(TWO, self._on_message)
        self.two.start()

    def _pipelines(
        self, me: BrokerId, on_message: Callable[[Sequence[Payload]], None]
    ) -> Pipelines:
        return Pipelines(
            self.loop, self._runtime_dir, me, self.links, on_message, self.lost.put_nowait
        )

    def _on_message(self, parts: Sequence[Payload]) -> None:
        self.heard.append([bytes(part) for part in parts])
        if len(self.heard) >= self._wanted:
            self._done.set()

    def hear(self, count: int) -> list[list[bytes]]:
        self._wanted = count
        self._done.clear()
        if len(self.heard) < count:
            self.loop.run_until_complete(asyncio.wait_for(self._done.wait(), WITHIN_S))
        return self.heard

    def close(self) -> None:
        self.one.close()
        self.two.close()
        self.loop.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(str(tmp_path))
    yield made
    made.close()


def test_messages_arrive_in_order_with_all_their_parts(pair: Pair) -> None:
    for number in range(200):
        assert pair.one.send(TWO, [b"%d" % number, bytearray(b"payload")])
    assert pair.hear(200) == [[b"%d" % number, b"payload"] for number in range(200)]


def test_small_and_large_messages_arrive_in_the_order_in_which_they_were_sent(pair: Pair) -> None:
    sent = [[b"small %d" % n] if n % 3 else [b"large %d" % n, bytes(50_000)] for n in range(90)]
    for first in range(0, 90, 30):
        for parts in sent[first : first + 30]:
            assert pair.one.send(TWO, parts)
        pair.hear(first + 15)  # the rest comes while more is sent
    assert pair.hear(90) == sent


def test_what_is_sent_to_a_broker_s_next_life_arrives_in_order(pair: Pair) -> None:
    assert pair.one.send(TWO, [b"opens the short way"])
    assert pair.one.send(TWO, [b"small"])
    pair.hear(2)
    pair.start_two_anew()
    for number in range(20):
        assert pair.one.send(TWO, [b"%d" % number])
    assert pair.hear(20) == [[b"%d" % number] for number in range(20)]


def test_a_broker_that_does_not_look_is_sent_what_fits_into_its_inbox(pair: Pair) -> None:
    """A short way that is full leaves the rest to the pipe."""
    for number in range(700):
        assert pair.one.send(TWO, [b"%d" % number])
    assert pair.hear(700) == [[b"%d" % number] for number in range(700)]


def test_a_pipe_to_a_broker_that_is_away_refuses_when_it_is_full(pair: Pair) -> None:
    taken = 0
    while pair.one.send(ABSENT, [b"x"]):
        taken += 1
        assert taken <= 10_000
    assert taken >= 500


def test_what_is_sent_over_a_cut_link_is_lost_and_the_other_direction_is_whole(pair: Pair) -> None:
    pair.links.set(ONE, TWO, Links.CUT)
    assert pair.links.get(TWO, ONE) == 0
    assert pair.one.send(TWO, [b"lost"])
    pair.links.set(ONE, TWO, 0)
    assert pair.one.send(TWO, [b"heard"])
    assert pair.hear(1) == [[b"heard"]]


def test_nothing_overtakes_on_a_slow_link_or_when_it_is_whole_again(pair: Pair) -> None:
    pair.links.set(ONE, TWO, 50)
    assert pair.one.send(TWO, [b"first"])
    pair.links.set(ONE, TWO, 0)
    assert pair.one.send(TWO, [b"second"])
    assert pair.hear(2) == [[b"first"], [b"second"]]


def test_a_slow_link_holds_no_more_than_a_full_pipe(pair: Pair) -> None:
    pair.links.set(ONE, TWO, 60_000)
    taken = 0
    while pair.one.send(TWO, [b"x"]):
        taken += 1
        assert taken <= 10_000
    assert taken >= 500


def test_who_sent_is_told_of_what_was_held_on_a_slow_link_and_then_found_the_pipe_full(
    pair: Pair,
) -> None:
    while pair.one.send(ABSENT, [b"x"]):
        pass
    pair.links.set(ONE, ABSENT, 1)
    assert pair.one.send(ABSENT, [b"held"])
    assert pair.lost.empty()
    lost = pair.loop.run_until_complete(asyncio.wait_for(pair.lost.get(), WITHIN_S))
    assert lost == ABSENT
