"""Keeps every broker's image up to date: a snapshot to whoever is far behind, then each batch."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct, field

from tidelog.kernel.ids import NO_OFFSET, BrokerId, Incarnation, Offset
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import (
    FEED_RECORDS_IN_FLIGHT,
    FEED_SNAPSHOT_CHUNK_RECORDS,
    METADATA_RECORDS_KEPT,
)
from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.wire.control import Deltas, Snapshot
from tidelog.wire.metadata_records import MetadataRecord

Peer = bytes
"""How the socket names a connection."""


class Session(Struct):
    """One connection of one life of a broker. `sent` and `applied` are offsets of its image."""

    peer: Peer
    session: int
    broker: BrokerId
    incarnation: Incarnation
    applied: Offset
    sent: Offset
    heard: Instant = Instant(0)
    """When it said last how far it is."""
    caught_up: Instant = Instant(0)
    """Until when it had all that was committed."""


class Send(Struct, frozen=True):
    """Hand this to the socket."""

    peer: Peer
    message: Snapshot | Deltas


class Feed(Struct):
    """What is committed, and who has been sent how much of it.

    Invariant: `image` is the log up to its committed end; the kept batches are the last of it,
    without a gap; applied <= sent <= image.offset for every session.
    """

    image: MetadataImage
    _kept: deque[tuple[Offset, tuple[MetadataRecord, ...]]] = field(default_factory=deque)
    _kept_records: int = 0
    sessions: dict[Peer, Session] = field(default_factory=dict)

    def committed(self, records: tuple[MetadataRecord, ...]) -> list[Send]:
        """The next batch of the log is safe."""
        self._kept.append((Offset(self.image.offset + 1), records))
        self._kept_records += len(records)
        while self._kept_records > METADATA_RECORDS_KEPT and len(self._kept) > 1:
            self._kept_records -= len(self._kept.popleft()[1])
        for record in records:
            self.image.replay(record)
        return [send for session in self.sessions.values() for send in self._pump(session)]

    def open(self, session: Session) -> list[Send]:
        """A broker registered: bring it from what it has to what is."""
        self.sessions[session.peer] = session
        oldest = self._kept[0][0] if self._kept else Offset(self.image.offset + 1)
        # A broker that knows nothing gets all at once: it must never act on half an image, for
        # it deletes the directories of topics that it does not find there.
        knows_some = session.applied != NO_OFFSET
        if knows_some and oldest - 1 <= session.applied <= self.image.offset:
            session.sent = session.applied
            return self._pump(session)
        # Older than what is kept; or from a log that is not ours any more.
        session.applied = session.sent = self.image.offset
        return [Send(session.peer, part) for part in self._snapshot(session.session)]

    def close(self, peer: Peer) -> None:
        self.sessions.pop(peer, None)

    def close_all(self, broker: BrokerId) -> None:
        """A broker has one connection: the one it registered by last."""
        for one in [one for one in self.sessions.values() if one.broker == broker]:
            self.close(one.peer)

    def applied(self, peer: Peer, offset: Offset) -> list[Send]:
        """A broker has come so far, so it may be sent more."""
        session = self.sessions[peer]
        session.applied = max(session.applied, min(offset, session.sent))
        return self._pump(session)

    def have_until(self, now: Instant) -> None:
        """Who has all that there is has it until now; called before there is more."""
        for session in self.sessions.values():
            if session.applied >= self.image.offset:
                session.caught_up = now

    def _pump(self, session: Session) -> list[Send]:
        """Batches it does not have, as long as not too much of it is unanswered."""
        sends = []
        for base, records in self._after(session.sent):
            if session.sent - session.applied >= FEED_RECORDS_IN_FLIGHT:
                break
            have = session.sent + 1 - base
            assert 0 <= have < len(records), (base, session)
            sends.append(
                Send(
                    session.peer,
                    Deltas(session.session, Offset(session.sent + 1), records[have:]),
                )
            )
            session.sent = Offset(base + len(records) - 1)
        return sends

    def _after(self, offset: Offset) -> Sequence[tuple[Offset, tuple[MetadataRecord, ...]]]:
        """Kept batches that hold something behind this offset."""
        behind = []
        for base, records in reversed(self._kept):
            if base + len(records) - 1 <= offset:
                break
            behind.append((base, records))
        return behind[::-1]

    def _snapshot(self, session: int) -> Iterator[Snapshot]:
        records = snapshot(self.image)
        part = tuple(islice(records, FEED_SNAPSHOT_CHUNK_RECORDS))
        while part:
            following = tuple(islice(records, FEED_SNAPSHOT_CHUNK_RECORDS))
            yield Snapshot(session, self.image.offset, part, last=not following)
            part = following
