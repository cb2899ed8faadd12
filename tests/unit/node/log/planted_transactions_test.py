"""Holes in what a log keeps of transactions, put in on purpose: random lives find each of them."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.faults.planting import Planting
from harness.logs.transaction_lives import Life
from tidelog.node.log import recovery
from tidelog.node.log.producers import Producer, Producers
from tidelog.node.log.segment import Segment
from tidelog.node.log.txn_index import TxnIndex
from tidelog.node.log.unstable import Unstable

Patch = Callable[[Any, str, Any], None]


def entry_lost(patch: Patch) -> None:
    """An abort marker's entry is not written."""
    patch(TxnIndex, "append", lambda _self, _entry: None)


def entry_lost_by_a_start(patch: Patch) -> None:
    """A start takes the file for what the batches say."""
    patch(TxnIndex, "settle", lambda _self: None)


def entry_kept_by_a_cut(patch: Patch) -> None:
    """A cut leaves what ended behind it."""
    patch(TxnIndex, "cut_from", lambda _self, _offset: None)


def entry_not_flushed(patch: Patch) -> None:
    """A flush leaves the index out."""
    syncables = Segment.syncables

    def without(self: Any, *, sealed: bool) -> Any:
        self.aborted.is_unsynced = False
        return syncables(self, sealed=sealed)

    patch(Segment, "syncables", without)


def decided_too_late(patch: Patch) -> None:
    """An entry says that more was decided than was: readers do not look far enough."""
    end = Unstable.end

    def later(self: Any, first: int, marker: int) -> int:
        end(self, first, marker)
        return marker + 1

    patch(Unstable, "end", later)


def marker_not_replicated(patch: Patch) -> None:
    """The last stable offset does not wait for markers to be on every in-sync replica."""
    patch(Unstable, "note_ended", lambda _self, _first, _marker: None)


def marker_forgotten_too_early(patch: Patch) -> None:
    """What begins later makes the log forget an earlier one whose marker is still on its way."""

    def newest(self: Any, first: int, marker: int) -> None:
        self.ended.clear()
        self.ended.append((marker, first))

    patch(Unstable, "note_ended", newest)


def epoch_not_begun(patch: Patch) -> None:
    """A marker of a higher epoch leaves its producer's epoch as it was."""
    end = Producers.end

    def keeps(self: Any, marker: Any, *more: Any) -> Any:
        known = self.get(marker.producer_id)
        same = marker if known is None else marker._replace(producer_epoch=known.epoch)
        return end(self, same, *more)

    patch(Producers, "end", keeps)


def sequence_kept(patch: Patch) -> None:
    """A new epoch goes on with the old one's sequence."""

    def begins(self: Any, epoch: int) -> None:
        self.epoch = epoch

    patch(Producer, "begin_epoch", begins)


def marker_twice(patch: Patch) -> None:
    """A marker that is there is written again."""
    check = Producers.check_marker

    def nothing_is_there(self: Any, marker: Any) -> None:
        check(self, marker)

    patch(Producers, "check_marker", nothing_is_there)


def coordinator_not_fenced(patch: Patch) -> None:
    """An operator's marker of a coordinator of the past is taken."""
    patch(Producers, "check_coordinator", lambda _self, _marker: None)


def written_outside(patch: Patch) -> None:
    """While its transaction is open, a producer writes a batch that is not of it."""
    check = Producers.check

    def takes(self: Any, header: Any) -> Any:
        return check(self, header._replace(attributes=header.attributes | 1 << 4))

    patch(Producers, "check", takes)


def snapshot_without_transactions(patch: Patch) -> None:
    """Who has a transaction open is not known after a start."""
    load = recovery.load_producers

    def forgets(*of: Any) -> Any:
        producers = load(*of)
        for _producer_id, producer in list(producers.items()):
            producer.txn_start = -1
        producers.unstable = Unstable()
        return producers

    patch(recovery, "load_producers", forgets)


HOLES = [
    entry_lost,
    entry_lost_by_a_start,
    entry_kept_by_a_cut,
    entry_not_flushed,
    decided_too_late,
    marker_not_replicated,
    marker_forgotten_too_early,
    epoch_not_begun,
    sequence_kept,
    marker_twice,
    coordinator_not_fenced,
    written_outside,
    snapshot_without_transactions,
]


@pytest.mark.parametrize("hole", HOLES, ids=lambda one: one.__name__)
def test_each_hole_is_found(hole: Callable[[Patch], None], planting: Planting) -> None:
    """By an assertion, or because something else breaks."""
    planting.is_found(
        lambda patch: hole(patch.setattr), lambda seed: Life(seed).run(), by=Exception
    )
