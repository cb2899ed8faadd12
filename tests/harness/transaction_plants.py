"""Faults put into the transaction coordinator on purpose. Each says what it must be found by."""

from collections.abc import Callable, Sequence
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
from tidelog.coordinator.transactions.events import Effect, Event
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.state_partition import Stage, StatePartition
from tidelog.kernel.ids import ProducerEpoch
from tidelog.kernel.instant import Instant, ms
from tidelog.node.runtime.shard_host import LogAppended, LogCommitted, ShardHost
from tidelog.wire.transactions import Chunk, Marker


def prepared_only_in_memory(patch: pytest.MonkeyPatch) -> None:
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


def marker_to_another_partition(patch: pytest.MonkeyPatch) -> None:
    marker = markers._Due.marker

    def misled(self: Any) -> Marker:
        made = marker(self)
        others = {"t0": "t1", "t1": "t0"}
        return replace(made, topic=others.get(made.topic, made.topic))

    patch.setattr(markers._Due, "marker", misled)


def marker_again_by_time(patch: pytest.MonkeyPatch) -> None:
    step = Transactions.step

    def impatient(self: Transactions, now: Instant, event: Event) -> Sequence[Effect]:
        known = self._markers
        for dues in known._dues.values():
            for due in dues:
                since = known.__dict__.setdefault("since", {}).setdefault(id(due), now)
                if due.call and now - since > ms(1):
                    due.call = 0
                    known._enqueue(due)
        return step(self, now, event)

    patch.setattr(Transactions, "step", impatient)


def no_barrier(patch: pytest.MonkeyPatch) -> None:
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


def epoch_not_bumped(patch: pytest.MonkeyPatch) -> None:
    """Who is locked out is not."""
    fenced = endings.fenced

    def lenient(known: Transaction, *more: Any) -> Transaction:
        return replace(fenced(known, *more), producer_epoch=known.producer_epoch)

    patch.setattr(endings, "fenced", lenient)


def end_takes_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """Version 2 in words alone: the next transaction is of the same epoch."""
    bumped = endings._bumped

    def same(known: Transaction, *more: Any) -> Transaction:
        return replace(bumped(known, *more), producer_epoch=known.producer_epoch)

    patch.setattr(endings, "_bumped", same)


def marker_of_the_epoch_before(patch: pytest.MonkeyPatch) -> None:
    """The log of a partition cannot tell what comes late by that."""
    marker = markers._Due.marker

    def older(self: Any) -> Marker:
        made = marker(self)
        took_one = self.owed.prepared.client_version == 2
        return replace(made, producer_epoch=ProducerEpoch(made.producer_epoch - took_one))

    patch.setattr(markers._Due, "marker", older)


def late_request_is_taken(patch: pytest.MonkeyPatch) -> None:
    """Whoever has the id may speak for each of its epochs."""
    check = steps.of_its_producer

    def trusting(known: Transaction | None, asked: Any) -> Transaction:
        if known is not None and known.producer_id == asked.producer_id:
            return known
        return check(known, asked)

    for module in (endings, decisions):
        patch.setattr(module, "of_its_producer", trusting)


def answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    class Hasty(ShardHost[Any, Any, Any]):
        def _release(self) -> Any:
            self._committed_ticket = self._ticket
            return super()._release()

        def _commit(self, end: Any) -> Any:
            self._ends.clear()
            return super()._commit(end)

    patch.setattr(state_partition, "ShardHost", Hasty)


Plant = Callable[[pytest.MonkeyPatch], None]
DRAWN: tuple[tuple[Plant, str, int], ...] = (
    (prepared_only_in_memory, "the end of", 0),
    (marker_to_another_partition, "ends the transactions", 1),
    (marker_again_by_time, "marker sent again", 0),
    (epoch_not_bumped, "took no epoch", 0),
    (end_takes_no_epoch, "is not in the log", 0),
    (marker_of_the_epoch_before, "could end another transaction", 0),
    (late_request_is_taken, "is not in the log", 0),
    (answer_before_commit, "is not in the log", 0),
)
"""With what it is found by, and the first history in which it is."""
