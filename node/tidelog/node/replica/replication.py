"""Replication of one broker: both ends of its streams, and what its leaderships ask of the cluster.
No I/O but through the log; docs/replication.md has the rules.

Time and messages come in; messages and proposals are gathered, and taken out at the end of a turn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from tidelog.kernel.ids import BrokerId, Incarnation, Offset, Partition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.events import Kind
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.feeds import Feed, Outgoing
from tidelog.node.replica.leader import AdvanceHighWatermark, Leader
from tidelog.node.replica.outbox import Address, Outbox
from tidelog.node.replica.receiving import Note, Receiving
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.rings import Rings
from tidelog.node.replica.room import HAS_ROOM, is_without_room
from tidelog.node.replica.sending import Sending
from tidelog.node.replica.throttle import Throttle
from tidelog.node.replica.waiting import Waiting
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.replication import (
    FROM_FOLLOWER,
    Ack,
    Alive,
    Attach,
    Close,
    Detach,
    Entry,
    Join,
    LeftRing,
    Message,
    Open,
    Payload,
    head_bytes,
    read_entries,
    read_head,
)

TICK_MS: Final = 100
LATE_MS: Final = 1_000
"""A tick so much too late says that this process stood still: then nobody else is called slow."""

NO_ROOM_MS: Final = 500
"""So long a follower whose disk is full may be behind and in sync."""
_HEADS_KEPT_MAX: Final = 200
_NOT_OURS: Final = Address(BrokerId(-1), Incarnation(-1), 0)
"""Of what is meant for an earlier life."""
_WORTH_TELLING: Final = 10
"""So many ticks a high watermark stood still, or its leader's epoch begins: the next move of it is
one that people look for."""


class Surroundings(NamedTuple):
    """What replication uses of its broker."""

    me: BrokerId
    incarnation: Incarnation
    replicas: Replicas
    waiting: Waiting
    rings: Rings
    wall_ms: Callable[[Instant], int]
    lag_max_ms: Callable[[], int]
    """`replica.lag.time.max.ms` as it is now."""
    note: Note
    on_storage_failure: Callable[[Replica, Exception], None]
    wake: Callable[[], None]
    """Called when there is something to be taken out at the end of this turn."""
    full_at: Callable[[BrokerId], Instant] = lambda _broker: HAS_ROOM
    """When a broker last found no room for a batch."""
    static: Mapping[str, str] = {}
    """The settings that all brokers were started with."""


class Replication:
    """The machine that routes messages between a broker's replicas and the other brokers'."""

    def __init__(self, around: Surroundings) -> None:
        self._me = around.me
        self._incarnation = around.incarnation
        self._replicas = around.replicas
        self._waiting = around.waiting
        self._lag_max_ms = around.lag_max_ms
        self._note = around.note
        self._wake = around.wake
        self._full_at = around.full_at
        # One for each end: our stream to a broker and its stream to us may have the same number.
        self._from_leaders = Outbox(around.me, around.incarnation, around.wake)
        self._from_followers = Outbox(around.me, around.incarnation, around.wake)
        self._sending = Sending(
            around.replicas,
            self._from_leaders,
            around.rings,
            self._on_vouched,
            around.on_storage_failure,
            Throttle(around.me, around.static),
        )
        self._receiving = Receiving(
            self._from_followers,
            around.rings,
            around.waiting,
            around.wall_ms,
            around.note,
            around.on_storage_failure,
        )
        self._addresses: dict[bytes, Address] = {}
        """By the heads that were heard lately."""
        self._image = MetadataImage()
        self._epoch: Offset | None = None
        self._proposals: list[IsrChange] = []
        self._lagging: dict[Replica, None] = {}
        """Led here, and some in-sync member may not hold all of it."""
        self._candidates: dict[Replica, None] = {}
        """Led here, and some replica may join that could not be proposed when it came so far."""
        self._refused: set[Replica] = set()
        """Led here, and a proposal was refused since the last tick: wait for the next one."""
        self._silent: set[BrokerId] = set()
        self._last_tick: Instant | None = None
        self._patient_until = Instant(0)

    # -- what the cluster decides

    def registered(self, now: Instant, broker_epoch: Offset) -> None:
        """The cluster counts on this broker, under this broker epoch."""
        self._epoch = broker_epoch
        self._receiving.registered(now, broker_epoch)

    def fenced(self, now: Instant) -> None:
        """The cluster has given this broker up: it leads nothing and follows nobody."""
        self._epoch = None
        self._proposals.clear()
        self._sending.end_all()
        self._receiving.fenced()
        for replica in self._replicas:
            if replica.leader is not None:
                replica.rest()
                self.rests(now, replica)

    def close(self) -> None:
        """The process ends."""
        self._sending.close()
        self._receiving.close()

    def image_changed(self, now: Instant, image: MetadataImage) -> None:
        """After the replicas became what it says."""
        self._image = self._sending.image = self._receiving.image = image
        self._sending.image_changed(now)
        self._receiving.image_changed(now)

    def leads(self, now: Instant, replica: Replica) -> None:
        """This replica's leadership has begun, in its leader's epoch."""
        self._receiving.rest(replica)
        self._sending.role_changed(replica)
        leader = _leader(replica)
        if len(leader.replicas) > 1:
            begins = (leader.epoch, leader.epoch_start, leader.high_watermark)
            self._note(Kind.LEADS, replica, begins)
        if leader.recount() is not None:
            replica.above.clear()
        replica.told, replica.standstill = leader.high_watermark, _WORTH_TELLING
        self._watch(replica, leader)
        self._waiting.disturbed(now, replica.key)

    def confirmed(
        self, now: Instant, replica: Replica, advance: AdvanceHighWatermark | None
    ) -> None:
        """A new record of a partition that is led here, in the same epoch."""
        self._refused.discard(replica)
        self._watch(replica, _leader(replica))
        self._look_for_joining(now, replica)
        if advance is not None:
            replica.standstill = _WORTH_TELLING
            self._advanced(now, replica, advance)
        else:
            self._waiting.advanced(now, replica.key, 0)  # enough may be in sync again, or too few

    def follows(self, now: Instant, replica: Replica) -> None:
        """This replica follows another broker, under its follower's epoch."""
        self._sending.role_changed(replica)
        self._unwatch(replica)
        follower = replica.follower
        assert follower is not None, replica.key
        begins = (follower.leader, follower.epoch, replica.log.end, follower.high_watermark)
        self._note(Kind.FOLLOWS, replica, begins)
        self._receiving.follow(now, replica)
        self._waiting.disturbed(now, replica.key)

    def rests(self, now: Instant, replica: Replica) -> None:
        """Nobody leads it, or it is here no more."""
        self._sending.role_changed(replica)
        self._unwatch(replica)
        self._receiving.rest(replica)
        self._waiting.disturbed(now, replica.key)

    def began_anew(self, replica: Replica, end: Offset) -> None:
        """Its files were damaged and are gone; it follows from the leader's first record on."""
        self._note(Kind.STARTED_ANEW, replica, (end, Offset(replica.log.start)))

    def _watch(self, replica: Replica, leader: Leader) -> None:
        if len(leader.replicas) > 1:
            self._lagging[replica] = None

    def _unwatch(self, replica: Replica) -> None:
        self._lagging.pop(replica, None)
        self._candidates.pop(replica, None)
        self._refused.discard(replica)

    # -- data

    def appended(self, now: Instant, replica: Replica, batch: Payload) -> None:
        """The leader's log has one batch more."""
        leader = _leader(replica)
        advance = leader.appended(now, Offset(replica.log.end), replica.vouched)
        if len(leader.replicas) == 1:
            if advance is not None:
                self._waiting.advanced(now, replica.key, len(batch))
            elif replica.by_flush:
                replica.grew(len(batch))
            return
        replica.grew(len(batch))
        self._lagging[replica] = None
        self._sending.appended(now, replica, batch)
        if advance is not None:
            self._advanced(now, replica, advance)

    def vouches(self, now: Instant, replica: Replica) -> None:
        """Its log is flushed further, or another policy counts for it: it may vouch for more."""
        leader = replica.leader
        if leader is None:
            if replica.follower is not None:
                self._receiving.flushed(replica)
            return
        advance = leader.vouches(replica.vouched)
        if advance is not None:
            self._advanced(now, replica, advance)
        else:
            self._waiting.advanced(now, replica.key, 0)  # who waits for this replica alone

    def begins_later(self, now: Instant, replica: Replica) -> None:
        """Records at the start of a log that is led here were deleted."""
        self._sending.begins_later(now, replica)

    def _advanced(self, now: Instant, replica: Replica, advance: AdvanceHighWatermark) -> None:
        """Last in its turn: who is answered may find out that this broker was given up, and then
        nothing is led here any more."""
        if replica.standstill >= _WORTH_TELLING:
            jump = (replica.told, advance.to, _leader(replica).epoch)
            self._note(Kind.HIGH_WATERMARK, replica, jump)
            replica.standstill = 0
        replica.told = advance.to
        size = replica.passed(advance.to)
        self._sending.advanced(now, replica)
        self._waiting.advanced(now, replica.key, size)

    def _on_vouched(self, now: Instant, feed: Feed, end: Offset, log_start: Offset) -> None:
        replica, peer = feed.replica, feed.outgoing.peer
        leader = _leader(replica)
        member = leader.member(peer)
        begins_later = member is not None and log_start > member.log_start
        advance = leader.vouched(now, peer, end, log_start)
        if peer not in leader.in_sync and leader.may_join(peer) and replica not in self._refused:
            self._look_for_joining(now, replica)
        if advance is not None:
            self._advanced(now, replica, advance)
        elif begins_later:
            self._waiting.advanced(now, replica.key, 0)

    def received(self, now: Instant, parts: Sequence[Payload]) -> None:
        """One message of another broker; what is meant for an earlier life is dropped."""
        head = head_bytes(parts)
        address = self._addresses.get(head) or self._address(head)
        entries = read_entries(parts)
        if self._epoch is None or address is _NOT_OURS or not entries:
            return
        if isinstance(entries[0][0], FROM_FOLLOWER):
            self._from_follower(now, address, entries)
        else:
            self._receiving.received(now, address, entries)

    def _address(self, head: bytes) -> Address:
        """Whose stream the head names; it is read once for all messages that begin with it."""
        said = read_head(head)
        ours = said.to in {0, self._incarnation}
        address = Address(said.sender, said.incarnation, said.stream) if ours else _NOT_OURS
        if len(self._addresses) >= _HEADS_KEPT_MAX:
            self._addresses.clear()
        self._addresses[head] = address
        return address

    def _from_follower(self, now: Instant, address: Address, entries: Iterable[Entry]) -> None:
        sending = self._sending
        for message, _ in entries:
            if isinstance(message, Open):
                sending.opened(now, address, message)
                continue
            if isinstance(message, Close) and not sending.knows(address):
                return
            stream = sending.stream(address)
            if stream is None:
                return
            sending.heard[address.peer] = now
            self._silent.discard(address.peer)
            if type(message) is Ack:  # as nearly all of them are
                sending.acked(now, stream, message)
            else:
                self._of_follower(now, stream, message)

    def _of_follower(self, now: Instant, stream: Outgoing, message: Message) -> None:
        sending = self._sending
        match message:
            case Attach():
                sending.attach(now, stream, message)
            case Detach(channel):
                sending.detached(stream, channel)
            case Join(ring):
                sending.joined(stream, ring)
            case LeftRing(ring):
                sending.left(stream, ring)
            case Alive():
                pass
            case Close():
                sending.closed(stream)
            case _:
                raise WireError(f"{message} comes from no follower")

    # -- time

    @property
    def due(self) -> Instant | None:
        """When `tell` is wanted, between two ticks."""
        return self._sending.due

    def tell(self, now: Instant) -> None:
        """Say what could not wait for the next tick."""
        self._sending.tell(now)

    def tick(self, now: Instant) -> None:
        """Ten times a second."""
        last, self._last_tick = self._last_tick, now
        if last is not None and now - last > ms(TICK_MS + LATE_MS):
            patience = min(now - last, ms(self._lag_max_ms()))
            self._patient_until = Instant(now + patience)
        if self._epoch is None:
            return
        self._sending.tick(now)
        self._receiving.tick(now)
        if now >= self._patient_until:
            self._look_for_silence(now)
            self._look_for_lag(now)
        self._look_for_standstill()
        self._refused.clear()
        for replica in list(self._candidates):
            self._look_for_joining(now, replica)

    def is_level(self) -> bool:
        """Whether all in-sync replicas have all that is led here: a stop loses nothing then."""
        return all(_leader(replica).is_level() for replica in self._lagging)

    def _look_for_silence(self, now: Instant) -> None:
        """A follower broker that says nothing falls behind in all it follows, however idle."""
        for peer, heard in self._sending.heard.items():
            if now - heard > ms(self._lag_max_ms()) and peer not in self._silent:
                self._silent.add(peer)
                for replica in self._replicas:
                    if replica.leader is not None and peer in replica.leader.in_sync:
                        self._lagging[replica] = None

    def _look_for_lag(self, now: Instant) -> None:
        lag_max = ms(self._lag_max_ms())
        is_full = cache(partial(self._is_full, now))
        for replica in list(self._lagging):
            leader = _leader(replica)
            for one in leader.behind(now, ms(NO_ROOM_MS)):
                if is_full(one):
                    leader.gives_up(one)  # nobody waits longer than a moment for who cannot write
            if leader.overdue(now, lag_max, self._heard):
                self._propose(now, replica, ())
            elif leader.is_level():
                del self._lagging[replica]

    def _is_full(self, now: Instant, broker: BrokerId) -> bool:
        return is_without_room(now, self._full_at(broker))

    def _look_for_standstill(self) -> None:
        """When a high watermark moves that could not for long, people shall hear of it."""
        for replica in self._lagging:
            if replica.standstill < _WORTH_TELLING:
                leader = _leader(replica)
                waits = leader.high_watermark == replica.seen < leader.end
                replica.standstill = replica.standstill + 1 if waits else 0
                replica.seen = leader.high_watermark

    def _heard(self, broker: BrokerId) -> Instant:
        return self._sending.heard.get(broker, Instant(0))

    # -- the in-sync replicas

    def _look_for_joining(self, now: Instant, replica: Replica) -> None:
        leader = _leader(replica)
        able = [
            feed.outgoing
            for feed in self._sending.feeds(replica)
            if leader.may_join(feed.outgoing.peer)
        ]
        joining = [stream.peer for stream in able if self._is_eligible(now, leader, stream)]
        if joining or leader.in_doubt:
            self._propose(now, replica, joining)
        waits = leader.proposing or self._epoch is None or len(joining) < len(able)
        if leader.in_doubt or (able and waits):
            self._candidates[replica] = None
        elif not waits:
            self._candidates.pop(replica, None)

    def _is_eligible(self, now: Instant, leader: Leader, stream: Outgoing) -> bool:
        """Rule 3, as far as the cluster knows the follower; and it must not have to go again for
        rule 4 at once, or with the next batch, which it could not write."""
        if not self._image.is_active(stream.peer):
            return False
        if self._image.brokers[stream.peer].epoch != stream.broker_epoch:
            return False
        if self._is_full(now, stream.peer):
            return False
        return not leader.is_overdue(stream.peer, now, ms(self._lag_max_ms()), self._heard)

    def _propose(self, now: Instant, replica: Replica, joining: Iterable[BrokerId]) -> None:
        leader = _leader(replica)
        if self._epoch is None:
            return
        lag_max = ms(self._lag_max_ms())
        isr = leader.propose(now, lag_max, joining=joining, heard=self._heard)
        if isr is None:
            return
        brokers = self._image.brokers
        self._wake()
        self._proposals.append(
            IsrChange(
                topic=replica.topic_id,
                partition=replica.partition,
                leader_epoch=leader.epoch,
                partition_epoch=leader.partition_epoch,
                isr=tuple(
                    (one, self._epoch if one == self._me else brokers[one].epoch) for one in isr
                ),
            )
        )
        self._note(Kind.ISR_PROPOSED, replica, (isr, leader.epoch))

    def take_proposals(self) -> list[IsrChange]:
        """For the coordinator; `proposed` wants to know what became of them."""
        proposals, self._proposals = self._proposals, []
        return proposals

    def proposed(
        self,
        now: Instant,
        changes: Sequence[IsrChange],
        outcomes: Sequence[ErrorCode] | ErrorCode,
    ) -> None:
        """The answer: a code for each, or one for all. The latter says that nobody knows whether
        they were taken, unless it is NOT_CONTROLLER: then they were never sent."""
        for index, change in enumerate(changes):
            replica = self._replica(change.topic, change.partition)
            leader = None if replica is None else replica.leader
            if (
                replica is None
                or leader is None
                or leader.epoch != change.leader_epoch
                or leader.partition_epoch != change.partition_epoch
            ):
                continue
            self._watch(replica, leader)
            outcome = outcomes if isinstance(outcomes, ErrorCode) else outcomes[index]
            is_known = outcomes is ErrorCode.NOT_CONTROLLER or not isinstance(outcomes, ErrorCode)
            if not is_known:
                leader.unanswered()
                self._candidates[replica] = None
            elif outcome is not ErrorCode.NONE:
                self._not_taken(now, replica, outcome)

    def _not_taken(self, now: Instant, replica: Replica, code: ErrorCode) -> None:
        """Try again at the next tick, not with each ack: the image must change first."""
        leader = _leader(replica)
        self._note(Kind.ISR_REFUSED, replica, (code, leader.epoch))
        self._candidates[replica] = None
        self._refused.add(replica)
        advance = leader.refused()
        if advance is not None:
            replica.standstill = _WORTH_TELLING
            self._advanced(now, replica, advance)

    def _replica(self, topic: Uuid, partition: int) -> Replica | None:
        view = self._image.topics.get(topic)
        return None if view is None else self._replicas.get((view.name, Partition(partition)))

    # -- what goes out

    def take_sends(self) -> list[tuple[BrokerId, list[Payload]]]:
        """Messages for other brokers' inboxes, in order."""
        taken = [*self._from_leaders.take(), *self._from_followers.take()]
        return [(to.peer, parts) for to, parts in taken]

    def send_failed(self, now: Instant, peer: BrokerId) -> None:
        """A message to it is lost: every stream with it begins anew."""
        self._sending.failed(peer)
        self._receiving.failed(now, peer)


def _leader(replica: Replica) -> Leader:
    assert replica.leader is not None, replica.key
    return replica.leader
