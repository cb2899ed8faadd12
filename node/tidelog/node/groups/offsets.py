"""The offsets that groups of one partition of `__consumer_offsets` have committed."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.node.groups.records import NEVER, CommittedOffset, OffsetRecord

_NONE: Final[Mapping[tuple[str, int], CommittedOffset]] = MappingProxyType({})


class _Pending(NamedTuple):
    """What an open transaction commits of one partition."""

    at: int
    """How many records were replayed before it."""
    value: CommittedOffset


class Offsets:
    """By group, topic and partition. Only `replay` and its twins for transactions change it.

    Invariant: a group without an offset, pending or not, has no entry.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._replayed = 0
        self._at: dict[tuple[str, str, int], int] = {}
        """Of what was committed while a transaction commits the same: how many records were
        replayed before it."""
        self._pending: dict[str, dict[tuple[str, int], dict[int, _Pending]]] = {}
        """By group, then by partition, then by the producer whose transaction is open."""
        self._open: dict[int, set[tuple[str, str, int]]] = {}
        """What each producer's open transaction commits."""

    def of(self, group: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All that a group has committed."""
        return self._by_group.get(group, _NONE)

    def groups(self) -> Iterator[str]:
        """Who has committed something, or has a transaction that will."""
        return iter(tuple(self._by_group.keys() | self._pending.keys()))

    def has(self, group: str) -> bool:
        """Whether anything is known of it, pending or not."""
        return group in self._by_group or group in self._pending

    def named(self, group: str) -> set[tuple[str, int]]:
        """What it has committed, and what its open transactions commit."""
        return {*self.of(group), *self._pending.get(group, ())}

    def each(self, group: str) -> Iterator[tuple[str, int]]:
        """As `named`, one after the other."""
        committed = self.of(group)
        yield from committed
        yield from (where for where in self._pending.get(group, ()) if where not in committed)

    def knows(self, group: str, where: tuple[str, int]) -> bool:
        """Whether it has committed this partition, or an open transaction will."""
        return where in self.of(group) or where in self._pending.get(group, ())

    def open_of(self, producer_id: int) -> AbstractSet[tuple[str, str, int]]:
        """What the producer's open transaction commits: group, topic and partition."""
        return self._open.get(producer_id, frozenset())

    def pending(self, group: str, where: tuple[str, int]) -> Iterator[CommittedOffset]:
        """What open transactions will commit of this partition."""
        return (one.value for one in self._pending.get(group, {}).get(where, {}).values())

    def all_pending(self, group: str) -> dict[tuple[str, int], tuple[CommittedOffset, ...]]:
        """A copy of what open transactions will commit for a group, by partition."""
        return {
            where: tuple(one.value for one in by_producer.values())
            for where, by_producer in self._pending.get(group, {}).items()
        }

    def replay(self, record: OffsetRecord) -> None:
        self._replayed += 1
        where = (record.topic, record.partition)
        if record.value is not None:
            self._commit(record.group, where, record.value, self._replayed)
            return
        offsets = self._by_group.get(record.group)
        if offsets is not None:
            offsets.pop(where, None)
            if not offsets:
                del self._by_group[record.group]
        # As Kafka does: who forgets an offset forgets also what would change it.
        for producer_id in tuple(self._pending.get(record.group, {}).get(where, ())):
            self._settle(producer_id, (record.group, *where))

    def _commit(self, group: str, where: tuple[str, int], value: CommittedOffset, at: int) -> None:
        self._by_group.setdefault(group, {})[where] = value
        if where in self._pending.get(group, ()):
            self._at[group, *where] = at

    # -- of transactions: they count once their marker says so

    def replay_pending(self, producer_id: int, record: OffsetRecord) -> None:
        """An open transaction commits this."""
        self._replayed += 1
        if record.value is None:
            return
        where = (record.topic, record.partition)
        pending = self._pending.setdefault(record.group, {}).setdefault(where, {})
        pending[producer_id] = _Pending(self._replayed, record.value)
        self._open.setdefault(producer_id, set()).add((record.group, *where))

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The producer's transaction has ended."""
        for key in sorted(self._open.get(producer_id, ())):
            group, topic, partition = key
            newer_at = self._at.get(key, -1)
            pending = self._settle(producer_id, key)
            if committed and pending.at > newer_at:
                self._commit(group, (topic, partition), pending.value, pending.at)

    def _settle(self, producer_id: int, key: tuple[str, str, int]) -> _Pending:
        """It is pending no more."""
        group, topic, partition = key
        mine, of_group = self._open[producer_id], self._pending[group]
        mine.discard(key)
        if not mine:
            del self._open[producer_id]
        pending = of_group[topic, partition].pop(producer_id)
        if not of_group[topic, partition]:
            del of_group[topic, partition]
            self._at.pop(key, None)
        if not of_group:
            del self._pending[group]
        return pending

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change it."""
        return (topic, partition) in self._pending.get(group, ())

    def has_unstable(self, group: str) -> bool:
        """Whether an open transaction commits for this group."""
        return group in self._pending

    # -- what is too old

    def expired(
        self, group: str, now_ms: int, retention_ms: int, empty_since_ms: int | None
    ) -> Iterator[tuple[str, int]]:
        """What may be forgotten of a group that nobody is in (KIP-211).

        Their time begins when the group became empty; of a group that never had a member, and of
        one that has, but does not read that topic, with each commit.
        """
        for where, offset in self.of(group).items():
            if _is_old(offset, now_ms, retention_ms, empty_since_ms) and not self.is_unstable(
                group, *where
            ):
                yield where


def _is_old(
    offset: CommittedOffset, now_ms: int, retention_ms: int, empty_since_ms: int | None
) -> bool:
    if offset.expire_ms != NEVER:
        return now_ms >= offset.expire_ms
    since_ms = offset.commit_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms
