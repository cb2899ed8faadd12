"""Fetch sessions (KIP-227): what a client told us once need not be said again. No I/O."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.kernel import limits
from tidelog.kernel.ids import Uuid
from tidelog.kernel.instant import Instant, s
from tidelog.wire.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    import random

FINAL_EPOCH: Final = -1
"""The client wants no session, or ends the one it has."""
INITIAL_EPOCH: Final = 0
"""The client asks for a new session."""
_EPOCH_MAX: Final = 2**31 - 1
_UNUSED_NS: Final = s(120)

WantKey = tuple[str | Uuid, int]


class Want:
    """One partition a client fetches, and what it was told last."""

    __slots__ = (
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "partition",
        "size_max",
        "told_high_watermark",
        "told_start",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, partition: int) -> None:
        self.topic = topic
        """Empty where the client names topics by id."""
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = 0
        self.size_max = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.told_high_watermark = -1
        self.told_start = -1

    @property
    def key(self) -> WantKey:
        return (self.topic or self.topic_id, self.partition)


class FetchSession:
    """The partitions of one client, in the order they are looked at.

    Invariant: `wants` has each partition once; all by name or all by id.
    """

    __slots__ = ("by_id", "epoch", "number", "used", "wants")

    def __init__(self, number: int, *, by_id: bool, now: Instant) -> None:
        self.number = number
        self.by_id = by_id
        self.epoch = 1
        """What the next request must say."""
        self.used = now
        self.wants: dict[WantKey, Want] = {}

    def update(self, wants: Iterable[Want], forgotten: Iterable[WantKey]) -> None:
        """Forget first, then take what is new or changed."""
        for key in forgotten:
            self.wants.pop(key, None)
        for want in wants:
            known = self.wants.get(want.key)
            if known is None:
                self.wants[want.key] = want
                continue
            known.fetch_offset = want.fetch_offset
            known.size_max = want.size_max
            known.leader_epoch = want.leader_epoch
            known.last_fetched_epoch = want.last_fetched_epoch

    def served(self, want: Want) -> None:
        """It got bytes: whoever got none comes first next time."""
        if self.wants.pop(want.key, None) is not None:
            self.wants[want.key] = want

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchSessions:
    """All sessions of a broker.

    Invariant: never more than `slots`, nor more partitions in all than the limit; a session's
    number is not zero.
    """

    def __init__(self, slots: int, rng: "random.Random") -> None:
        self._slots = slots
        self._rng = rng
        self._by_number: dict[int, FetchSession] = {}
        self.partitions = 0
        """In all sessions together."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._by_number.values())

    def create(self, now: Instant, wants: list[Want], *, by_id: bool) -> FetchSession | None:
        """A new session, or None: there is no room and nobody to turn out."""
        if not self._has_room(now, len(wants)):
            return None
        if len(self._by_number) >= self._slots and not self._evict(now, len(wants)):
            return None
        number = self._rng.randrange(1, 2**31 - 1)
        while number in self._by_number:
            number = self._rng.randrange(1, 2**31 - 1)
        session = FetchSession(number, by_id=by_id, now=now)
        self._by_number[number] = session
        self.update(session, wants, ())
        return session

    def continued(self, now: Instant, number: int, epoch: int, *, by_id: bool) -> FetchSession:
        """The session an incremental request belongs to; refused where it does not fit."""
        session = self._by_number.get(number)
        if session is None:
            raise Rejected(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise Rejected(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise Rejected(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.used = now
        return session

    def update(
        self, session: FetchSession, wants: Iterable[Want], forgotten: Iterable[WantKey]
    ) -> None:
        """Take what a session's client says anew; refused, and the session gone, where that is
        too much: its client begins a new one, or does without.
        """
        before = len(session.wants)
        session.update(wants, forgotten)
        self.partitions += len(session.wants) - before
        if (
            len(session.wants) > limits.FETCH_SESSION_PARTITIONS_MAX
            or self.partitions > limits.FETCH_SESSIONS_PARTITIONS_MAX
        ):
            self.close(session.number)
            raise Rejected(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions in sessions")

    def close(self, number: int) -> None:
        session = self._by_number.pop(number, None)
        if session is not None:
            self.partitions -= len(session.wants)

    def _has_room(self, now: Instant, size: int) -> bool:
        """Whether so many partitions more may be remembered, once the stale ones are forgotten."""
        if size > limits.FETCH_SESSION_PARTITIONS_MAX:
            return False
        while self.partitions + size > limits.FETCH_SESSIONS_PARTITIONS_MAX:
            oldest = min(self._by_number.values(), key=lambda one: one.used, default=None)
            if oldest is None or now - oldest.used <= _UNUSED_NS:
                return False
            self.close(oldest.number)
            self.evicted += 1
        return True

    def _evict(self, now: Instant, size: int) -> bool:
        """Make room: turn out the longest unused if it is stale, else a smaller one than ours."""
        if not self._by_number:
            return False
        oldest = min(self._by_number.values(), key=lambda session: session.used)
        if now - oldest.used > _UNUSED_NS:
            victim = oldest
        else:
            victim = min(self._by_number.values(), key=lambda session: len(session.wants))
            if len(victim.wants) >= size:
                return False
        self.close(victim.number)
        self.evicted += 1
        return True
