"""The offsets that groups of one partition of `__consumer_offsets` have committed."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tidelog.node.groups.records import NEVER, CommittedOffset, OffsetRecord

_NONE: Final[Mapping[tuple[str, int], CommittedOffset]] = MappingProxyType({})


class Offsets:
    """By group, topic and partition. Only `replay` and its twins for transactions change it.

    Invariant: a group without an offset, pending or not, has no entry.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._pending: dict[int, list[OffsetRecord]] = {}
        """By producer: what its open transaction commits, in the order it came."""
        self._unstable: dict[tuple[str, str, int], int] = {}
        """How many open transactions commit this offset."""

    def of(self, group: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All that a group has committed."""
        return self._by_group.get(group, _NONE)

    def groups(self) -> Iterator[str]:
        return iter(tuple(self._by_group))

    def replay(self, record: OffsetRecord) -> None:
        where = (record.topic, record.partition)
        if record.value is not None:
            self._by_group.setdefault(record.group, {})[where] = record.value
            return
        offsets = self._by_group.get(record.group)
        if offsets is not None:
            offsets.pop(where, None)
            if not offsets:
                del self._by_group[record.group]

    # -- of transactions: they count once their marker says so

    def replay_pending(self, producer_id: int, record: OffsetRecord) -> None:
        """An open transaction commits this."""
        self._pending.setdefault(producer_id, []).append(record)
        key = (record.group, record.topic, record.partition)
        self._unstable[key] = self._unstable.get(key, 0) + 1

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The producer's transaction has ended."""
        for record in self._pending.pop(producer_id, ()):
            key = (record.group, record.topic, record.partition)
            self._unstable[key] -= 1
            if not self._unstable[key]:
                del self._unstable[key]
            if committed:
                self.replay(record)

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change it."""
        return (group, topic, partition) in self._unstable

    def has_unstable(self, group: str) -> bool:
        """Whether an open transaction commits for this group."""
        return any(key[0] == group for key in self._unstable)

    # -- what is too old

    def expired(
        self, group: str, now_ms: int, retention_ms: int, empty_since_ms: int | None
    ) -> list[tuple[str, int]]:
        """What may be forgotten of a group that nobody is in (KIP-211).

        Their time begins when the group became empty; of a group that never had a member, and of
        one that has, but does not read that topic, with each commit.
        """
        return [
            where
            for where, offset in self.of(group).items()
            if _is_old(offset, now_ms, retention_ms, empty_since_ms)
            and not self.is_unstable(group, *where)
        ]


def _is_old(
    offset: CommittedOffset, now_ms: int, retention_ms: int, empty_since_ms: int | None
) -> bool:
    if offset.expire_ms != NEVER:
        return now_ms >= offset.expire_ms
    since_ms = offset.commit_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms
