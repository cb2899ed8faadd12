"""Faults put into transactions on purpose, where brokers and coordinator meet. Those of the
coordinator alone are in `transaction_plants.py`."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.coordinator.transactions import markers
from tidelog.coordinator.transactions.events import Effect, Event, SendTo
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import transaction_gate
from tidelog.node.log.producers import Producers
from tidelog.node.log.unstable import Unstable
from tidelog.node.transactions.link import Link
from tidelog.node.transactions.marking import Marking
from tidelog.node.transactions.service import Service
from tidelog.wire.transactions import Mark, Marker

Patch = pytest.MonkeyPatch


def verification_off(patch: Patch) -> None:
    """KIP-890, part 1: whatever comes begins a transaction in the log."""
    patch.setattr(transaction_gate, "is_gated", lambda *_: False)


def marker_to_another_partition(patch: Patch) -> None:
    marker = markers._Due.marker

    def misled(self: Any) -> Marker:
        made = marker(self)
        return replace(made, partition=Partition(1 - made.partition)) if made.topic == "t" else made

    patch.setattr(markers._Due, "marker", misled)


def marker_again_by_time(patch: Patch) -> None:
    """What is not answered within a millisecond is said once more."""
    step = Transactions.step_all

    def impatient(self: Transactions, now: Instant, events: Sequence[Event]) -> Sequence[Effect]:
        effects = list(step(self, now, events))
        around = self._around
        for sent in list(self._markers._sent.values()):
            owed = tuple(due.marker() for due in sent.dues if due.place in due.owed.left)
            if owed and now % ms(1) == 0:
                number = sent.session.session
                mark = Mark(number, around.new_call(), around.epoch, owed)
                effects.append(SendTo(sent.session.broker, mark))
        around.wake_at(Instant(now - now % ms(1) + ms(1)))
        return effects

    patch.setattr(Transactions, "step_all", impatient)


def zombie_accepted(patch: Patch) -> None:
    """Whatever epoch a coordinator has, a broker does what it says."""
    check = Producers.check

    def lenient(self: Producers, header: Any) -> Any:
        known = self.get(header.producer_id)
        if header.base_sequence >= 0 and known is not None and header.producer_id > 1 << 40:
            header = header._replace(producer_epoch=known.epoch, base_sequence=known.next_sequence)
        return check(self, header)

    def heard(self: Link, _now: Any, _epoch: Any) -> list[Any]:
        self.epoch = type(self.epoch)(0)
        return []

    serve, wanted = Service._serve, Link._wanted

    def serves(self: Service, now: Instant, served: Any) -> None:
        self._link.epoch = type(self._link.epoch)(0)
        serve(self, now, served)

    def wants(self: Link, request: Any) -> Any:
        self.epoch = type(self.epoch)(0)
        return wanted(self, request)

    patch.setattr(Producers, "check", lenient)
    patch.setattr(Link, "_heard", heard)
    patch.setattr(Link, "_wanted", wants)
    patch.setattr(Service, "_serve", serves)
    patch.setattr(Marking, "_check_epoch", lambda *_: None)


def unreplicated_marker_counts(patch: Patch) -> None:
    """A transaction has ended as soon as its marker is in the leader's log."""
    patch.setattr(Unstable, "first", lambda self, _high: next(iter(self.open), None))
