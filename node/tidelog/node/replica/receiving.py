"""The follower's end of the streams: attaches, cuts, appends, vouches. No I/O but by the log."""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_OFFSET, BrokerId, Incarnation, Offset, Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.events import Kind, Value
from tidelog.node.log.log import Log
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.follower import Follower, cut_to
from tidelog.node.replica.outbox import Address, Outbox
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.rings import Rings
from tidelog.node.replica.waiting import Waiting
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.replication import (
    Ack,
    Alive,
    Attach,
    Attached,
    Batch,
    Bytes,
    Close,
    Closed,
    Detach,
    Entry,
    EpochEnd,
    Join,
    LeaveRing,
    LeftRing,
    Message,
    Open,
    Opened,
    Payload,
    Refused,
    State,
)

if TYPE_CHECKING:
    from tidelog.node.ipc.ring import RingReader

ALIVE_MS: Final = 500
ANSWER_WITHIN_MS: Final = 1_000
AGAIN_MS: Final = 500
"""After a refusal, or when the own disk or the bytes were bad."""

Note = Callable[[Kind, Replica, tuple[Value, ...]], None]
"""Told of what people want to know: a kind, of which replica, and its fields."""


class _Stand(Enum):
    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()


class Incoming:
    """The stream from one leader broker. Invariant: `channels` is the inverse of `wanted`, less
    those without a channel."""

    __slots__ = (
        "acks",
        "address",
        "asked",
        "attached",
        "channels",
        "last_alive",
        "last_channel",
        "later",
        "ring",
        "since",
        "stand",
        "wanted",
    )

    def __init__(self, peer: BrokerId) -> None:
        self.address = Address(peer, Incarnation(0), 0)
        self.stand = _Stand.CLOSED
        self.since = Instant(0)
        self.last_alive = Instant(0)
        self.wanted: dict[Replica, int] = {}
        """What is followed here, and on which channel; 0 while it waits for one."""
        self.channels: dict[int, Replica] = {}
        self.asked: dict[int, Instant] = {}
        """Channels whose ATTACH was not answered yet."""
        self.later: dict[Replica, Instant] = {}
        """To be attached again, and when."""
        self.acks: dict[int, None] = {}
        """Channels that owe an ack at the end of this turn."""
        self.attached: dict[int, None] = {}
        """Channels that were attached in this turn."""
        self.last_channel = 0
        self.ring: RingReader | None = None

    @property
    def is_begun(self) -> bool:
        return self.stand is not _Stand.CLOSED


class Receiving:
    """All streams of which this broker is the follower's end."""

    def __init__(
        self,
        outbox: Outbox,
        rings: Rings,
        waiting: Waiting,
        wall_ms: Callable[[Instant], int],
        note: Note,
        on_storage_failure: Callable[[Replica, Exception], None],
    ) -> None:
        self.image = MetadataImage()
        self._outbox = outbox
        self._rings = rings
        self._waiting = waiting
        self._wall_ms = wall_ms
        self._note = note
        self._on_storage_failure = on_storage_failure
        self._streams: dict[BrokerId, Incoming] = {}
        self._epoch: Offset | None = None
        """This broker's, while the cluster counts on it."""
        self._streams_made = 0

    # -- what is followed

    def follow(self, now: Instant, replica: Replica) -> None:
        """The replica has a leader now, or another one, or another epoch of it."""
        follower = _follower(replica)
        for other in self._streams.values():
            if replica in other.wanted and other.address.peer != follower.leader:
                self._forget(other, replica)
        stream = self._streams.get(follower.leader)
        if stream is None:
            stream = self._streams[follower.leader] = Incoming(follower.leader)
        stream.wanted.setdefault(replica, 0)
        if stream.stand is _Stand.OPEN:
            self._attach(now, stream, replica)
        elif stream.stand is _Stand.CLOSED:
            self._open(now, stream)

    def rest(self, replica: Replica) -> None:
        """Follow it no more."""
        for stream in self._streams.values():
            if replica in stream.wanted:
                self._forget(stream, replica)

    def _forget(self, stream: Incoming, replica: Replica) -> None:
        self._detach(stream, replica, said=True)
        del stream.wanted[replica]

    def _detach(self, stream: Incoming, replica: Replica, *, said: bool) -> None:
        stream.later.pop(replica, None)
        channel = stream.wanted[replica]
        if channel:
            stream.wanted[replica] = 0
            del stream.channels[channel]
            stream.asked.pop(channel, None)
            stream.acks.pop(channel, None)
            if said:
                self._outbox.say(stream.address, Detach(channel))
        if replica.follower is not None:
            replica.follower.attached = False

    # -- streams

    def registered(self, now: Instant, epoch: Offset) -> None:
        """A new life in the cluster: every stream begins anew."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        for stream in self._streams.values():
            self._open(now, stream)

    def fenced(self) -> None:
        self._epoch = None
        for stream in self._streams.values():
            self._shut(stream)

    def close(self) -> None:
        for stream in self._streams.values():
            self._shut(stream)
        self._streams.clear()

    def image_changed(self, now: Instant) -> None:
        """A leader's broker may have a new life, or one at last."""
        for stream in self._streams.values():
            known = self._incarnation(stream.address.peer)
            if stream.stand is _Stand.CLOSED or known != stream.address.incarnation:
                self._open(now, stream)

    def _incarnation(self, broker: BrokerId) -> Incarnation | None:
        view = self.image.brokers.get(broker)
        return None if view is None else view.incarnation

    def _open(self, now: Instant, stream: Incoming) -> None:
        self._shut(stream)
        incarnation = self._incarnation(stream.address.peer)
        stream.since = now
        if self._epoch is None or incarnation is None or not stream.wanted:
            return
        self._streams_made += 1
        stream.address = Address(stream.address.peer, incarnation, self._streams_made)
        stream.stand = _Stand.OPENING
        self._outbox.say(stream.address, Open(self._epoch))

    def _shut(self, stream: Incoming) -> None:
        self._outbox.forget(stream.address)
        stream.stand = _Stand.CLOSED
        for replica in stream.channels.values():
            stream.wanted[replica] = 0
            if replica.follower is not None:
                replica.follower.attached = False
        stream.channels.clear()
        stream.asked.clear()
        stream.later.clear()
        stream.acks.clear()
        stream.attached.clear()
        self._leave_ring(stream)

    def _leave_ring(self, stream: Incoming) -> None:
        if stream.ring is not None:
            self._rings.close(stream.ring)
            stream.ring = None

    def failed(self, now: Instant, peer: BrokerId) -> None:
        """What was said to it is lost."""
        stream = self._streams.get(peer)
        if stream is not None and stream.stand is not _Stand.CLOSED:
            self._shut(stream)
            stream.since = now

    def tick(self, now: Instant) -> None:
        for peer, stream in list(self._streams.items()):
            if not stream.wanted:
                if stream.stand is not _Stand.CLOSED:
                    self._outbox.say(stream.address, Close())
                    self._leave_ring(stream)
                del self._streams[peer]
            elif stream.stand is _Stand.OPEN:
                self._keep(now, stream)
            elif now - stream.since >= ms(
                ANSWER_WITHIN_MS if stream.stand is _Stand.OPENING else AGAIN_MS
            ):
                self._open(now, stream)

    def _keep(self, now: Instant, stream: Incoming) -> None:
        for channel, since in list(stream.asked.items()):
            if now - since < ms(ANSWER_WITHIN_MS):
                break  # they stand in the order in which they were asked
            replica = stream.channels[channel]
            self._detach(stream, replica, said=True)
            self._attach(now, stream, replica)
        for replica, when in list(stream.later.items()):
            if when <= now:
                self._attach(now, stream, replica)
        if now - stream.last_alive >= ms(ALIVE_MS):
            stream.last_alive = now
            self._outbox.say(stream.address, Alive())

    # -- attaching

    def _attach(self, now: Instant, stream: Incoming, replica: Replica) -> None:
        self._detach(stream, replica, said=False)
        follower, log = _follower(replica), replica.log
        stream.last_channel += 1
        channel = stream.wanted[replica] = stream.last_channel
        stream.channels[channel] = replica
        stream.asked[channel] = now
        try:
            last_epoch = log.epochs.latest
        except (CorruptError, OSError) as failure:
            self._trouble(now, stream, replica, failure)
            return
        asked = Attach(
            channel,
            replica.topic_id,
            Partition(replica.partition),
            follower.epoch,
            last_epoch,
            Offset(log.end),
            Offset(log.start),
        )
        self._outbox.say(stream.address, asked)

    def _attach_later(self, now: Instant, stream: Incoming, replica: Replica) -> None:
        self._detach(stream, replica, said=True)
        stream.later[replica] = Instant(now + ms(AGAIN_MS))

    def _trouble(
        self, now: Instant, stream: Incoming, replica: Replica, failure: Exception
    ) -> None:
        self._on_storage_failure(replica, failure)
        self._attach_later(now, stream, replica)

    # -- what comes

    def received(self, now: Instant, address: Address, entries: list[Entry]) -> None:
        """From the leader's end of a stream; what is of an old one is dropped."""
        stream = self._streams.get(address.peer)
        if stream is None or stream.address != address or not stream.is_begun:
            return
        for message, payload in entries:
            if type(message) is Batch:  # as nearly all of them are
                self._batch(now, stream, message)
                continue
            self._take(now, stream, message, payload)
            if stream.address != address or not stream.is_begun:
                return
        if stream.attached:
            self._keep_starts(now, stream)
        for channel in stream.acks:
            self._ack(stream, channel, stream.channels[channel])
        stream.acks.clear()

    def _keep_starts(self, now: Instant, stream: Incoming) -> None:
        """Before a follower acknowledges anything to a leader, the start that it took from this
        leader is durable. Otherwise a kill or a power loss could bring back records that this
        leader lacks. This broker would then lead with them, and the others would never get them.
        """
        for channel in stream.attached:
            replica = stream.channels.get(channel)
            if replica is not None:
                try:
                    replica.log.keep_start()
                except OSError as failure:
                    self._trouble(now, stream, replica, failure)
        stream.attached.clear()

    def flushed(self, replica: Replica) -> None:
        """What is flushed of it is vouched for."""
        for stream in self._streams.values():
            channel = stream.wanted.get(replica)
            if channel and _follower(replica).attached:
                self._ack(stream, channel, replica)

    def _ack(self, stream: Incoming, channel: int, replica: Replica) -> None:
        vouched = replica.vouched
        if vouched != NO_OFFSET:
            self._outbox.say(stream.address, Ack(channel, vouched, Offset(replica.log.start)))

    def _take(
        self, now: Instant, stream: Incoming, message: Message, payload: Payload | None
    ) -> None:
        match message:
            case Opened():
                self._opened(now, stream, message)
            case LeaveRing():
                if stream.ring is not None and stream.ring.number == message.ring:
                    self._leave_ring(stream)
                self._outbox.say(stream.address, LeftRing(message.ring))
            case Closed():
                self._open(now, stream)
            case Bytes() | State() | Attached() | EpochEnd() | Refused():
                replica = stream.channels.get(message.channel)
                if replica is not None:
                    self._of_channel(now, stream, replica, message, payload)
            case _:
                raise WireError(f"{message} comes from no leader")

    def _opened(self, now: Instant, stream: Incoming, message: Opened) -> None:
        opening = stream.stand is _Stand.OPENING
        stream.stand = _Stand.OPEN
        if message.ring and (stream.ring is None or stream.ring.number != message.ring):
            self._leave_ring(stream)
            peer, incarnation, _ = stream.address
            stream.ring = self._rings.open(peer, incarnation, message.ring)
        if stream.ring is not None:
            self._outbox.say(stream.address, Join(message.ring))
        if opening:
            stream.last_alive = now
            for replica in stream.wanted:
                self._attach(now, stream, replica)

    def _of_channel(
        self,
        now: Instant,
        stream: Incoming,
        replica: Replica,
        message: Bytes | State | Attached | EpochEnd | Refused,
        payload: Payload | None,
    ) -> None:
        stream.asked.pop(message.channel, None)
        try:
            match message:
                case Bytes():
                    assert payload is not None
                    self._data(now, stream, replica, message, memoryview(payload))
                case State():
                    self._state(now, stream, replica, message)
                case Attached():
                    self._attached(now, stream, replica, message)
                case EpochEnd():
                    self._epoch_end(now, stream, replica, message)
                case Refused():
                    self._attach_later(now, stream, replica)
        except (OSError, CorruptError, WireError, Rejected) as failure:
            self._trouble(now, stream, replica, failure)

    def _epoch_end(
        self, now: Instant, stream: Incoming, replica: Replica, message: EpochEnd
    ) -> None:
        log, before, last_epoch = replica.log, replica.log.end, replica.log.epochs.latest
        end = cut_to(log, message.epoch, message.end)
        self._cut(replica, _follower(replica), end)
        if (log.end, log.epochs.latest) == (before, last_epoch):
            reason = f"nothing to cut at {end}, yet the leader's epoch {message.epoch} is not ours"
            raise WireError(reason)
        self._attach(now, stream, replica)

    def _cut(self, replica: Replica, follower: Follower, end: Offset) -> None:
        """What is cut is cut, and told, also where the disk then fails."""
        log, before, last_epoch = replica.log, replica.log.end, replica.log.epochs.latest
        start, safe = log.start, follower.high_watermark
        try:
            follower.cut(log, end)
        finally:
            if log.end != before:
                replica.above.clear()
                cost = max(0, safe - max(start, log.end))  # before its start nothing was here
                cut = (before, log.end, last_epoch, follower.epoch, cost)
                self._note(Kind.TRUNCATED, replica, cut)

    def _attached(
        self, now: Instant, stream: Incoming, replica: Replica, message: Attached
    ) -> None:
        follower, log = _follower(replica), replica.log
        if message.log_start >= log.start:
            log.accept_start()
        elif _lacks_its_head(log) and not self._is_trusted(replica):
            self._start_anew(replica, Offset(0))  # the leader has what is missing here
            self._attach(now, stream, replica)
            return
        if message.log_start > log.end:
            self._start_anew(replica, message.start)
        if message.start != log.end:
            self._attach_later(now, stream, replica)
            return
        follower.attached = True
        replica.vouched_in = follower.epoch
        before = follower.high_watermark
        self._learn(now, replica, message.high_watermark, message.log_start)
        if follower.high_watermark != before:
            moved = (before, follower.high_watermark, follower.epoch)
            self._note(Kind.HIGH_WATERMARK, replica, moved)
        stream.acks[message.channel] = stream.attached[message.channel] = None

    def _is_trusted(self, replica: Replica) -> bool:
        """Whether the cluster counts on what this replica holds: then it gives up nothing."""
        view = self.image.partition(replica.topic_id, Partition(replica.partition))
        return view is None or view.trusts(self._outbox.me)

    def _start_anew(self, replica: Replica, start: Offset) -> None:
        """It is told if it was done, also where the disk then fails."""
        log, before = replica.log, replica.log.end
        try:
            _follower(replica).start_anew(log, start)
        finally:
            if log.start == log.end == start:
                replica.above.clear()
                self._note(Kind.STARTED_ANEW, replica, (before, start))

    def _state(self, now: Instant, stream: Incoming, replica: Replica, message: State) -> None:
        if not _follower(replica).attached or message.sent != replica.log.end:
            self._attach(now, stream, replica)  # something of what was sent is lost
            return
        self._learn(now, replica, message.high_watermark, message.log_start)
        if message.ack_wanted:
            stream.acks[message.channel] = None

    def _batch(self, now: Instant, stream: Incoming, message: Batch) -> None:
        ring, replica = stream.ring, stream.channels.get(message.channel)
        if ring is None or ring.number != message.ring:
            if replica is not None:
                self._attach(now, stream, replica)
            return
        if replica is not None:
            try:
                with ring.batch(message.position, message.size) as view:
                    self._data(now, stream, replica, message, view)
            except (OSError, CorruptError, WireError, Rejected) as failure:
                self._trouble(now, stream, replica, failure)
        ring.passed(message.position + message.size)

    def _data(
        self,
        now: Instant,
        stream: Incoming,
        replica: Replica,
        message: Batch | Bytes,
        view: memoryview,
    ) -> None:
        follower, log = _follower(replica), replica.log
        if not follower.attached or message.after != log.end:
            self._attach(now, stream, replica)
            return
        try:
            log.append_as_follower(now, self._wall_ms(now), view, follower.high_watermark)
        except CorruptError as bad:
            raise WireError(str(bad)) from bad  # what came is bad, not what is here
        replica.grew(len(view))
        self._learn(now, replica, message.high_watermark, message.log_start)
        if not replica.by_flush:  # else its flush tells
            stream.acks[message.channel] = None

    def _learn(
        self, now: Instant, replica: Replica, high_watermark: Offset, log_start: Offset
    ) -> None:
        follower, log = _follower(replica), replica.log
        if follower.learn(log, high_watermark):
            size = replica.passed(follower.high_watermark)
            self._waiting.advanced(now, replica.key, size)
        if log_start > log.start:
            log.advance_start(min(log_start, log.end))


def _lacks_its_head(log: Log) -> bool:
    """Whether records are missing at its front that another replica may have: its disk lost them,
    or it began where an earlier leader did and was cut down to nothing since."""
    return log.missing_from is not None or log.start == log.end


def _follower(replica: Replica) -> Follower:
    assert replica.follower is not None, replica.key
    return replica.follower
