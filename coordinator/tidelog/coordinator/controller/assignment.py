"""Which brokers hold the replicas of a new partition. Kafka's placement, as a pure function."""

from collections.abc import Sequence

from msgspec import Struct

from tidelog.kernel.ids import BrokerId


class Start(Struct, frozen=True):
    """Where placement begins: drawn per topic, so that small topics spread over the brokers."""

    broker: int
    """Index of the broker that leads partition 0."""
    shift: int
    """Distance from the first replica to the second one, less one."""


def assign(
    brokers: Sequence[BrokerId], *, partitions: range, replication_factor: int, start: Start
) -> list[tuple[BrokerId, ...]]:
    """Partition i is led by broker (start + i) mod n; its other replicas follow at a distance that
    grows by one with each round over the brokers, so that a dead broker's load spreads over all.

    >>> assign([BrokerId(0), BrokerId(1), BrokerId(2)], partitions=range(4), replication_factor=2,
    ...        start=Start(broker=0, shift=0))
    [(0, 1), (1, 2), (2, 0), (0, 2)]
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count, (replication_factor, count)
    ordered = sorted(brokers)
    return [
        _replicas(ordered, first=(start.broker + partition) % count, shift=shift)[
            :replication_factor
        ]
        for partition in partitions
        for shift in [start.shift + partition // count]
    ]


def _replicas(brokers: Sequence[BrokerId], *, first: int, shift: int) -> tuple[BrokerId, ...]:
    """All brokers, in the order in which a partition led by the first takes them."""
    count = len(brokers)
    others = (
        brokers[(first + 1 + (shift + place) % (count - 1)) % count] for place in range(count - 1)
    )
    return (brokers[first], *others)
