"""A client whose network changes what its requests for the end of a transaction are answered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

from harness.spark.plain import Place
from tidelog.clients.asking import (
    Address,
    Answered,
    Ask,
    Cause,
    Features,
    Lost,
    Network,
    Outcome,
    Ticket,
)
from tidelog.clients.client import Client
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k26_end_txn import API as END_TXN

Change = Callable[[Answered], Outcome]


def lost(outcome: Answered) -> Outcome:
    """The request is served; nobody hears the answer."""
    return Lost(outcome.ticket, Cause.TIMED_OUT, "no answer")


def refused(code: ErrorCode) -> Change:
    """The request is served; its answer says otherwise."""

    def change(outcome: Answered) -> Outcome:
        message = copy(outcome.message)
        message.error_code = code
        return replace(outcome, message=message)

    return change


class ChangedAnswers:
    """A network that changes the first answers of a transaction's end, one after the other."""

    def __init__(self, network: Network, version: int, changes: list[Change]) -> None:
        self._network = network
        self._version = version
        self._changes = changes
        self._ends: set[Ticket] = set()
        self.asked = 0
        """How often the end of a part's transaction was asked for."""
        self.before: Callable[[Ask], None] = lambda _ask: None
        """Called before a request goes out."""
        self.ahead_ns = 0
        """So much time has passed besides that of the clock."""

    @property
    def features(self) -> Features:
        """With this version of transactions, which every cluster takes if it is 1."""
        known = self._network.features
        return Features(known.epoch, {**known.levels, "transaction.version": self._version})

    def now(self) -> Instant:
        return Instant(self._network.now() + self.ahead_ns)

    def ask(self, to: Address, ask: Ask) -> Ticket:
        self.before(ask)
        ticket = self._network.ask(to, ask)
        if ask.api is END_TXN and "/" in ask.message.transactional_id:
            self._ends.add(ticket)
            self.asked += 1
        return ticket

    def poll(self, until: Instant) -> list[Outcome]:
        until = Instant(until - self.ahead_ns)
        return [self._changed(one) for one in self._network.poll(until)]

    def _changed(self, outcome: Outcome) -> Outcome:
        is_end = outcome.ticket in self._ends and isinstance(outcome, Answered)
        if not is_end or not self._changes:
            return outcome
        assert isinstance(outcome, Answered)
        return self._changes.pop(0)(outcome)


@contextmanager
def changed_answers(place: Place, version: int, *changes: Change) -> Iterator[tuple[Client, Any]]:
    """A client of its own, and its network."""
    options = place.sink_options(topic="t").connection
    transport = Transport(ConnectionSettings())
    network = ChangedAnswers(transport, version, list(changes))
    client = Client(network, options.bootstrap)
    client.connect()
    try:
        yield client, network
    finally:
        transport.close()
