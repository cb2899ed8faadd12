"""Faults put into transactions on purpose, in the coordinator and where brokers meet it."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.coordinator.transactions import (
    decisions,
    endings,
    markers,
    state_partition,
    steps,
)
from tidelog.coordinator.transactions.events import Effect, Event, SendTo
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.state_partition import Stage, StatePartition
from tidelog.kernel.ids import Partition, ProducerEpoch
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import transaction_gate
from tidelog.node.log.producers import Producers
from tidelog.node.log.unstable import Unstable
from tidelog.node.runtime.shard_host import LogAppended, LogCommitted, ShardHost
from tidelog.node.transactions.link import Link
from tidelog.node.transactions.marking import Marking
from tidelog.node.transactions.service import Service
from tidelog.wire.transactions import Chunk, Mark, Marker

Patch = pytest.MonkeyPatch


def prepared_only_in_memory(patch: Patch) -> None:
    """The outcome goes to the partitions without having been written down."""
    flush = StatePartition.flush

    def forgetful(self: StatePartition, now: Instant) -> None:
        kept = self._queue.copy()
        self._queue.clear()
        for one in kept:
            if any(record.value and record.value.state.is_prepared for record in one.records):
                self._drive(now, LogAppended(one.ticket, self._end))
                self._drive(now, LogCommitted(self._end))
                self._callbacks.on_committed(now, self.index, one.records)
            else:
                self._queue.append(one)
        flush(self, now)

    patch.setattr(StatePartition, "flush", forgetful)


def no_barrier(patch: Patch) -> None:
    """What stands in a log is taken for committed."""

    def trusting(self: StatePartition, now: Instant, chunk: Chunk) -> None:
        self._start, self._end = chunk.start, chunk.end
        self._sequence = chunk.next_sequence
        if chunk.end == 0:
            self._open(now)
            return
        self._stage = Stage.WAITING
        if self._callbacks.may_read(self):
            self.begin_reading()

    patch.setattr(StatePartition, "_fence", trusting)


def epoch_not_bumped(patch: Patch) -> None:
    """Who is locked out is not."""
    fenced = endings.fenced

    def lenient(known: Transaction, *more: Any) -> Transaction:
        return replace(fenced(known, *more), producer_epoch=known.producer_epoch)

    patch.setattr(endings, "fenced", lenient)


def end_takes_no_epoch(patch: Patch) -> None:
    """Version 2 in words alone: the next transaction is of the same epoch."""
    bumped = endings._bumped

    def same(known: Transaction, *more: Any) -> Transaction:
        return replace(bumped(known, *more), producer_epoch=known.producer_epoch)

    patch.setattr(endings, "_bumped", same)


def marker_of_the_epoch_before(patch: Patch) -> None:
    """The log of a partition cannot tell what comes late by that."""
    marker = markers._Due.marker

    def older(self: Any) -> Marker:
        made = marker(self)
        took_one = self.owed.prepared.client_version == 2
        return replace(made, producer_epoch=ProducerEpoch(made.producer_epoch - took_one))

    patch.setattr(markers._Due, "marker", older)


def late_request_is_taken(patch: Patch) -> None:
    """Whoever has the id may speak for each of its epochs."""
    check = steps.of_its_producer

    def trusting(known: Transaction | None, asked: Any) -> Transaction:
        if known is not None and known.producer_id == asked.producer_id:
            return known
        return check(known, asked)

    for module in (endings, decisions):
        patch.setattr(module, "of_its_producer", trusting)


def answer_before_commit(patch: Patch) -> None:
    class Hasty(ShardHost[Any, Any, Any]):
        def _release(self) -> Any:
            self._committed_ticket = self._ticket
            return super()._release()

        def _commit(self, end: Any) -> Any:
            self._ends.clear()
            return super()._commit(end)

    patch.setattr(state_partition, "ShardHost", Hasty)


# -- where brokers and coordinator meet


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
