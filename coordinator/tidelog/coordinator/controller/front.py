"""The coordinator without its sockets and files: brokers' messages in, appends and answers out.

It stands between what brokers send and the controller: it knows which connection is whose, drops
what is meant for others or past its deadline, and lets committed records flow to every broker.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from msgspec import Struct

from tidelog.coordinator.controller.feed import Feed, Peer, Send, Session
from tidelog.coordinator.controller.forwarding import Forwarded
from tidelog.coordinator.controller.quorum import describe_quorum
from tidelog.coordinator.controller.recovery import Window
from tidelog.coordinator.controller.requests import (
    Activate,
    AskedAgain,
    BrokerApplied,
    BrokerLeaving,
    BrokerLost,
    BrokerRegistration,
    BrokerStarted,
    ControllerReply,
    ControllerRequest,
    IsrOutcomes,
    ProducerIdBlock,
    RegisterBroker,
    RegisterTransactions,
    TellDamage,
    TellLogEnds,
    TellNoRoom,
)
from tidelog.coordinator.controller.requests import AllocateProducerIds as Allocate
from tidelog.coordinator.controller.requests import AlterIsr as Alter
from tidelog.coordinator.controller.settled import Caller, Settled, Settlements
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.controller.story import Windows, happenings
from tidelog.kernel.ids import (
    NO_OFFSET,
    TRANSACTIONS_ID,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    RequestId,
    Uuid,
)
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import FORWARDED_CALLS_MAX, METADATA_SNAPSHOT_RECORDS
from tidelog.node.ipc.events import Happening
from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.node.runtime.shard_host import (
    AppendFailed,
    AppendRecords,
    LogAppended,
    LogCommitted,
    Refusal,
    Reply,
    Requested,
    Resign,
    ShardHost,
    Tick,
)
from tidelog.node.runtime.shard_host import RequestFailed as HostRequestFailed
from tidelog.wire.control import (
    AllocateProducerIds,
    AlterIsr,
    Answered,
    Applied,
    Failed,
    Forward,
    HandOver,
    IsrAltered,
    Leave,
    Left,
    LogEnds,
    LogsDamaged,
    Observe,
    ProducerIds,
    Refused,
    Register,
    RegisterAgain,
    Registered,
    ToBroker,
    decode_to_coordinator,
)
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, WireError, fault_text
from tidelog.wire.messages.k55_describe_quorum import DescribeQuorumRequest
from tidelog.wire.metadata_records import (
    BrokerFenced,
    MetadataRecord,
    PartitionChanged,
    TopicDeleted,
)

_OfLogs = LogEnds | LogsDamaged | HandOver


class Received(Struct, frozen=True):
    """A peer's message, as bytes."""

    peer: Peer
    frame: bytes


class PeerLost(Struct, frozen=True):
    """The socket has nobody by this name any more."""

    peer: Peer


class Heard(Struct, frozen=True):
    """The supervisor told of a broker."""

    request: BrokerStarted | BrokerLost


class Append(Struct, frozen=True):
    """Write one batch, all or nothing; its first record is at offset `base`."""

    ticket: int
    base: Offset
    records: tuple[MetadataRecord, ...]
    settled: Settled | None = None
    """Whose call this is, and what it is answered: to be written with the batch."""


class SendTo(Struct, frozen=True):
    peer: Peer
    message: ToBroker


class Fence(Struct, frozen=True):
    """Put up this broker's fence word, now: what follows tells others that it is out."""

    broker: BrokerId
    epoch: Offset


class Happened(Struct, frozen=True):
    """For those who want to know what became of a partition."""

    what: tuple[Happening, ...]


class Active(Struct, frozen=True):
    """The controller has taken over and its word is on disk: brokers may come."""

    epoch: Epoch


class SaveSnapshot(Struct, frozen=True):
    """Write the whole image as of `offset` beside the log."""

    offset: Offset
    epoch: Epoch
    records: tuple[MetadataRecord, ...]


class LossyElection(Struct, frozen=True):
    """A partition has a leader that may lack acknowledged records: nobody may overlook that."""

    topic: str
    partition: int
    leader: BrokerId
    leader_epoch: Epoch
    lost: Window


class TopicGone(Struct, frozen=True):
    """A topic was deleted; its name is free, though not every replica may be gone."""

    topic: str
    id: Uuid
    partitions: int
    later: tuple[BrokerId, ...]
    """Those that are down, and delete what they have when they come back."""


class Ignored(Struct, frozen=True):
    """A message nobody answers; worth a line in the log."""

    peer: Peer
    reason: str


class RequestFailed(Struct, frozen=True):
    """A request brought out a fault of ours; it is refused, or answered with an error."""

    reason: str


class GiveUp(Struct, frozen=True):
    """The log cannot be trusted in this life; end the process, the next one loads it anew."""

    reason: str


Event = Received | PeerLost | Heard | LogAppended | LogCommitted | AppendFailed | Tick
Effect = (
    Append
    | SendTo
    | Fence
    | Happened
    | Active
    | SaveSnapshot
    | LossyElection
    | TopicGone
    | Ignored
    | RequestFailed
    | GiveUp
)
Answer = Callable[[ControllerReply | Refusal], Sequence[Effect]]
Settle = Callable[[ControllerReply | Refusal], Settled]


class Front:
    """A machine over the controller's host and the feed.

    Invariant: the feed's image is what is committed, the shard's what is decided; between the two
    lie the batches of `_uncommitted`, in order.
    """

    def __init__(
        self,
        shard: ControllerShard,
        feed: Feed,
        incarnation: Incarnation,
        *,
        snapshot_offset: Offset = NO_OFFSET,
        settlements: Settlements | None = None,
    ) -> None:
        assert shard.image.offset == feed.image.offset, (shard.image.offset, feed.image.offset)
        self.feed = feed
        self._shard = shard
        self._host: ShardHost[ControllerRequest, MetadataRecord, ControllerReply] = ShardHost(
            shard, resigned=ErrorCode.REQUEST_TIMED_OUT
        )
        self._incarnation = incarnation
        self._asked = 0
        self._answers: dict[RequestId, Answer] = {}
        self._next = Offset(feed.image.offset + 1)
        self._uncommitted: deque[tuple[Offset, tuple[MetadataRecord, ...]]] = deque()
        self._snapshot_offset = snapshot_offset
        self._settlements = settlements or Settlements(self._next)
        self._faults: list[RequestFailed] = []
        """Brought out by this step's requests, for the log."""
        self.wall_offset_ns = 0
        """What the wall clock is ahead of the monotonic one; the shell keeps it current."""

    def start(self, now: Instant, *, cluster_id: str, run_id: str) -> list[Effect]:
        """Take over. Call once, before any event."""

        def activated(reply: ControllerReply | Refusal) -> list[Effect]:
            if isinstance(reply, Refusal):
                return [GiveUp(reply.detail)]
            # The last coordinator may have died between a fence's record and its word.
            brokers = self.feed.image.brokers.values()
            fences = [Fence(view.id, view.epoch) for view in brokers if view.fenced]
            return [*fences, Active(self.feed.image.controller_epoch)]

        return self._ask(now, Activate(cluster_id, self._incarnation, run_id), activated)

    def step(self, now: Instant, event: Event) -> list[Effect]:
        effects = self._step(now, event)
        if self._faults:
            effects += self._faults
            self._faults = []
        return effects

    def _step(self, now: Instant, event: Event) -> list[Effect]:
        match event:
            case Received(peer, frame):
                return self._received(now, peer, frame)
            case LogCommitted(end):
                self.feed.have_until(now)
                return [*self._commit(end), *self._host_step(now, event), *self._snapshot()]
            case LogAppended() | AppendFailed() | Tick():
                return self._host_step(now, event)
            case Heard(request):
                return self._heard(now, request)
            case PeerLost(peer):
                self.feed.close(peer)
                return []
            case _:
                assert_never(event)

    def deadline(self) -> Instant | None:
        return self._host.deadline()

    @property
    def decided(self) -> MetadataImage:
        """What the controller has decided, as far as it is appended."""
        return self._shard.image

    @property
    def epoch(self) -> Epoch:
        """The controller epoch that batches are written in."""
        return self._shard.image.controller_epoch

    def _received(self, now: Instant, peer: Peer, frame: bytes) -> list[Effect]:
        try:
            message = decode_to_coordinator(frame)
        except WireError as error:
            return [Ignored(peer, str(error))]
        if isinstance(message, Register):
            return self._register(now, peer, message)
        if isinstance(message, Observe):
            return self._observe(now, peer, message)
        if message.to != self._incarnation:
            return [Ignored(peer, "it is meant for an earlier coordinator")]
        session = self.feed.sessions.get(peer)
        if session is None:
            # It takes itself for connected, and would wait for ever.
            return [Ignored(peer, "it has no session"), SendTo(peer, RegisterAgain())]
        return self._told(now, session, message)

    def _told(
        self,
        now: Instant,
        session: Session,
        message: Applied | Forward | AllocateProducerIds | AlterIsr | _OfLogs | Leave,
    ) -> list[Effect]:
        match message:
            case Applied():
                return self._applied(now, session, message)
            case Forward():
                return self._forward(now, session, message)
            case AllocateProducerIds():
                return self._allocate(now, session, message)
            case AlterIsr():
                return self._alter_isr(now, session, message)
            case LogEnds() | LogsDamaged() | HandOver():
                return self._of_logs(now, session, message)
            case Leave():
                return self._leave(now, session, message)
            case _:
                assert_never(message)

    def _register(self, now: Instant, peer: Peer, message: Register) -> list[Effect]:
        request = RegisterBroker(
            cluster_id=message.cluster_id,
            broker=message.broker,
            incarnation=message.incarnation,
            host=message.host,
            port=message.port,
            rack=message.rack,
            log_dirs=message.log_dirs,
            stopped=message.stopped,
            applied=message.applied,
            kept=message.kept,
        )
        return self._let_in(now, peer, request, message, message.broker)

    def _observe(self, now: Instant, peer: Peer, message: Observe) -> list[Effect]:
        request = RegisterTransactions(message.cluster_id, message.incarnation)
        return self._let_in(now, peer, request, message, TRANSACTIONS_ID)

    def _let_in(
        self,
        now: Instant,
        peer: Peer,
        request: RegisterBroker | RegisterTransactions,
        message: Register | Observe,
        broker: BrokerId,
    ) -> list[Effect]:
        """Open a session once the controller takes this life."""

        def answer(reply: ControllerReply | Refusal) -> list[Effect]:
            if isinstance(reply, Refusal):
                return [SendTo(peer, Refused(message.session, reply.code, reply.detail))]
            assert isinstance(reply, BrokerRegistration)
            self.feed.close_all(broker)
            session = Session(
                peer=peer,
                session=message.session,
                broker=broker,
                incarnation=message.incarnation,
                applied=message.applied,
                sent=message.applied,
                heard=now,
            )
            registered = Registered(message.session, self._incarnation, reply.epoch)
            return [SendTo(peer, registered), *_sends(self.feed.open(session))]

        return self._ask(now, request, answer)

    def _applied(self, now: Instant, session: Session, message: Applied) -> list[Effect]:
        session.heard = now
        sends = _sends(self.feed.applied(session.peer, message.offset))
        self.feed.have_until(now)
        request = BrokerApplied(session.broker, session.incarnation, message.offset)
        return [*sends, *self._ask(now, request, _nothing)]

    def _forward(self, now: Instant, session: Session, message: Forward) -> list[Effect]:
        if now >= message.deadline:
            return [Ignored(session.peer, "a call past its deadline")]
        if message.sent_at is not None:
            again = self._forward_again(now, session, message, message.sent_at)
            if again is not None:
                return again
        return self._forward_new(now, session, message)

    def _forward_new(self, now: Instant, session: Session, message: Forward) -> list[Effect]:
        """Nobody has decided it yet."""
        if len(self._answers) >= FORWARDED_CALLS_MAX:
            # It is not decided, so its sender may ask again.
            return [_failed(session, message.call, ErrorCode.NOT_CONTROLLER)]
        try:
            forwarded = Forwarded.read(message.frame)
            request = forwarded.request()
        except WireError:
            return [_failed(session, message.call, ErrorCode.INVALID_REQUEST)]
        except REQUEST_FAULTS as fault:
            return self._failed_by(fault, session, message.call)
        if isinstance(request, DescribeQuorumRequest):
            return self._tell_quorum(now, session, message.call, forwarded, request)
        return self._ask_for(now, session, message.call, forwarded, request)

    def _ask_for(
        self,
        now: Instant,
        session: Session,
        call: int,
        forwarded: Forwarded,
        request: ControllerRequest,
    ) -> list[Effect]:
        """Have what a client asks decided."""

        def answer(reply: ControllerReply | Refusal) -> list[Effect]:
            frame = self._frame(forwarded, reply)
            return [SendTo(session.peer, Answered(session.session, call, frame))]

        def settled(reply: ControllerReply | Refusal) -> Settled:
            caller = Caller(session.broker, session.incarnation, call)
            return Settled(caller, self._frame(forwarded, reply))

        return self._ask(now, request, answer, settled)

    def _frame(self, forwarded: Forwarded, reply: ControllerReply | Refusal) -> bytes:
        """The answer. If it cannot be encoded, an error: the client must hear of its request."""
        try:
            return forwarded.answer(reply)
        except REQUEST_FAULTS as fault:
            self._faults.append(RequestFailed(f"an answer failed: {fault_text(fault)}"))
            return forwarded.answer(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _tell_quorum(
        self,
        now: Instant,
        session: Session,
        call: int,
        forwarded: Forwarded,
        request: DescribeQuorumRequest,
    ) -> list[Effect]:
        """Of the metadata log itself; nothing is decided."""
        try:
            said = describe_quorum(
                self.feed, request, now=now, wall_offset_ns=self.wall_offset_ns, end=self._next
            )
            frame = forwarded.answer(said)
        except REQUEST_FAULTS as fault:
            return self._failed_by(fault, session, call)
        return [SendTo(session.peer, Answered(session.session, call, frame))]

    @staticmethod
    def _failed_by(fault: Exception, session: Session, call: int) -> list[Effect]:
        reason = f"a request failed: {fault_text(fault)}"
        return [RequestFailed(reason), _failed(session, call, ErrorCode.UNKNOWN_SERVER_ERROR)]

    def _forward_again(
        self, now: Instant, session: Session, message: Forward, sent_at: Offset
    ) -> list[Effect] | None:
        """What came of a call that an earlier coordinator got, or we in an earlier session; None
        where nobody decided it."""
        known = self._settlements.answer(Caller(session.broker, session.incarnation, message.call))
        if known is None:
            if self._settlements.would_know(sent_at):
                return None
            return [_failed(session, message.call, ErrorCode.REQUEST_TIMED_OUT)]

        def answer(reply: ControllerReply | Refusal) -> list[Effect]:
            if isinstance(reply, Refusal):
                return [_failed(session, message.call, reply.code)]
            assert isinstance(reply, AskedAgain)
            return [SendTo(session.peer, Answered(session.session, message.call, reply.answer))]

        return self._ask(now, AskedAgain(known), answer)

    def _allocate(
        self, now: Instant, session: Session, message: AllocateProducerIds
    ) -> list[Effect]:
        if now >= message.deadline:
            return [Ignored(session.peer, "a call past its deadline")]

        def answer(reply: ControllerReply | Refusal) -> list[Effect]:
            if isinstance(reply, Refusal):
                return [_failed(session, message.call, reply.code)]
            assert isinstance(reply, ProducerIdBlock)
            ids = ProducerIds(session.session, message.call, reply.first, reply.count)
            return [SendTo(session.peer, ids)]

        return self._ask(now, Allocate(session.broker, session.incarnation), answer)

    def _alter_isr(self, now: Instant, session: Session, message: AlterIsr) -> list[Effect]:
        def answer(reply: ControllerReply | Refusal) -> list[Effect]:
            if isinstance(reply, Refusal):
                return [_failed(session, message.call, reply.code)]
            assert isinstance(reply, IsrOutcomes)
            if session.sent < reply.offset:
                # So far behind that the records are held back: it may look when they come.
                return [_failed(session, message.call, ErrorCode.REQUEST_TIMED_OUT)]
            altered = IsrAltered(session.session, message.call, reply.outcomes)
            return [SendTo(session.peer, altered)]

        return self._ask(now, Alter(session.broker, session.incarnation, message.changes), answer)

    def _of_logs(self, now: Instant, session: Session, message: _OfLogs) -> list[Effect]:
        broker, incarnation = session.broker, session.incarnation
        if isinstance(message, LogEnds):
            return self._ask(now, TellLogEnds(broker, incarnation, message.ends), _nothing)
        if isinstance(message, HandOver):
            return self._ask(now, TellNoRoom(broker, incarnation, message.places), _nothing)
        return self._ask(now, TellDamage(broker, incarnation, message.logs), _nothing)

    def _leave(self, now: Instant, session: Session, message: Leave) -> list[Effect]:
        def answer(_: ControllerReply | Refusal) -> list[Effect]:
            return [SendTo(session.peer, Left(session.session, message.call))]

        return self._ask(now, BrokerLeaving(session.broker, session.incarnation), answer)

    def _heard(self, now: Instant, request: ControllerRequest) -> list[Effect]:
        """The supervisor says it once to each coordinator: a death that was passed over would leave
        partitions without a leader."""
        return self._host_step(now, Requested(self._new_call(_nothing), request, is_ours=True))

    def _ask(
        self,
        now: Instant,
        request: ControllerRequest,
        answer: Answer,
        settle: Settle | None = None,
    ) -> list[Effect]:
        """What a client asked is settled with the records that it leads to."""
        return self._host_step(now, Requested(self._new_call(answer), request), settle)

    def _new_call(self, answer: Answer) -> RequestId:
        self._asked += 1
        asked = RequestId(self._asked)
        self._answers[asked] = answer
        return asked

    def _settled(self, asked: RequestId, settle: Settle) -> Settled:
        reply = self._host.held(asked) or self._shard.reply_to_be(asked)
        assert reply is not None, asked
        settled = settle(reply)
        self._settlements.note(self._next, settled)
        return settled

    def _host_step(
        self,
        now: Instant,
        event: Requested[ControllerRequest] | LogAppended | LogCommitted | AppendFailed | Tick,
        settle: Settle | None = None,
    ) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self._host.step(now, event):
            match effect:
                case AppendRecords(ticket, records):
                    settled = None
                    if settle is not None and isinstance(event, Requested):
                        settled = self._settled(event.asked, settle)
                    effects.append(Append(ticket, self._next, records, settled))
                    self._uncommitted.append((self._next, records))
                    self._next = Offset(self._next + len(records))
                case Reply(asked, reply):
                    effects += self._answers.pop(asked)(reply)
                case HostRequestFailed(reason):
                    effects.append(RequestFailed(reason))
                case Resign(why):
                    effects.append(GiveUp(f"the metadata log could not be written: {why}"))
                case _:
                    assert_never(effect)
        return effects

    def _commit(self, end: Offset) -> list[Effect]:
        effects: list[Effect] = []
        while self._uncommitted and self._uncommitted[0][0] < end:
            base, records = self._uncommitted.popleft()
            assert base + len(records) <= end, (base, len(records), end)
            # The word first: by the time others follow a new leader, the old one is silent.
            effects += [Fence(r.broker, r.epoch) for r in records if isinstance(r, BrokerFenced)]
            lost = dict(self._windows(records))
            effects += self._lossy(lost)
            effects += self._gone(records)
            what = tuple(happenings(self.feed.image, records, lost))
            effects += _sends(self.feed.committed(records))
            if what:
                effects.append(Happened(what))  # last: nobody waits for it
        return effects

    def _windows(
        self, records: Sequence[MetadataRecord]
    ) -> Iterator[tuple[PartitionChanged, Window]]:
        """The lossy elections among the records that are about to be told, and what each lost."""
        for record in records:
            if isinstance(record, PartitionChanged) and record.view.lossy_elections:
                before = self.feed.image.partition(record.topic, record.partition)
                if before is not None and record.view.lossy_elections > before.lossy_elections:
                    yield record, self._shard.window_of(before, record)

    def _lossy(self, lost: Windows) -> Iterator[LossyElection]:
        for election, window in lost.items():
            yield LossyElection(
                topic=self.feed.image.topics[election.topic].name,
                partition=election.partition,
                leader=election.view.leader,
                leader_epoch=election.view.leader_epoch,
                lost=window,
            )

    def _gone(self, records: Sequence[MetadataRecord]) -> Iterator[TopicGone]:
        """As with elections: who is told to delete it, and who cannot be told."""
        image = self.feed.image
        for record in records:
            if isinstance(record, TopicDeleted):
                topic = image.topics[record.topic]
                later = {BrokerId(one) for view in topic.partitions for one in image.offline(view)}
                yield TopicGone(topic.name, topic.id, len(topic.partitions), tuple(sorted(later)))

    def _snapshot(self) -> list[Effect]:
        """A new one once replaying the log would cost more than loading it saves."""
        image = self.feed.image
        behind = image.offset - self._snapshot_offset
        if behind < max(METADATA_SNAPSHOT_RECORDS, image.partitions_count):
            return []
        self._snapshot_offset = image.offset
        return [SaveSnapshot(image.offset, image.controller_epoch, tuple(snapshot(image)))]


def _nothing(_: ControllerReply | Refusal) -> list[Effect]:
    return []


def _failed(session: Session, call: int, code: ErrorCode) -> SendTo:
    return SendTo(session.peer, Failed(session.session, call, code))


def _sends(sends: Sequence[Send]) -> list[Effect]:
    return [SendTo(send.peer, send.message) for send in sends]
