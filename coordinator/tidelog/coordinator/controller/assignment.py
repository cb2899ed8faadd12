"""Which brokers hold the replicas of a new partition, as a pure function.

It is the placement that Kafka's tools had until 3.9 (`AdminUtils`): where it starts is given, so
what comes of it can be foretold, and `tests/compat/kafka_assignments.txt` holds it to Kafka's own.
Newer ones draw the order of brokers anew for each topic.
"""

from collections.abc import Mapping, Sequence
from itertools import count as counting

from msgspec import Struct

from tidelog.kernel.ids import BrokerId


class Start(Struct, frozen=True):
    """Where placement begins: drawn per topic, so that small topics spread over the brokers."""

    broker: int
    """Index of the broker that leads partition 0."""
    shift: int
    """Distance from the first replica to the second one, less one; it grows by one with each round
    over the brokers after the first partition that is placed."""


def assign(
    brokers: Mapping[BrokerId, str | None],
    *,
    partitions: range,
    replication_factor: int,
    start: Start,
) -> list[tuple[BrokerId, ...]]:
    """Partition i is led by broker (start + i) mod n; its other replicas follow at a distance that
    grows by one with each round over the brokers, so that a dead broker's load spreads over all.
    Where every broker has a rack, no rack gets a second replica before every rack has one.
    `partitions` need not begin at 0: more of a topic's may be placed when others are there.

    >>> three = {BrokerId(broker): None for broker in range(3)}
    >>> assign(three, partitions=range(4), replication_factor=2, start=Start(broker=0, shift=0))
    [(0, 1), (1, 2), (2, 0), (0, 2)]
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count, (replication_factor, count)
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    aware = len(racks) == count
    order = ordered(brokers)
    # The round that the first partition is in has begun before it, but at its very beginning.
    begun = max(partitions.start - 1, 0) // count
    # A step of one would meet the same racks in the same order again.
    step = len(set(racks.values())) if aware else 1
    placed = []
    for partition in partitions:
        shift = (start.shift + partition // count - begun) * step
        row = _row(order, first=(start.broker + partition) % count, shift=shift)
        placed.append(_spread(row, racks, replication_factor) if aware else row)
    return [replicas[:replication_factor] for replicas in placed]


def ordered(brokers: Mapping[BrokerId, str | None]) -> list[BrokerId]:
    """The order in which they lead: by id, or by turns a broker of each rack."""
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    return _alternating(racks) if len(racks) == len(brokers) else sorted(brokers)


def growing(brokers: Mapping[BrokerId, str | None], first: BrokerId) -> Start:
    """As Kafka has it where a topic grows: from the first replica of its partition 0, so that the
    new partitions go on in the order of the old ones; from the first broker where that is gone."""
    order = ordered(brokers)
    at = order.index(first) if first in order else 0
    return Start(broker=at, shift=at)


def _alternating(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """One broker of each rack, then the next of each, until all are there."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    return [row[n] for n in range(max(map(len, rows))) for row in rows if n < len(row)]


def _row(brokers: Sequence[BrokerId], *, first: int, shift: int) -> tuple[BrokerId, ...]:
    """All brokers, in the order in which a partition led by the first looks at them."""
    count = len(brokers)
    others = (
        brokers[(first + 1 + (shift + place) % (count - 1)) % count] for place in range(count - 1)
    )
    return (brokers[first], *others)


def _spread(
    row: Sequence[BrokerId], racks: Mapping[BrokerId, str], replication_factor: int
) -> tuple[BrokerId, ...]:
    """The first of a new rack each time, while there is one; then anyone who is left."""
    all_racks = set(racks.values())
    taken = [row[0]]
    for place in counting():
        if len(taken) == replication_factor:
            break
        used = {racks[broker] for broker in taken}
        broker = row[1 + place % (len(row) - 1)]
        if broker not in taken and (racks[broker] not in used or used == all_racks):
            taken.append(broker)
    return tuple(taken)
