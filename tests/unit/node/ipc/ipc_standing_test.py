"""Whether this life of the broker still counts: the fence word, looked at in every turn."""

from tidelog.kernel.ids import BrokerId, Offset
from tidelog.node.ipc import layout
from tidelog.node.ipc.layout import Fences
from tidelog.node.ipc.standing import Standing

ME, OTHER = BrokerId(1), BrokerId(2)


class Bench:
    """A board, and what the broker was told of its own end."""

    def __init__(self) -> None:
        self.fences = Fences(memoryview(bytearray(layout.board_size_bytes(1))))
        self.lost: list[int] = []
        self.standing = Standing(self.fences, ME, self.lost.append)


def test_a_broker_that_has_not_registered_has_nothing_to_lose() -> None:
    bench = Bench()
    bench.fences.fence(ME, Offset(7))
    assert not bench.standing.is_lost()
    assert bench.lost == []


def test_a_life_is_lost_when_its_own_word_is_up() -> None:
    bench = Bench()
    bench.standing.registered(Offset(7))
    bench.fences.fence(OTHER, Offset(7))
    assert not bench.standing.is_lost()
    bench.fences.fence(ME, Offset(6))
    assert not bench.standing.is_lost()
    bench.fences.fence(ME, Offset(7))
    assert bench.standing.is_lost()


def test_what_follows_from_a_loss_is_done_once_and_before_anyone_hears_of_it() -> None:
    bench = Bench()
    bench.standing.registered(Offset(7))
    bench.fences.fence(ME, Offset(9))
    assert bench.standing.is_lost()
    assert bench.lost == [7]
    assert bench.standing.is_lost()
    assert bench.lost == [7]


def test_the_next_life_stands_until_its_own_word_is_up() -> None:
    bench = Bench()
    bench.standing.registered(Offset(7))
    bench.fences.fence(ME, Offset(7))
    assert bench.standing.is_lost()
    bench.standing.registered(Offset(12))
    assert not bench.standing.is_lost()
    bench.fences.fence(ME, Offset(12))
    assert bench.standing.is_lost()
    assert bench.lost == [7, 12]


def test_a_life_that_was_lost_before_it_was_heard_of_is_lost_at_the_first_look() -> None:
    bench = Bench()
    bench.fences.fence(ME, Offset(12))
    bench.standing.registered(Offset(12))
    assert bench.standing.is_lost()
    assert bench.lost == [12]
