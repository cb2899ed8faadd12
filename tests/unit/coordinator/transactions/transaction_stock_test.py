"""Blocks of producer ids: one is asked for at a time, and each proves something of the image."""

from typing import Final

from harness.machines.transaction_world import SETTINGS
from tidelog.coordinator.transactions.around import Around
from tidelog.coordinator.transactions.events import WantIds
from tidelog.coordinator.transactions.stock import Stock
from tidelog.kernel.ids import NO_LEADER, Epoch, Partition, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import PRODUCER_ID_BLOCK, TRANSACTION_AGAIN_MS
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import ProducerIdsAllocated

NOW: Final = Instant(0)
LATER: Final = Instant(NOW + ms(TRANSACTION_AGAIN_MS))
ONE, TWO = Partition(1), Partition(2)


class Bench:
    """A stock, and the controller's side by hand."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.around = Around(self.image, Epoch(1), SETTINGS, lambda now: now // ms(1))
        self.stock = Stock(self.around)
        self.next = 0

    def asks(self) -> bool:
        self.around.out.clear()
        self.stock.flush()
        return self.around.out == [WantIds()]

    def give(self) -> None:
        self.stock.given(ProducerId(self.next), PRODUCER_ID_BLOCK)
        self.next += PRODUCER_ID_BLOCK

    def take_alarm(self) -> Instant | None:
        due, self.around.alarm = self.around.alarm, None
        return due

    def show(self, upto: int) -> bool:
        """Let the image come to show all blocks below this id; whether that proved something."""
        self.image.replay(ProducerIdsAllocated(NO_LEADER, ProducerId(upto)))
        return self.stock.prove()

    def full(self) -> "Bench":
        """Nobody wants ids: what is asked for from now on is asked for to prove something."""
        assert self.asks()
        self.give()
        self.show(self.next)
        return self


def test_one_block_is_asked_for_at_a_time() -> None:
    bench = Bench()
    assert bench.asks()
    assert not bench.asks()
    bench.give()
    assert not bench.asks(), "there are enough"


def test_nothing_is_proven_before_the_image_shows_the_whole_block() -> None:
    bench = Bench().full()
    assert not bench.stock.is_current(ONE)
    assert bench.asks()
    bench.give()
    assert not bench.show(bench.next - 1)
    assert not bench.stock.is_current(ONE)
    assert bench.show(bench.next)
    assert bench.stock.is_current(ONE)


def test_what_wants_a_proof_after_a_block_was_asked_for_waits_for_the_next_one() -> None:
    bench = Bench().full()
    assert not bench.stock.is_current(ONE)
    assert bench.asks()
    assert not bench.stock.is_current(TWO)
    bench.give()
    assert bench.show(bench.next)
    assert bench.stock.is_current(ONE)
    assert not bench.stock.is_current(TWO)
    assert bench.asks()
    bench.give()
    assert bench.show(bench.next)
    assert bench.stock.is_current(TWO)


def test_a_block_proves_once_what_waited_for_it() -> None:
    bench = Bench().full()
    assert not bench.stock.is_current(ONE)
    assert bench.asks()
    bench.give()
    assert bench.show(bench.next)
    assert not bench.show(bench.next + 1)


def test_a_block_that_nothing_waited_for_proves_nothing() -> None:
    bench = Bench()
    assert bench.asks()
    bench.give()
    assert not bench.show(bench.next)


def test_blocks_that_the_image_does_not_show_yet_are_waited_for_each() -> None:
    bench = Bench().full()
    for partition in (ONE, TWO):
        assert not bench.stock.is_current(partition)
        assert bench.asks()
        bench.give()
    assert bench.show(bench.next - PRODUCER_ID_BLOCK)
    assert (bench.stock.is_current(ONE), bench.stock.is_current(TWO)) == (True, False)
    assert bench.show(bench.next)
    assert bench.stock.is_current(TWO)


def test_after_a_refusal_the_controller_is_asked_again_for_the_same_after_a_while() -> None:
    bench = Bench().full()
    assert not bench.stock.is_current(ONE)
    assert bench.asks()
    bench.stock.refused(NOW)
    assert bench.take_alarm() == LATER
    bench.stock.tick(Instant(LATER - 1))
    assert not bench.asks()
    assert bench.take_alarm() == LATER, "it was woken too early, and for nothing"
    bench.stock.tick(LATER)
    assert bench.asks()
    bench.give()
    assert bench.show(bench.next)
    assert bench.stock.is_current(ONE)


def test_a_block_given_after_a_refusal_proves_only_what_it_was_asked_for() -> None:
    bench = Bench()
    assert bench.asks()
    assert not bench.stock.is_current(ONE)
    bench.stock.refused(NOW)
    bench.stock.tick(LATER)
    assert bench.asks()
    assert not bench.stock.is_current(TWO)
    bench.give()
    assert bench.show(bench.next)
    assert (bench.stock.is_current(ONE), bench.stock.is_current(TWO)) == (True, False)
