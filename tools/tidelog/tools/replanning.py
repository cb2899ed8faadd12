"""Which replicas partitions should have on a set of brokers: a proposal that moves little. Pure.

Kafka's tool places everything anew, so it moves most of what there is to add one broker. Here a
replica stays where it is unless its broker is not among those that are wanted, or has more than its
share. To lead is shared out last, by the order of the replicas: that moves no bytes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidelog.kernel.ids import TopicPartition

Replicas = Mapping[TopicPartition, Sequence[int]]
Proposal = dict[TopicPartition, tuple[int, ...]]
_PASSES_MAX = 100
"""Each makes the load more even, so there are few; what is left then is hardly uneven."""


class TooFewError(Exception):
    """A partition shall have more replicas than there are brokers to choose from."""

    def __init__(self, partition: TopicPartition, replicas: int) -> None:
        super().__init__(partition, replicas)
        self.partition = partition
        self.replicas = replicas


def proposed(
    current: Replicas,
    brokers: Collection[int],
    racks: Mapping[int, str],
    factor: int | None = None,
) -> Proposal:
    """The partitions whose replicas should be others, or in another order, and what they should be;
    with `factor` replicas each, or as many as they have."""
    for partition, replicas in current.items():
        if (factor or len(replicas)) > len(brokers):
            raise TooFewError(partition, factor or len(replicas))
    placing = _Placing(current, brokers, racks)
    placing.fill({partition: factor or len(replicas) for partition, replicas in current.items()})
    placing.even_out()
    placing.share_leads()
    return {
        partition: tuple(replicas)
        for partition, replicas in placing.replicas.items()
        if replicas != list(current[partition])
    }


class _Placing:
    """A proposal in the making. Invariant: `load` counts what `replicas` holds."""

    def __init__(
        self, current: Replicas, brokers: Collection[int], racks: Mapping[int, str]
    ) -> None:
        self._brokers = sorted(brokers)
        self._racks = racks
        self.replicas = {
            partition: [one for one in current[partition] if one in brokers]
            for partition in sorted(current)
        }
        self._load = Counter(one for some in self.replicas.values() for one in some)

    def fill(self, factors: Mapping[TopicPartition, int]) -> None:
        """Give each partition as many as it shall have: the last ones go, the least loaded come."""
        for partition, replicas in self.replicas.items():
            for gone in replicas[factors[partition] :]:
                replicas.remove(gone)
                self._load[gone] -= 1
        for partition, replicas in self.replicas.items():
            while len(replicas) < factors[partition]:
                comes = min(
                    (one for one in self._brokers if one not in replicas),
                    key=lambda one: (self._shares(one, replicas), self._load[one], one),
                )
                replicas.append(comes)
                self._load[comes] += 1

    def even_out(self) -> None:
        """Move single replicas from who has two more than another to that one, and no partition to
        fewer racks than it was in: first from and to those who are off their share, for no other
        way takes fewer moves; then anyone's, where those cannot trade with each other."""
        total = sum(self._load.values())
        least, most = total // len(self._brokers), -(-total // len(self._brokers))
        load = self._load
        self._trade(lambda goes, comes: load[goes] > most or load[comes] < least < load[goes])
        self._trade(lambda _goes, _comes: True)

    def _trade(self, allowed: Callable[[int, int], bool]) -> None:
        for _ in range(_PASSES_MAX):
            moved = [self._lighten(replicas, allowed) for replicas in self.replicas.values()]
            if not any(moved):
                return

    def _lighten(self, replicas: list[int], allowed: Callable[[int, int], bool]) -> bool:
        """One move, of the last replica that has a better place: the first one leads."""
        for at in reversed(range(len(replicas))):
            goes, others = replicas[at], replicas[:at] + replicas[at + 1 :]
            better = [
                one
                for one in self._brokers
                if self._load[one] <= self._load[goes] - 2
                and one not in replicas
                and allowed(goes, one)
                and self._shares(one, others) <= self._shares(goes, others)
            ]
            if better:
                comes = min(better, key=lambda one: (self._load[one], one))
                replicas[at] = comes
                self._load[goes] -= 1
                self._load[comes] += 1
                return True
        return False

    def share_leads(self) -> None:
        """Let another replica be the first where the first of this partition leads two more."""
        leads = Counter(replicas[0] for replicas in self.replicas.values())
        for _ in range(_PASSES_MAX):
            changed = False
            for replicas in self.replicas.values():
                at = min(range(len(replicas)), key=lambda one: leads[replicas[one]])
                if leads[replicas[at]] <= leads[replicas[0]] - 2:
                    leads[replicas[0]] -= 1
                    leads[replicas[at]] += 1
                    replicas[0], replicas[at] = replicas[at], replicas[0]
                    changed = True
            if not changed:
                return

    def _shares(self, broker: int, others: Iterable[int]) -> bool:
        """Whether one of the others is in the broker's rack."""
        rack = self._racks.get(broker)
        return rack is not None and any(self._racks.get(one) == rack for one in others)
