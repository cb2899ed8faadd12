"""Where replicas go when a cluster grows or shrinks. Pure.

As little as possible is moved: a replica that may stay stays, and in its place in the list, for the
first one is preferred to lead. What moves is spread evenly, and to other racks than those that the
partition's other replicas are in, as far as there are such.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from tidelog.kernel.ids import TopicPartition

INTERNAL_FACTOR_MAX: Final = 3
"""Of topics that brokers keep for themselves, as soon as there are so many brokers."""
Replicas = Mapping[TopicPartition, Sequence[int]]


class TooFewError(Exception):
    """A partition has more replicas than brokers would be left."""

    def __init__(self, partition: TopicPartition, replicas: int) -> None:
        super().__init__(partition, replicas)
        self.partition = partition
        self.replicas = replicas


def without(
    all_replicas: Replicas,
    internal: Collection[TopicPartition],
    gone: int,
    stay: Iterable[int],
    racks: Mapping[int, str],
) -> dict[TopicPartition, tuple[int, ...]]:
    """New replicas of each partition that has one on the broker which goes. Those of internal
    topics have as many as there are brokers, so they lose one where there is no other place."""
    load = _Load(all_replicas, stay, racks)
    moved = {}
    places = {
        partition: list(replicas).index(gone)
        for partition, replicas in all_replicas.items()
        if gone in replicas
    }

    def order(place: tuple[TopicPartition, int]) -> tuple[bool, int]:
        """Who is to lead first, and who has the least choice: the others then even it out."""
        partition, at = place
        return at > 0, -len(all_replicas[partition])

    for partition, at in sorted(places.items(), key=order):
        replicas = all_replicas[partition]
        others = [*replicas[:at], *replicas[at + 1 :]]
        chosen = load.choose(others, leads=at == 0)
        if chosen is None and not (partition in internal and others):
            raise TooFewError(partition, len(replicas))
        instead = () if chosen is None else (chosen,)
        moved[partition] = (*replicas[:at], *instead, *replicas[at + 1 :])
    return moved


def raised(
    all_replicas: Replicas,
    internal: Iterable[TopicPartition],
    brokers: Sequence[int],
    racks: Mapping[int, str],
) -> dict[TopicPartition, tuple[int, ...]]:
    """New replicas of those internal topics' partitions that have fewer than there could be."""
    factor = min(INTERNAL_FACTOR_MAX, len(brokers))
    load = _Load(all_replicas, brokers, racks)
    moved = {}
    for partition in internal:
        replicas = list(all_replicas[partition])
        while len(replicas) < factor:
            chosen = load.choose(replicas, leads=False)
            if chosen is None:
                break
            replicas.append(chosen)
        if len(replicas) > len(all_replicas[partition]):
            moved[partition] = tuple(replicas)
    return moved


class _Load:
    """How many replicas, and how many as the preferred one, each broker has."""

    def __init__(
        self, all_replicas: Replicas, brokers: Iterable[int], racks: Mapping[int, str]
    ) -> None:
        self._brokers = list(brokers)
        self._racks = racks
        self._replicas = Counter(one for some in all_replicas.values() for one in some)
        self._preferred = Counter(some[0] for some in all_replicas.values())

    def choose(self, others: Sequence[int], *, leads: bool) -> int | None:
        """The broker for one more replica of the partition that these have, counted at once."""
        racks = {self._racks.get(one) for one in others} - {None}

        def burden(broker: int) -> tuple[bool, int, int, int]:
            preferred = self._preferred[broker] if leads else 0
            return self._racks.get(broker) in racks, preferred, self._replicas[broker], broker

        chosen = min((one for one in self._brokers if one not in others), key=burden, default=None)
        if chosen is not None:
            self._replicas[chosen] += 1
            self._preferred[chosen] += leads
        return chosen
