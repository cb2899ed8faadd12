"""The leader's end of the streams: what goes to which follower, and by which way. No I/O but
through the log.

A feed is *live* when it was sent all the log holds: then each appended batch goes out at once, by
the ring where the follower has joined it. Else it catches up from the log, as far as credit goes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, BrokerId, Epoch, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.ring import RingWriter
from tidelog.node.log.log import Log
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.catch_up import first_batch, size_from, whole_batches
from tidelog.node.replica.feeds import Feed, Outgoing
from tidelog.node.replica.outbox import Address, Outbox
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.rings import Rings
from tidelog.node.replica.throttle import (
    Allowance,
    Throttle,
    are_open,
    most_at_one_time,
    take_from,
)
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.replication import (
    Ack,
    Attach,
    Attached,
    Batch,
    Bytes,
    Closed,
    EpochEnd,
    LeaveRing,
    Open,
    Opened,
    Payload,
    Refused,
    State,
)

CREDIT_BYTES: Final = 2 * 1024 * 1024
"""So much is under way to one follower outside the ring."""
CATCH_UP_SHARE: Final = 2
"""Of the ring: so much of it is under way to one follower that catches up."""
CHUNK_BYTES: Final = 512 * 1024
ACKED_TOGETHER_BYTES: Final = 1024 * 1024
"""A message of catch-up is acknowledged as a whole: more of it would leave the follower idle until
the leader has heard of it and sent more."""
BURST_BYTES_WITHOUT_RING: Final = CREDIT_BYTES
BURST_SHARE: Final = 8
"""Of the ring: a rest no larger than this goes out at once, whatever the credit."""
REPEAT_MS: Final = 500
TELL_WITHIN_MS: Final = 10
LEAVE_WITHIN_MS: Final = 500
PARKED_MAX: Final = 20_000


class Sending:
    """All streams of which this broker is the leader's end."""

    def __init__(
        self,
        replicas: Replicas,
        outbox: Outbox,
        rings: Rings,
        on_vouched: Callable[[Instant, Feed, Offset, Offset], None],
        on_storage_failure: Callable[[Replica, Exception], None],
        throttle: Throttle,
    ) -> None:
        self.image = MetadataImage()
        self._throttle = throttle
        self.heard: dict[BrokerId, Instant] = {}
        """When each follower broker last said anything."""
        self.due: Instant | None = None
        """When high watermarks go out that nothing else carried."""
        self._replicas = replicas
        self._outbox = outbox
        self._rings = rings
        self._on_vouched = on_vouched
        self._on_storage_failure = on_storage_failure
        self._streams: dict[BrokerId, Outgoing] = {}
        self._feeds: dict[Replica, list[Feed]] = {}
        self._unacked: dict[Feed, Instant] = {}
        """Feeds that owe an ack, and when they were last asked for it."""
        self._untold: dict[Feed, None] = {}
        self._ring: RingWriter | None = None
        self._rings_made = 0
        self._stuck = False
        """The ring is full, and nobody can be asked to leave it."""

    # -- streams

    def stream(self, address: Address) -> Outgoing | None:
        """The stream, where it is the one we know; else its follower is told it is closed."""
        found = self._streams.get(address.peer)
        if found is not None and found.address == address:
            return found
        old = found is not None and (
            address.incarnation < found.address.incarnation
            or (
                address.incarnation == found.address.incarnation
                and address.stream < found.address.stream
            )
        )
        if not old:
            self._outbox.say(address, Closed())
        return None

    def knows(self, address: Address) -> bool:
        found = self._streams.get(address.peer)
        return found is not None and found.address == address

    def opened(self, now: Instant, address: Address, message: Open) -> None:
        """A follower begins anew; it reads nothing any more of what it was sent before."""
        known = self._streams.get(address.peer)
        if known is not None and (address.incarnation, address.stream) <= known.address[1:]:
            return  # from before a reconnect
        broker = self.image.brokers.get(address.peer)
        if broker is not None and broker.incarnation > address.incarnation:
            return
        if known is not None:
            self.end(known)
        if self._ring is None:
            self._make_ring()
        if self._ring is not None:
            self._ring.release(address.peer)
        self._streams[address.peer] = Outgoing(address, message.broker_epoch)
        self.heard[address.peer] = now
        self._say_ring(self._streams[address.peer])

    def closed(self, stream: Outgoing) -> None:
        """The follower says that it is over."""
        if self._ring is not None:
            self._ring.release(stream.peer)
        self.end(stream)

    def failed(self, peer: BrokerId) -> None:
        """What was said to it is lost; it will open another stream."""
        stream = self._streams.get(peer)
        if stream is not None:
            self.end(stream)

    def end(self, stream: Outgoing) -> None:
        for feed in list(stream.feeds.values()):
            self._drop(feed)
        self._outbox.forget(stream.address)
        del self._streams[stream.peer]

    def end_all(self) -> None:
        """This broker was given up: it leads nothing."""
        for stream in list(self._streams.values()):
            self.end(stream)

    def close(self) -> None:
        self.end_all()
        if self._ring is not None:
            self._rings.retire(self._ring)
            self._ring = None

    # -- the ring

    def _make_ring(self) -> None:
        self._rings_made += 1
        self._ring = self._rings.make(self._rings_made)

    def _say_ring(self, stream: Outgoing) -> None:
        ring = self._ring
        number, size = (0, 0) if ring is None else (ring.number, ring.size)
        self._outbox.say(stream.address, Opened(number, size))

    def joined(self, stream: Outgoing, number: int) -> None:
        if self._ring is not None and number == self._ring.number:
            stream.joined = number

    def left(self, stream: Outgoing, number: int) -> None:
        """It reads nothing of that ring any more: it may join the newest one."""
        if number != stream.leaving:
            return
        stream.leaving = 0
        if self._ring is not None and self._ring.number == number:
            self._ring.release(stream.peer)
        self._say_ring(stream)

    def _make_room(self, now: Instant, ring: RingWriter) -> None:
        """The ring is full: who holds it up must leave it."""
        peer = ring.holds_up()
        stream = None if peer is None else self._streams.get(peer)
        if stream is None:
            self._stuck = True  # a broker without a stream may read on until it dies
            return
        if stream.leaving != ring.number:
            stream.leaving, stream.leaving_since = ring.number, now
            stream.joined = 0
            self._outbox.say(stream.address, LeaveRing(ring.number))

    def _leave_ring_to_its_holder(self, now: Instant) -> None:
        ring = self._ring
        if ring is None or (peer := ring.holds_up()) is None:
            return
        stream = self._streams.get(peer)
        if stream is not None and (
            stream.leaving != ring.number or now - stream.leaving_since < ms(LEAVE_WITHIN_MS)
        ):
            return
        if stream is None and not self._stuck:
            return
        self._rings.retire(ring)
        self._stuck = False
        self._make_ring()
        for other in self._streams.values():
            other.joined = 0
            if not other.leaving:
                self._say_ring(other)

    # -- attaching

    def attach(self, now: Instant, stream: Outgoing, asked: Attach) -> None:
        """A follower wants a partition: agree on where its log parts from ours."""
        view = self.image.partition(asked.topic, asked.partition)
        if view is None or view.leader_epoch < asked.leader_epoch:
            if len(stream.parked) < PARKED_MAX:
                stream.parked[asked.channel] = asked
            return
        if view.leader_epoch > asked.leader_epoch:
            self._refuse(stream, asked, ErrorCode.FENCED_LEADER_EPOCH)
            return
        topic = self.image.topics[asked.topic]
        replica = self._replicas.get((topic.name, asked.partition))
        if (
            replica is None
            or replica.leader is None
            or replica.leader.epoch != asked.leader_epoch
            or stream.peer not in view.replicas
        ):
            self._refuse(stream, asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            self._agree(now, stream, asked, replica)
        except (OSError, CorruptError) as failure:
            self._on_storage_failure(replica, failure)
            self._refuse(stream, asked, ErrorCode.KAFKA_STORAGE_ERROR)

    def _refuse(self, stream: Outgoing, asked: Attach, code: ErrorCode) -> None:
        self._outbox.say(stream.address, Refused(asked.channel, code))

    def _agree(self, now: Instant, stream: Outgoing, asked: Attach, replica: Replica) -> None:
        log = replica.log
        if asked.end < log.start:
            self._attached(now, stream, asked, replica, first_batch(log))
            return
        epoch, end = epoch_end(log, asked.last_epoch)
        if epoch == asked.last_epoch and asked.end <= end:
            self._attached(now, stream, asked, replica, asked.end)
        else:
            answer = EpochEnd(asked.channel, epoch, end, Offset(log.start))
            self._outbox.say(stream.address, answer)

    def _attached(
        self, now: Instant, stream: Outgoing, asked: Attach, replica: Replica, start: Offset
    ) -> None:
        feeds = self._feeds.setdefault(replica, [])
        for feed in [one for one in feeds if one.outgoing is stream]:
            self._drop(feed)
        assert replica.leader is not None
        replica.leader.attached(stream.peer)
        feed = Feed(stream, asked.channel, replica, asked.leader_epoch, start)
        stream.feeds[asked.channel] = feed
        self._feeds.setdefault(replica, []).append(feed)
        feed.told = replica.high_watermark
        answer = Attached(asked.channel, start, feed.told, Offset(replica.log.start))
        self._outbox.say(stream.address, answer)
        self._unacked[feed] = now
        stream.behind[feed] = None
        self._catch_up(now, stream)

    def detached(self, stream: Outgoing, channel: int) -> None:
        stream.parked.pop(channel, None)
        feed = stream.feeds.get(channel)
        if feed is not None:
            self._drop(feed)

    def _drop(self, feed: Feed) -> None:
        stream = feed.outgoing
        del stream.feeds[feed.channel]
        stream.behind.pop(feed, None)
        stream.held.pop(feed, None)
        stream.unacked -= sum(size for _, size in feed.unacked)
        self._unacked.pop(feed, None)
        self._untold.pop(feed, None)
        feeds = self._feeds[feed.replica]
        feeds.remove(feed)
        if not feeds:
            del self._feeds[feed.replica]

    def feeds(self, replica: Replica) -> Iterable[Feed]:
        return self._feeds.get(replica, ())

    def role_changed(self, replica: Replica) -> None:
        """Feeds of another leader epoch than the replica leads in are no more."""
        epoch = None if replica.leader is None else replica.leader.epoch
        for feed in list(self.feeds(replica)):
            if feed.epoch != epoch:
                self._drop(feed)

    def image_changed(self, now: Instant) -> None:
        """Who was given up is sent nothing more; what was parked may be answered now."""
        self._throttle.image = self.image
        for stream in list(self._streams.values()):
            if self._is_given_up(stream):
                self.end(stream)
                continue
            parked, stream.parked = stream.parked, {}
            for asked in parked.values():
                self.attach(now, stream, asked)

    def _is_given_up(self, stream: Outgoing) -> bool:
        """Whether the cluster counted on the life that opened it, and does no more.

        A stream may be here before the record that lets its follower in.
        """
        broker = self.image.brokers.get(stream.peer)
        counts = broker is not None and not broker.fenced and broker.epoch == stream.broker_epoch
        if counts:
            stream.counted_on = True
        return stream.counted_on and not counts

    # -- what is sent

    def appended(self, now: Instant, replica: Replica, batch: Payload) -> None:
        """The leader's log has one batch more."""
        feeds = self._feeds.get(replica)
        if feeds is None:
            return
        assert replica.leader is not None
        end, size = replica.leader.end, len(batch)
        ring = self._ring
        position = None if ring is None else self._put(now, ring, feeds, batch)
        for feed in feeds:
            stream = feed.outgoing
            if not feed.live or (replica.throttled and self._is_held(now, feed, size)):
                continue
            if ring is not None and position is not None and stream.joined == ring.number:
                self._lend(now, ring, feed, position, size, end)
            else:
                self._send_beside_the_ring(now, feed, batch, end)

    def _put(
        self, now: Instant, ring: RingWriter, feeds: Iterable[Feed], batch: Payload
    ) -> int | None:
        """Into the ring, where there is somebody to read it and room for it."""
        if not ring.fits(len(batch)):
            return None
        for feed in feeds:
            if feed.live and feed.outgoing.joined == ring.number:
                break
        else:
            return None
        position = ring.put(batch)
        if position is None:
            self._make_room(now, ring)
        return position

    def _send_beside_the_ring(self, now: Instant, feed: Feed, batch: Payload, end: Offset) -> None:
        """As far as credit goes; else the feed catches up later."""
        stream = feed.outgoing
        if stream.unacked < CREDIT_BYTES:
            # A copy: the connection's buffer is used again at once.
            self._send_bytes(now, feed, bytes(batch), end)
        else:
            feed.live = False
            stream.behind[feed] = None

    def _lend(
        self, now: Instant, ring: RingWriter, feed: Feed, position: int, size: int, end: Offset
    ) -> None:
        """Tell the follower where in the ring the next of its log lies."""
        stream, replica = feed.outgoing, feed.replica
        told = feed.told = replica.high_watermark
        start = Offset(replica.log.start)
        place = Batch(feed.channel, feed.sent, ring.number, position, size, told, start)
        self._outbox.say(stream.address, place)
        ring.lend(stream.peer, position, size)
        self._sent(now, feed, end)

    def _send_bytes(self, now: Instant, feed: Feed, payload: Payload, end: Offset) -> None:
        stream, replica = feed.outgoing, feed.replica
        feed.told = replica.high_watermark
        entry = Bytes(feed.channel, feed.sent, feed.told, Offset(replica.log.start))
        self._outbox.say(stream.address, entry, payload)
        self._use_credit(feed, end, len(payload))
        self._sent(now, feed, end)

    def _use_credit(self, feed: Feed, end: Offset, size: int) -> None:
        feed.unacked.append((end, size))
        feed.outgoing.unacked += size

    def _sent(self, now: Instant, feed: Feed, end: Offset) -> None:
        feed.sent, feed.told_at = end, now
        if feed not in self._unacked:
            self._unacked[feed] = now

    def _catch_up(self, now: Instant, stream: Outgoing) -> None:
        """Send from the log what the credit allows, each feed in turn."""
        while stream.behind:
            feed = next(iter(stream.behind))
            del stream.behind[feed]
            try:
                done = self._read_on(now, feed)
            except Rejected as refused:
                self._give_up(feed, refused.code)
                continue
            except (OSError, CorruptError) as failure:
                self._on_storage_failure(feed.replica, failure)
                self._give_up(feed, ErrorCode.KAFKA_STORAGE_ERROR)
                continue
            if done:
                feed.live = True
            elif not are_open(now, self._allowances(now, feed)):
                stream.held[feed] = None  # the others may go on
            else:
                stream.behind[feed] = None
                return

    def _give_up(self, feed: Feed, code: ErrorCode) -> None:
        """The follower may attach it again."""
        self._outbox.say(feed.outgoing.address, Refused(feed.channel, code))
        self._drop(feed)

    def _read_on(self, now: Instant, feed: Feed) -> bool:
        """Whether the feed was sent all there is; Rejected where what comes next is deleted."""
        log, stream = feed.replica.log, feed.outgoing
        if feed.sent < log.start and feed.sent != first_batch(log):
            raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE)
        burst = False
        allowances = self._allowances(now, feed)
        chunk = most_at_one_time(allowances, CHUNK_BYTES)
        while feed.sent < log.end:
            burst = burst or self._may_burst(feed)
            has_credit = burst or stream.unacked < self._credit(stream)
            if not has_credit or not are_open(now, allowances):
                return False
            found = log.read(max(feed.sent, log.start), chunk, log.end, min_one=True)
            if found is None:
                break  # compaction left nothing there; the next batch begins behind it
            payload, end = whole_batches(found)
            if not self._send_chunk(now, feed, payload, end, burst=burst):
                return False
            take_from(now, allowances, len(payload))
        return True

    def _allowances(self, now: Instant, feed: Feed) -> Sequence[Allowance]:
        """All that holds this feed to a rate; nothing does once its follower is in sync."""
        replica, peer = feed.replica, feed.outgoing.peer
        throttled, leader = replica.throttled, replica.leader
        if throttled is None or leader is None or peer in leader.in_sync:
            return ()
        return self._throttle.of(now, throttled, replica.partition, peer)

    def _is_held(self, now: Instant, feed: Feed, size: int) -> bool:
        """Whether a live batch must wait, for its follower was not in sync in time; else it is
        counted."""
        allowances = self._allowances(now, feed)
        if are_open(now, allowances):
            take_from(now, allowances, size)
            return False
        feed.live = False
        feed.outgoing.held[feed] = None
        return True

    def _may_burst(self, feed: Feed) -> bool:
        """Whether credit is used up, and the rest is so little that it goes out all the same."""
        stream = feed.outgoing
        credit = self._credit(stream)
        if stream.unacked < credit:
            return False
        rest = size_from(feed.replica.log, feed.sent)
        return stream.unacked + rest <= credit + self._burst_bytes()

    def _send_chunk(
        self, now: Instant, feed: Feed, payload: memoryview, end: Offset, *, burst: bool
    ) -> bool:
        """False where it must wait for credit."""
        stream = feed.outgoing
        before = stream.unacked
        if not self._send_by_ring(now, feed, payload, end):
            if before >= CREDIT_BYTES and not burst:
                return False
            self._send_bytes(now, feed, payload, end)
        if before // ACKED_TOGETHER_BYTES != stream.unacked // ACKED_TOGETHER_BYTES:
            self._outbox.end_message(stream.address)
        return True

    def _send_by_ring(self, now: Instant, feed: Feed, payload: memoryview, end: Offset) -> bool:
        """What the log holds, by the ring where there is room: through the pipe it is copied four
        times more, and a follower that is behind would stay behind while producers are quick."""
        ring, size = self._ring, len(payload)
        if ring is None or feed.outgoing.joined != ring.number or not ring.fits(size):
            return False
        position = ring.put(payload)
        if position is None:
            return False
        self._use_credit(feed, end, size)
        self._lend(now, ring, feed, position, size, end)
        return True

    def _credit(self, stream: Outgoing) -> int:
        ring = self._ring
        if ring is None or stream.joined != ring.number:
            return CREDIT_BYTES
        return max(CREDIT_BYTES, ring.size // CATCH_UP_SHARE)

    def _burst_bytes(self) -> int:
        return BURST_BYTES_WITHOUT_RING if self._ring is None else self._ring.size // BURST_SHARE

    def advanced(self, now: Instant, replica: Replica) -> None:
        """The high watermark rose: if nothing carries it soon, it goes by itself."""
        for feed in self.feeds(replica):
            self._untold[feed] = None
        if self._untold and self.due is None:
            self.due = Instant(now + ms(TELL_WITHIN_MS))

    def begins_later(self, now: Instant, replica: Replica) -> None:
        """The log's start rose, and somebody waits until the followers' have risen too."""
        for feed in self.feeds(replica):
            self._unacked[feed] = now
            self._say_state(now, feed, ack_wanted=True)

    # -- what comes back

    def acked(self, now: Instant, stream: Outgoing, ack: Ack) -> None:
        feed = stream.feeds.get(ack.channel)
        if feed is None or not feed.acked <= ack.end <= feed.sent:
            return
        feed.acked = ack.end
        unacked = feed.unacked
        while unacked and unacked[0][0] <= ack.end:
            stream.unacked -= unacked.popleft()[1]
        if feed.acked == feed.sent:
            self._unacked.pop(feed, None)
        self._on_vouched(now, feed, ack.end, ack.log_start)
        if stream.behind and stream.unacked < self._credit(stream):
            self._catch_up(now, stream)

    def tick(self, now: Instant) -> None:
        """Repeat what was not acknowledged, and tell what was not carried."""
        for feed, asked in list(self._unacked.items()):
            if now - asked >= ms(REPEAT_MS):
                self._unacked[feed] = now
                self._say_state(now, feed, ack_wanted=True)
        self.tell(now)
        self._leave_ring_to_its_holder(now)
        for stream in list(self._streams.values()):
            stream.behind.update(stream.held)
            stream.held.clear()
            if stream.behind and stream.unacked < self._credit(stream):
                self._catch_up(now, stream)  # what had used the credit is gone, not acknowledged

    def tell(self, now: Instant) -> None:
        """High watermarks that nothing carried since they rose."""
        if self.due is None or now < self.due:
            return
        self.due = None
        untold, self._untold = self._untold, {}
        for feed in untold:
            if feed.told >= feed.replica.high_watermark:
                continue
            due = Instant(feed.told_at + ms(TELL_WITHIN_MS))
            if due <= now:
                self._say_state(now, feed, ack_wanted=False)
                self._unacked.setdefault(feed, now)  # once more, if nothing is heard by then
                continue
            self._untold[feed] = None  # batches flow: the next one will carry it
            self.due = due if self.due is None else min(self.due, due)

    def _say_state(self, now: Instant, feed: Feed, *, ack_wanted: bool) -> None:
        replica = feed.replica
        feed.told, feed.told_at = replica.high_watermark, now
        start = Offset(replica.log.start)
        state = State(feed.channel, feed.sent, feed.told, start, ack_wanted)
        self._outbox.say(feed.outgoing.address, state)


def epoch_end(log: Log, epoch: Epoch) -> tuple[Epoch, Offset]:
    """Our largest epoch not above this one, and where it ends."""
    if epoch == NO_EPOCH:
        return NO_EPOCH, Offset(log.end)
    found, end = log.epochs.end_of(epoch, log.end)
    if found == NO_EPOCH:  # the epoch we lead in has written nothing: it stands at the end
        return log.epochs.latest, Offset(log.end)
    return found, end
