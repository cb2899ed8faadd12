"""Transactions that are open in partitions, beside what their coordinators know of them.

A partition holds back its read_committed readers at the first record of its first open transaction.
Most are ended in time by their coordinator. One that no coordinator will ever end hangs (KIP-664):
a late batch that came after its transaction's marker begins such a one.

Leaders and coordinators are asked one after the other; a transaction may end in between, and a
coordinator may move. So what seems to hang is looked at once more, and does only if it is still
open from the same offset on and still nobody knows it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tidelog.clients.admin.producers import ProducerState, describe_producers
from tidelog.clients.admin.transactions import (
    DECIDED,
    DescribedTransaction,
    Wanted,
    describe_transactions,
    list_transactions,
)
from tidelog.clients.asking import Plan
from tidelog.clients.cluster_view import ClusterView
from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.instant import WallMs

_LOOKS = 3
"""How often leaders are asked before their partitions count as unseen."""


class Standing(Enum):
    """What a transaction that is open in a partition is to its coordinator."""

    UNDECIDED = auto()
    """Not ended yet."""
    DECIDED = auto()
    """Committed or aborted: the partition's marker is still to come."""
    UNKNOWN = auto()
    """No coordinator knows its producer."""
    LEFT_OUT = auto()
    """Its producer's transaction has ended, or has nothing in this partition."""


HANGING = frozenset({Standing.UNKNOWN, Standing.LEFT_OUT})
"""Nobody will end it."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One producer's open transaction in one partition."""

    partition: TopicPartition
    start: Offset
    producer: ProducerState
    transaction: DescribedTransaction | None
    """None where no coordinator knows the producer."""

    @property
    def place(self) -> tuple[TopicPartition, Offset, int]:
        """No other transaction is ever open there."""
        return self.partition, self.start, self.producer.producer_id

    @property
    def standing(self) -> Standing:
        known = self.transaction
        if known is None:
            return Standing.UNKNOWN
        if not known.is_unended or self.partition not in known.partitions:
            return Standing.LEFT_OUT
        return Standing.DECIDED if known.state in DECIDED else Standing.UNDECIDED

    @property
    def hangs(self) -> bool:
        return self.standing in HANGING


@dataclass(frozen=True, slots=True)
class Openings:
    """What is open, by partition and offset, and the partitions whose leaders did not answer."""

    found: tuple[OpenTransaction, ...]
    unseen: tuple[TopicPartition, ...]


def open_transactions(
    view: ClusterView, now: WallMs, partitions: Iterable[TopicPartition]
) -> Plan[Openings]:
    """Of these partitions, which the view knows."""
    first = yield from look(view, now, list(dict.fromkeys(partitions)))
    suspects = [one for one in first.found if one.hangs]
    if not suspects:
        return first
    second = yield from look(view, now, list(dict.fromkeys(one.partition for one in suspects)))
    still = {one.place: one for one in second.found}
    found = [still.get(one.place) if one.hangs else one for one in first.found]
    return Openings(
        tuple(one for one in found if one is not None),
        tuple(sorted({*first.unseen, *second.unseen})),
    )


def look(view: ClusterView, now: WallMs, wanted: Sequence[TopicPartition]) -> Plan[Openings]:
    """Once: what hangs in it may only have ended meanwhile."""
    producers = yield from describe_producers(view, wanted, rounds=_LOOKS)
    places = {
        (partition, one.transaction_start): one
        for partition, states in sorted(producers.items())
        for one in states
        if one.transaction_start is not None
    }
    ids = {one.producer_id for one in places.values()}
    known = yield from _transactions_of(view, now, ids)
    found = [
        OpenTransaction(partition, start, one, known.get(one.producer_id))
        for (partition, start), one in sorted(places.items())
    ]
    return Openings(tuple(found), tuple(one for one in wanted if one not in producers))


def _transactions_of(
    view: ClusterView, now: WallMs, producer_ids: Collection[int]
) -> Plan[Mapping[int, DescribedTransaction]]:
    """By producer id, as far as coordinators know them."""
    if not producer_ids:
        return {}
    listed = yield from list_transactions(view, now, Wanted(producer_ids=producer_ids))
    described = yield from describe_transactions(view, [one.transactional_id for one in listed])
    return {one.producer_id: one for one in described.values() if one is not None}
