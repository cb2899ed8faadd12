"""Runs plans over a network: knows where brokers are, waits, and gives up in time.

One thread owns a client. A plan waits for its own questions; outcomes of others that come in the
meantime are kept for `poll`.
"""

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from tidelog.clients.asking import (
    Address,
    Call,
    Cause,
    Lost,
    Network,
    Outcome,
    Pause,
    Plan,
    Somewhere,
    Ticket,
    is_transient,
)
from tidelog.clients.cluster_view import METADATA_OF_NOTHING, ClusterView
from tidelog.clients.failures import TimedOutError, UnreachableError
from tidelog.kernel.instant import Instant, s

ResultT = TypeVar("ResultT")

NOWHERE = Ticket(-1)
"""Of a question that no broker got."""


class Client:
    """What all of a program's producers, consumers and commands share."""

    def __init__(
        self, network: Network, bootstrap: Sequence[Address], *, timeout_ns: int = s(30)
    ) -> None:
        assert bootstrap, "an address to begin with"
        self.network = network
        self.view = ClusterView()
        self._anyone = deque(dict.fromkeys(bootstrap))
        self._timeout_ns = timeout_ns
        self._kept: dict[Ticket, Outcome] = {}

    def connect(self, timeout_ns: int | None = None) -> None:
        """Learn the brokers from the first address that answers; each is tried once, in time."""
        until = self._until(self._timeout_ns if timeout_ns is None else timeout_ns)
        tried: list[str] = []
        for _ in range(len(self._anyone)):
            try:
                (outcome,) = self._perform([METADATA_OF_NOTHING], until)
            except TimedOutError as error:
                raise TimedOutError("; ".join([*tried, str(error)])) from None
            if not isinstance(outcome, Lost):
                self.view.update(outcome.message, whole=False)
                return
            tried.append(outcome.detail)
        raise UnreachableError(f"no broker answers ({'; '.join(tried)})")

    def run(self, plan: Plan[ResultT], timeout_ns: int | None = None) -> ResultT:
        """Do a plan to its end and return what it found, or raise TimedOutError.

        The time counts from the last pause in which the plan told progress.
        """
        timeout = self._timeout_ns if timeout_ns is None else timeout_ns
        until = self._until(timeout)
        outcomes: list[Outcome] = []
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    until = self._until(timeout) if step.renews else until
                    self._pause(step, until, timeout)
                    outcomes = []
                else:
                    outcomes = self._perform(step, until)
                step = plan.send(outcomes)
        except StopIteration as done:
            result: ResultT = done.value
            return result

    def ask(self, call: Call) -> Ticket | None:
        """Send a question and go on; None where its broker is not known (any more)."""
        address = self._address(call.to)
        return None if address is None else self.network.ask(address, call.ask)

    def poll(self, until: Instant) -> list[Outcome]:
        """Outcomes of what `ask` sent: those there are, else whatever comes until then."""
        kept = list(self._kept.values())
        self._kept.clear()
        return kept or self.network.poll(until)

    def _until(self, timeout_ns: int) -> Instant:
        return Instant(self.network.now() + timeout_ns)

    def _pause(self, pause: Pause, until: Instant, timeout_ns: int) -> None:
        wake = Instant(self.network.now() + pause.wait_ns)
        if wake > until:
            raise TimedOutError(f"gave up after {timeout_ns / s(1):g} s: {pause.because}")
        while self.network.now() < wake:
            self._keep(self.network.poll(wake))

    def _perform(self, calls: Sequence[Call], until: Instant) -> list[Outcome]:
        addresses = [self._address(call.to) for call in calls]
        tickets = [self.ask(call) for call in calls]
        missing = {ticket for ticket in tickets if ticket is not None} - self._kept.keys()
        while missing:
            if self.network.now() >= until:
                asked = zip(addresses, tickets, strict=True)
                silent = dict.fromkeys(str(where) for where, ticket in asked if ticket in missing)
                raise TimedOutError(f"{', '.join(silent)} did not answer in time")
            self._keep(self.network.poll(until))
            missing -= self._kept.keys()
        outcomes = [
            self._unknown(call) if ticket is None else self._kept.pop(ticket)
            for call, ticket in zip(calls, tickets, strict=True)
        ]
        self._move_on(calls, outcomes)
        self._remember_brokers()
        return outcomes

    def _keep(self, outcomes: list[Outcome]) -> None:
        self._kept.update((outcome.ticket, outcome) for outcome in outcomes)

    def _move_on(self, calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
        """The next question for anyone goes to the next broker where this one failed."""
        failed = (
            call.to is Somewhere.ANY and is_transient(outcome)
            for call, outcome in zip(calls, outcomes, strict=True)
        )
        if any(failed):
            self._anyone.rotate(-1)

    def _remember_brokers(self) -> None:
        """All brokers ever heard of may be asked: the first ones need not live on."""
        self._anyone.extend(set(self.view.brokers.values()) - set(self._anyone))

    def _address(self, to: int | Somewhere) -> Address | None:
        if to is Somewhere.ANY:
            return self._anyone[0]
        broker = self.view.controller_id if to is Somewhere.CONTROLLER else to
        return self.view.brokers.get(broker)

    def _unknown(self, call: Call) -> Lost:
        name = "the controller" if call.to is Somewhere.CONTROLLER else f"broker {call.to}"
        return Lost(NOWHERE, Cause.UNREACHABLE, f"{name} is not known to be alive")
