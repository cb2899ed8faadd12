"""Whether this broker's disks have room, by what became of its appends; and what it leads that
others shall lead instead. No I/O.

A broker is without room from an append that found none until that replica's log has grown, or its
disk says that there is space. Others see it on the board: nobody hands over to a broker that is
without room itself, so where nobody has any, each gives up its leadership once, and the last one
leads on.

A small batch may still find a place where a large one does not, and a quota does not show in what a
disk says. So being without room lasts a while, and each time longer if it comes back soon: leaders
change seldom, however much that contradicts itself.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Epoch, Offset, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.events import Kind
from tidelog.node.log.shortages import is_full
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.receiving import AGAIN_MS, Note
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.wire.control import NoRoom

HAS_ROOM: Final = Instant(0)
LASTS_MS: Final = 10_000
LASTS_MS_MAX: Final = 300_000
_SOON_MS: Final = 300_000
_TOLD_AGAIN_MS: Final = 1_000
_STILL_MS: Final = 2_000
"""A follower that is behind tries more often: who failed no later may have room, or nothing came
that it could try with."""
assert _STILL_MS > 2 * AGAIN_MS

HasSpace = Callable[[TopicPartition], bool]
"""Whether the disk of a log says that there is space."""


def is_without_room(now: Instant, full_at: Instant) -> bool:
    """Whether a broker that last found no room then surely has none now."""
    return full_at != HAS_ROOM and now - full_at < ms(_STILL_MS)


class _Place(Struct):
    """A replica here that had no room for a batch."""

    end: Offset
    """Where its log ended."""
    asked: NoRoom | None = None
    asked_at: Instant = Instant(0)
    noted: Epoch = Epoch(-1)
    """The leader epoch in which people were told of it."""


class Room:
    """Invariant: while a replica here is known to lack room, `full_at` says when one last did."""

    def __init__(self, replicas: Replicas, has_space: HasSpace, note: Note) -> None:
        self.full_at = HAS_ROOM
        """For the board: when an append last found no room."""
        self._replicas = replicas
        self._has_space = has_space
        self._note = note
        self._places: dict[Replica, _Place] = {}
        self._lasts_ms = LASTS_MS
        self._well_since: Instant | None = None

    def failed(self, now: Instant, key: TopicPartition, failure: Exception) -> bool:
        """Something could not be done with a replica's files; whether it was for want of room."""
        replica = self._replicas.get(key)
        if replica is None or not isinstance(failure, OSError) or not is_full(failure):
            return False
        if self.full_at == HAS_ROOM:
            soon = self._well_since is not None and now - self._well_since < ms(_SOON_MS)
            self._lasts_ms = min(2 * self._lasts_ms, LASTS_MS_MAX) if soon else LASTS_MS
        self.full_at = now
        end = Offset(replica.log.end)
        self._places.setdefault(replica, _Place(end)).end = end
        return True

    def turn(self, now: Instant) -> None:
        """Now and then: see who has room again."""
        is_over = now - self.full_at >= ms(self._lasts_ms)
        for replica, place in list(self._places.items()):
            place.end = min(place.end, Offset(replica.log.end))
            is_here = self._replicas.get(replica.key) is replica
            has_grown = replica.log.end > place.end
            if not is_here or has_grown or (is_over and self._has_space(replica.key)):
                del self._places[replica]
        if self.full_at != HAS_ROOM and is_over and not self._places:
            self.full_at, self._well_since = HAS_ROOM, now

    def asks(
        self,
        now: Instant,
        has_room: Callable[[BrokerId], bool],
        key: TopicPartition | None = None,
    ) -> tuple[NoRoom, ...]:
        """What others shall lead, or this one of it: to be told to the coordinator now. It is told
        every second, until it is heard or has no reason any more."""
        if self._replicas.retiring:
            return ()
        known: dict[BrokerId, bool] = {}

        def may_lead(broker: BrokerId) -> bool:
            if broker not in known:
                known[broker] = has_room(broker)
            return known[broker]

        places: Iterable[tuple[Replica, _Place]] = self._places.items()
        found = [
            self._ask(now, replica, place, replica.leader, may_lead)
            for replica, place in places
            if replica.leader is not None and key in {None, replica.key}
        ]
        return tuple(one for one in found if one is not None)

    def _ask(
        self,
        now: Instant,
        replica: Replica,
        place: _Place,
        leader: Leader,
        may_lead: Callable[[BrokerId], bool],
    ) -> NoRoom | None:
        """Only those who hold all that is here: else what was acknowledged by this leader alone
        would be lost."""
        others = tuple(one for one in leader.in_sync if leader.is_held_by(one) and may_lead(one))
        if not others:
            return None
        asked = NoRoom(replica.topic_id, replica.partition, leader.partition_epoch, others)
        if asked == place.asked and now - place.asked_at < ms(_TOLD_AGAIN_MS):
            return None
        place.asked, place.asked_at = asked, now
        if place.noted != leader.epoch:
            place.noted = leader.epoch
            self._note(Kind.NO_ROOM, replica, (leader.epoch, leader.end, others))
        return asked
