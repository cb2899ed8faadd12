"""Drawn histories of a broker's link to the transaction coordinator: lost connections, late words.

Each request is sent once at most, decided once at most and finished once, in time; nobody of the
past is spoken to, and nothing is done for one.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from harness.faults.planting import Planting
from harness.machines.transaction_conversations import World
from harness.suite.budgets import Histories
from tidelog.kernel.ids import Epoch
from tidelog.kernel.instant import Instant
from tidelog.node.transactions.link import Effect, ForwardAsked, Link, Me, Send
from tidelog.wire.errors import WireError
from tidelog.wire.transactions import Admit, Welcome, decode_from_transactions

STEPS = 500


def live(seed: int, make: Callable[[Me], Link] = Link) -> World:
    world = World(seed, make)
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


def test_each_call_is_sent_once_and_finished_once(histories: Histories) -> None:
    results = sent = 0

    def history(seed: int) -> None:
        nonlocal results, sent
        world = live(seed)
        results, sent = results + len(world.results), sent + len(world.sent)

    ran = histories.run(history)
    assert results > ran * STEPS // 20
    assert sent > ran * STEPS // 50


# -- plants


class SendsAgain(Link):
    """What was under way when the connection ended goes out again."""

    _frames: dict[int, ForwardAsked]

    def _send(self, asked: ForwardAsked) -> Send:
        self.__dict__.setdefault("_frames", {})[asked.call] = asked
        return super()._send(asked)

    def _part(self) -> list[Effect]:
        again = [self._frames[asked.call] for asked in self._sent.values()]
        self._sent.clear()
        effects = super()._part()
        for asked in again:
            effects += self._asked(Instant(asked.deadline - 1), asked)
        return effects


class TakesAnyWelcome(Link):
    """Also of a coordinator that was replaced."""

    def _welcome(self, message: Welcome) -> list[Effect]:
        epoch, self.epoch = self.epoch, Epoch(0)
        effects = super()._welcome(message)
        self.epoch = max(epoch, self.epoch)
        return effects


class ForgetsSessions(Link):
    """The answer to an earlier session's call is taken for one of now."""

    def _part(self) -> list[Effect]:
        sent = dict(self._sent)
        effects = super()._part()
        self._sent.update(sent)
        return effects


class LosesCount(Link):
    """Calls have the numbers of sessions to come: nobody sees which connection they are of."""

    def _send(self, asked: ForwardAsked) -> Send:
        self._count += 1_000
        sent = super()._send(asked)
        self._count -= 1_001
        return sent


class ListensToAnybody(Link):
    """What a coordinator says of itself is taken from whichever connection it comes."""

    def _received(self, now: Instant, frame: bytes) -> list[Effect]:
        with suppress(WireError):
            message = decode_from_transactions(frame)
            if isinstance(message, Admit):
                return [message]
        return super()._received(now, frame)


@pytest.mark.parametrize(
    "plant", [SendsAgain, TakesAnyWelcome, ForgetsSessions, LosesCount, ListensToAnybody]
)
def test_a_fault_is_found(plant: type[Link], planting: Planting) -> None:
    make = {"link": Link}
    planting.is_found(
        lambda patch: patch.setitem(make, "link", plant), lambda seed: live(seed, make["link"])
    )
