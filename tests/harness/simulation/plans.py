"""Clients of a simulated cluster that run plans (`clients/asking.py`): the code that real clients
run over sockets, here over brokers' own request handlers, on simulated time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from harness.simulation.clients import Asked
from harness.simulation.cluster import SimulatedCluster
from harness.simulation.living import Life, Living, Wish
from tidelog.clients.asking import (
    Answered,
    Call,
    Cause,
    Lost,
    Outcome,
    Pause,
    Plan,
    Ticket,
)
from tidelog.clients.client import NOWHERE
from tidelog.clients.cluster_view import ClusterView
from tidelog.clients.failures import TimedOutError
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import ms
from tidelog.wire.messages.k00_produce import API as PRODUCE

ResultT = TypeVar("ResultT")

PATIENCE_MS = 1_500
"""For one answer."""
TIME_MS = 20_000
"""For a plan."""
_ROUND_TRIP_MS = 0.2
LATE_MS_MAX = 3_000
"""A copy of a request comes at most so much later than the request."""


class Died(Exception):  # noqa: N818 -- what becomes of a process
    """The process is no more; what it asked stays asked."""


@dataclass
class Troubles:
    """How often what happens to a process and its messages, for each of its steps or messages."""

    deaths: float = 0
    naps: float = 0
    lost: float = 0
    copies: float = 0


class PlanRunner(Living):
    """One process, with a view of the cluster of its own."""

    def __init__(self, cluster: SimulatedCluster, rng: Random, troubles: Troubles) -> None:
        self.cluster = cluster
        self.rng = rng
        self.troubles = troubles
        self.view = ClusterView()
        self.on_nap: Callable[[], None] = lambda: None
        """Called when the process is about to stand still for a while."""

    def runs(self, plan: Plan[ResultT]) -> Life:
        """Do a plan to its end, unless the process dies at one of its steps."""
        outcomes: Any = None
        until = self.cluster.now + ms(TIME_MS)
        while True:
            if self.cluster.now > until:
                raise TimedOutError("the cluster did not answer in time")
            try:
                step = plan.send(outcomes)
            except StopIteration as done:
                return done.value
            yield from self._suffers()
            if isinstance(step, Pause):
                yield "wait", step.wait_ns / ms(1)
                outcomes = []
            else:
                outcomes = yield "ask", step

    def _suffers(self) -> Life:
        fate = self.rng.random()
        if fate < self.troubles.deaths:
            raise Died
        if fate < self.troubles.deaths + self.troubles.naps:
            self.on_nap()
            yield "wait", self.rng.choice([20, 200, 1_000, 5_000]) * self.rng.uniform(0.5, 1.5)

    # -- as of a living

    def _world(self) -> SimulatedCluster:
        return self.cluster

    def _grant(self, wish: Wish, come: Callable[[Any], None]) -> None:
        kind, what = wish
        if kind == "wait":
            self.cluster.timeline.after(what, lambda: come(None))
            return
        calls: list[Call] = what
        outcomes: dict[int, Outcome] = {}

        def heard(number: int, outcome: Outcome) -> None:
            if number in outcomes:
                return
            outcomes[number] = outcome
            if len(outcomes) == len(calls):
                come([outcomes[one] for one in range(len(calls))])

        for number, call in enumerate(calls):
            self._ask(call, partial(heard, number))
        if not calls:
            self.cluster.timeline.after(0, lambda: come([]))

    def _ask(self, call: Call, heard: Callable[[Outcome], None]) -> None:
        timeline = self.cluster.timeline
        broker = self._broker(call)
        lost = Lost(NOWHERE, Cause.UNREACHABLE, "no answer")
        timeline.after(PATIENCE_MS, lambda: heard(lost))
        if broker is None:
            timeline.after(_ROUND_TRIP_MS, lambda: heard(lost))
            return
        fate = self.rng.random() if self.troubles.lost else 1.0
        if fate < self.troubles.lost / 2:
            return  # the request is lost
        is_heard = fate >= self.troubles.lost

        def answered(outcome: Outcome) -> None:
            if is_heard:
                heard(outcome)

        timeline.after(_ROUND_TRIP_MS, lambda: self._send(broker, call, answered))
        if call.ask.api is not PRODUCE and self.rng.random() < self.troubles.copies:
            late = self.rng.uniform(1, LATE_MS_MAX)
            timeline.after(late, lambda: self._send(broker, call, lambda _outcome: None))

    def _send(self, broker: BrokerId, call: Call, heard: Callable[[Outcome], None]) -> None:
        life = self.cluster.lives.get(broker)
        ask = call.ask
        if life is None or not life.serving:
            heard(Lost(NOWHERE, Cause.UNREACHABLE, f"broker {broker} is dead"))
            return
        version = min(ask.api.versions[-1], ask.version_max)
        assert version >= ask.version_min, ask.api.name
        box: list[Asked] = []

        def over() -> None:
            answer = box[0].answer
            heard(
                Lost(NOWHERE, Cause.UNREACHABLE, "hung up")
                if answer is None
                else Answered(Ticket(0), version, answer)
            )

        # It may be over before it has a name: what comes of it is taken at the next turn.
        ended = lambda: self.cluster.timeline.after(0, over)  # noqa: E731
        box.append(Asked(life, ask.api, version, ask.message, ended))

    def _broker(self, call: Call) -> BrokerId | None:
        """Whoever it means; of all brokers one that lives."""
        if isinstance(call.to, int):
            return BrokerId(call.to)
        living = [one for one, life in self.cluster.lives.items() if life.serving]
        return self.rng.choice(living) if living else None
