"""The leader of one partition: who is in sync, and up to where a record is safe. No I/O.

docs/replication.md has the rules; their numbers stand here where they are kept.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import NO_OFFSET, BrokerId, Epoch, Offset
from tidelog.kernel.instant import Instant
from tidelog.wire.metadata_records import PartitionView

_LONG_AGO: Final = Instant(-(1 << 62))
UNKNOWN: Final = NO_OFFSET
"""Of a follower that has not spoken in this epoch."""


class AdvanceHighWatermark(Struct, frozen=True):
    """Records below `to` are on every in-sync replica: they may be read, and acks=all answered."""

    to: Offset


class Member(Struct, eq=False):
    """What the leader knows of one other replica."""

    vouched: Offset = UNKNOWN
    log_start: Offset = UNKNOWN
    broker_epoch: Offset = UNKNOWN
    """Of the life that vouched."""
    caught_up: Instant = Instant(0)
    """It had, by now, all that the log held then."""
    mark: Offset = Offset(0)
    """Where the log ended when it last vouched for something, and when that was."""
    marked: Instant = Instant(0)


class Leader:
    """What the leader of one partition knows of its replicas.

    Invariant: high_watermark <= what every member of the maximal ISR vouched for at some time; it
    never goes back. So a record below it is on every replica that may become leader.
    """

    __slots__ = (
        "_asked_min",
        "_counted",
        "_doubted",
        "_factor",
        "_me",
        "_members",
        "_proposed",
        "end",
        "epoch",
        "epoch_start",
        "high_watermark",
        "in_sync",
        "min_in_sync",
        "own",
        "partition_epoch",
        "proposing",
        "replicas",
    )

    def __init__(
        self,
        *,
        me: BrokerId,
        view: PartitionView,
        end: Offset,
        high_watermark: Offset,
        min_in_sync: int,
        now: Instant,
    ) -> None:
        self._me = me
        self.epoch: Epoch = view.leader_epoch
        self.end = self.epoch_start = self.own = end
        """`own` is up to where this replica vouches: its end, or what of it is flushed."""
        self.high_watermark = min(high_watermark, end)
        self._asked_min = min_in_sync
        self._members: dict[BrokerId, Member] = {}
        self.min_in_sync = min_in_sync
        """What the topic asks, as far as there are replicas."""
        self._counted: list[Member] = []
        """The others of the maximal ISR."""
        self.proposing = False
        """A proposal is under way, and its outcome is not known."""
        self._proposed: frozenset[BrokerId] = frozenset()
        """Whose addition was proposed: they count as members until the record says otherwise."""
        self._doubted: frozenset[BrokerId] = frozenset()
        """Those of them that were proposed without an answer: the controller may still add them."""
        self._take(view)
        for member in self._members.values():
            member.caught_up = member.marked = now
            member.mark = end

    # -- who is in it

    def _take(self, view: PartitionView) -> None:
        assert self._me in view.isr, view
        self.replicas = view.replicas
        self._factor = view.factor
        self.in_sync = view.isr
        self.partition_epoch: Epoch = view.partition_epoch
        others = [one for one in view.replicas if one != self._me]
        self._members = {one: self._members.get(one) or Member() for one in others}
        self._recast()

    def confirmed(self, view: PartitionView, min_in_sync: int) -> AdvanceHighWatermark | None:
        """A new record of this partition is in the image: proposals of before it are decided.

        What the topic asks for by now is taken in the same step. The controller decided on this ISR
        with that minimum in mind, so the ISR must not count under an earlier one.
        """
        assert view.leader == self._me, view
        assert view.leader_epoch == self.epoch, view
        if view.partition_epoch > self.partition_epoch:
            self.proposing = False
            self._proposed = self._doubted = frozenset()
        self._asked_min = min_in_sync
        self._take(view)
        return self._advance()

    def asks_min_in_sync(self, wanted: int) -> bool:
        """The topic asks for so many now; whether that is news."""
        if wanted == self._asked_min:
            return False
        self._asked_min = wanted
        self._recast()
        return True

    def _recast(self) -> None:
        """Look up anew whom every append and every ack asks about."""
        self.min_in_sync = min(self._asked_min, self._factor)
        members = self._members
        counted = dict.fromkeys((*self.in_sync, *self._proposed))
        self._counted = [members[one] for one in counted if one in members]

    def enough_in_sync(self) -> bool:
        """Whether acks=all may be taken at all."""
        return len(self.in_sync) >= self.min_in_sync

    def member(self, broker: BrokerId) -> Member | None:
        return self._members.get(broker)

    @property
    def ends(self) -> dict[BrokerId, Offset]:
        """Up to where each replica vouches; UNKNOWN where it has not spoken in this epoch."""
        return {
            self._me: self.own,
            **{broker: member.vouched for broker, member in self._members.items()},
        }

    def low_watermark(self, own_start: Offset, alive: Callable[[BrokerId], bool]) -> Offset:
        """Below it the records are gone from every live replica; UNKNOWN counts as nothing gone."""
        others = [one.log_start for broker, one in self._members.items() if alive(broker)]
        return min([own_start, *others])

    # -- what is safe

    def appended(
        self, now: Instant, end: Offset, own: Offset | None = None
    ) -> AdvanceHighWatermark | None:
        """The leader's own log now ends there, and it vouches for so much of it, or all."""
        assert end >= self.end, (end, self.end)
        for member in self._members.values():
            if member.vouched == self.end:
                member.caught_up = now  # it was, until this very moment
        self.end = end
        self.own = end if own is None else own
        return self._advance()

    def vouches(self, own: Offset) -> AdvanceHighWatermark | None:
        """The leader's own log is flushed so far, or another policy counts for it."""
        assert own <= self.end, (own, self.end)
        self.own = own
        return self._advance()

    def attached(self, broker: BrokerId) -> None:
        """It begins anew, and may hold less than before: its life may be another one (KIP-903)."""
        member = self._members.get(broker)
        if member is not None:
            member.vouched = member.log_start = UNKNOWN

    def vouched(
        self, now: Instant, broker: BrokerId, end: Offset, log_start: Offset
    ) -> AdvanceHighWatermark | None:
        """A follower of this epoch has all below `end` (rule 2)."""
        member = self._members.get(broker)
        if member is None:
            return None
        end = min(end, self.end)
        member.vouched, member.log_start = end, log_start
        if end == self.end:
            member.caught_up = now
        elif end >= member.mark:
            member.caught_up = max(member.caught_up, member.marked)
        if end >= member.mark:
            member.mark, member.marked = self.end, now
        return self._advance() if broker in self.in_sync or broker in self._proposed else None

    def recount(self) -> AdvanceHighWatermark | None:
        """At the start, and when the rules change: alone in sync, all it holds is safe at once."""
        return self._advance()

    def _advance(self) -> AdvanceHighWatermark | None:
        """Rule 1: over the maximal ISR, and not while the confirmed one is too small."""
        if not self.enough_in_sync():
            return None
        replicated = self.own
        for member in self._counted:
            replicated = min(replicated, member.vouched)
        if replicated <= self.high_watermark:
            return None
        self.high_watermark = replicated
        return AdvanceHighWatermark(to=replicated)

    # -- who should be in it

    def may_join(self, broker: BrokerId) -> bool:
        """Rule 3, as far as the log goes."""
        member = self._members.get(broker)
        if member is None or broker in self.in_sync:
            return False
        return member.vouched >= max(self.high_watermark, self.epoch_start)

    def is_level(self) -> bool:
        """Whether every in-sync replica holds all there is."""
        members, end = self._members, self.end
        return all(one == self._me or members[one].vouched == end for one in self.in_sync)

    def is_held_by(self, broker: BrokerId) -> bool:
        """Whether another replica holds all there is."""
        member = self._members.get(broker)
        return member is not None and member.vouched == self.end

    def behind(self, now: Instant, patience: int) -> list[BrokerId]:
        """Who of those in sync has not held all there is for so long."""
        return [
            broker
            for broker in self.in_sync
            if broker != self._me
            and not self.is_held_by(broker)
            and now - self._members[broker].caught_up > patience
        ]

    def gives_up(self, broker: BrokerId) -> None:
        """It cannot write: it is overdue (rule 4) until it has caught up."""
        self._members[broker].caught_up = _LONG_AGO

    def overdue(self, now: Instant, lag_max: int, heard: Callable[[BrokerId], Instant]) -> bool:
        """Whether some member has not kept up (rule 4)."""
        return any(self.is_overdue(broker, now, lag_max, heard) for broker in self.in_sync)

    def is_overdue(
        self, broker: BrokerId, now: Instant, lag_max: int, heard: Callable[[BrokerId], Instant]
    ) -> bool:
        """Whether this one has not kept up."""
        if broker == self._me:
            return False
        member = self._members[broker]
        if member.vouched == self.end:
            member.caught_up = max(member.caught_up, heard(broker))
        return now - member.caught_up > lag_max

    def propose(
        self,
        now: Instant,
        lag_max: int,
        *,
        joining: Iterable[BrokerId],
        heard: Callable[[BrokerId], Instant],
    ) -> tuple[BrokerId, ...] | None:
        """The ISR as it should be, or None if no proposal is needed or one is under way (rule 5).

        While an earlier proposal is in doubt, even an unchanged ISR is proposed: once the record of
        it is written, the earlier proposal is void, because its partition epoch is too old.
        """
        if self.proposing:
            return None
        wanted = set(joining)
        isr = tuple(
            broker
            for broker in self.replicas
            if broker in wanted
            or (broker in self.in_sync and not self.is_overdue(broker, now, lag_max, heard))
        )
        if set(isr) == set(self.in_sync) and not self.in_doubt:
            return None
        self.proposing = True
        self._proposed |= frozenset(isr) - frozenset(self.in_sync)
        self._recast()
        return isr

    def refused(self) -> AdvanceHighWatermark | None:
        """The latest proposal was not taken. Of earlier ones in doubt this says nothing."""
        self.proposing = False
        self._proposed = self._doubted
        self._recast()
        return self._advance()

    def unanswered(self) -> None:
        """Nobody knows whether the proposal was taken: the added replicas count until a record of
        this partition ends the doubt, and the leader proposes again to get such a record."""
        self.proposing = False
        self._doubted = self._proposed

    @property
    def in_doubt(self) -> bool:
        """Whether an addition was proposed and the controller may still write it down."""
        return bool(self._doubted)
