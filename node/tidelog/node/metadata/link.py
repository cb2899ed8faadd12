"""A broker's side of its conversation with the coordinator, without the socket; or the transaction
coordinator's, who follows the image as brokers do.

It registers on every connection, keeps the image up to date, and carries calls there and answers
back. A call that was sent when the connection broke may or may not have been decided: it is sent
again, and says so. Where no coordinator comes within a while such a call times out; one that was
never sent is refused then. A client's request that two coordinators in a row have died with may be
what ends them, so it is not sent to a third one. If one of the two ended by a bug of its own, the
client is told not to repeat the request; if both were killed, the request only times out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tidelog.kernel.ids import (
    NO_LEADER,
    TRANSACTIONS_ID,
    BrokerId,
    Incarnation,
    Offset,
    ProducerId,
    Uuid,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    COORDINATOR_DOWN_WAIT_MS,
    COORDINATORS_PER_CALL_MAX,
    FORWARDED_CALLS_MAX,
    FORWARDED_FRAME_BYTES_MAX,
    JOIN_AGAIN_MS,
    REGISTER_AGAIN_MS,
)
from tidelog.node.metadata.difference import difference
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.wire.control import (
    AllocateProducerIds,
    AlterIsr,
    Answered,
    Applied,
    Client,
    DamagedLog,
    Deltas,
    Failed,
    Forward,
    HandOver,
    IsrAltered,
    IsrChange,
    Leave,
    Left,
    LogEnd,
    LogEnds,
    LogsDamaged,
    NoRoom,
    Observe,
    ProducerIds,
    Refused,
    Register,
    RegisterAgain,
    Registered,
    Snapshot,
    ToCoordinator,
    decode_to_broker,
)
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.metadata_records import MetadataRecord, SnapshotEnded, StopKind


class Me(Struct, frozen=True):
    """What a broker says of itself when it registers."""

    cluster_id: str
    broker: BrokerId
    incarnation: Incarnation
    host: str
    port: int
    rack: str | None = None
    log_dirs: tuple[Uuid, ...] = ()
    stopped: StopKind = StopKind.FIRST_START
    kept: Mapping[Uuid, Sequence[int]] = {}
    """After a power loss: what it took nothing of that anyone counts on."""


class Observer(Struct, frozen=True):
    """What the transaction coordinator says of itself."""

    cluster_id: str
    incarnation: Incarnation
    broker: BrokerId = TRANSACTIONS_ID


class Connected(Struct, frozen=True):
    """The coordinator can be spoken to; perhaps another one than before."""


class Disconnected(Struct, frozen=True):
    """It is gone."""

    crashed: frozenset[Incarnation] = frozenset()
    """Coordinators that are known to have ended by a bug of their own."""


class Received(Struct, frozen=True):
    frame: bytes


class ForwardAsked(Struct, frozen=True):
    call: int
    client: Client
    frame: bytes
    deadline: Instant


class IdsAsked(Struct, frozen=True):
    call: int
    deadline: Instant


class IsrAsked(Struct, frozen=True):
    """A leader wants other in-sync replicas for these."""

    call: int
    changes: tuple[IsrChange, ...]
    deadline: Instant


class LeaveAsked(Struct, frozen=True):
    """The broker stops: it wants to be fenced first, and never unfenced again."""

    call: int
    deadline: Instant


class EndsTold(Struct, frozen=True):
    """What this broker's replicas of partitions without a leader have."""

    ends: tuple[LogEnd, ...]


class DamageTold(Struct, frozen=True):
    """Replicas of this broker that the cluster must not count on. Whoever tells it repeats it until
    the image says so; told while the image changes, it is heard before this broker is let in."""

    logs: tuple[DamagedLog, ...]


class NoRoomTold(Struct, frozen=True):
    """Partitions that this broker leads and has no room for, though others have. Whoever tells it
    repeats it until the image says that another one leads."""

    places: tuple[NoRoom, ...]


class Tick(Struct, frozen=True):
    """The deadline came."""


class Send(Struct, frozen=True):
    message: ToCoordinator


class ImageChanged(Struct, frozen=True):
    changes: Changes


class Joined(Struct, frozen=True):
    """This broker is unfenced, and its own image says so: it may serve. Of the transaction
    coordinator: the image names this life, with the epoch it was given."""

    epoch: Offset


class Fenced(Struct, frozen=True):
    """The cluster gave this life up. A broker asks to be taken back; a transaction coordinator has
    a successor, and must end."""


class TurnedAway(Struct, frozen=True):
    """The coordinator will not have this broker."""

    code: ErrorCode
    detail: str


class IdBlock(Struct, frozen=True):
    first: ProducerId
    count: int


Result = bytes | IdBlock | tuple[ErrorCode, ...] | ErrorCode


class Suspected(Struct, frozen=True):
    """A client's request was sent to coordinators that ended before they answered it. It is
    refused, for it may be what ended them; that is worth a line in the log."""

    api_key: int
    client: str
    coordinators: int


class EndsWanted(Struct, frozen=True):
    """Nobody leads these, and this broker has replicas of them: say what they have."""

    places: Sequence[tuple[TopicView, int]]


class Finished(Struct, frozen=True):
    """A call's end: an answer's frame, a block of ids, what became of each change of an ISR,
    nothing for a leave, or why not."""

    call: int
    result: Result


Asked = ForwardAsked | IdsAsked | IsrAsked | LeaveAsked
Event = Connected | Disconnected | Received | Asked | EndsTold | DamageTold | NoRoomTold | Tick
Effect = Send | ImageChanged | Joined | Fenced | TurnedAway | EndsWanted | Suspected | Finished


class _Call(Struct):
    asked: Asked
    give_up: Instant
    """When a call that nobody can be told of is over."""
    sent: bool = False
    """In this session."""
    sent_at: Offset | None = None
    """Where the image was when it was sent for the first time."""
    had: tuple[Incarnation, ...] = ()
    """The coordinators that it was sent to."""
    met_bug: bool = False
    """Whether one of them ended by a bug of its own before it had answered."""


class Link:
    """A machine.

    Invariant: calls are sent only to a coordinator that answered this session's registration; every
    call is finished once.
    """

    def __init__(self, me: Me | Observer) -> None:
        self.image = MetadataImage(noting=True)
        """One object for the broker's whole life: a snapshot changes it in place."""
        self._me = me
        self._session = 0
        self._connected = False
        self._coordinator: Incarnation | None = None
        self._register_again: Instant | None = None
        self._parts: list[MetadataRecord] = []
        self._joined = False
        self._leaving = False
        self._calls: dict[int, _Call] = {}

    def step(self, now: Instant, event: Event) -> Sequence[Effect]:
        match event:
            case Received(frame):
                return self._received(now, frame)
            case ForwardAsked() | IdsAsked() | IsrAsked() | LeaveAsked():
                return self._asked(now, event)
            case Connected() | Disconnected():
                return self._connection(now, event)
            case EndsTold() | DamageTold() | NoRoomTold():
                return self._told(event)
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    def deadline(self) -> Instant | None:
        times = [
            call.asked.deadline if call.sent else min(call.give_up, call.asked.deadline)
            for call in self._calls.values()
        ]
        if self._register_again is not None:
            times.append(self._register_again)
        return min(times, default=None)

    def open_calls(self) -> list[int]:
        """Calls that are not finished yet."""
        return list(self._calls)

    def _register(self, now: Instant) -> list[Effect]:
        """Open a new session; whatever still comes of the last one is dropped."""
        if self._leaving or not self._connected:
            self._register_again = None
            return []
        self._session += 1
        self._coordinator = None
        self._parts.clear()
        self._register_again = Instant(now + ms(REGISTER_AGAIN_MS))
        return [*self._break_calls(now), Send(self._introduction())]

    def _introduction(self) -> Register | Observe:
        me, applied = self._me, self.image.offset
        if isinstance(me, Observer):
            return Observe(self._session, me.cluster_id, me.incarnation, applied)
        return Register(
            session=self._session,
            cluster_id=me.cluster_id,
            broker=me.broker,
            incarnation=me.incarnation,
            host=me.host,
            port=me.port,
            rack=me.rack,
            log_dirs=me.log_dirs,
            stopped=me.stopped,
            applied=applied,
            kept=tuple((topic, tuple(partitions)) for topic, partitions in me.kept.items()),
        )

    def _connection(self, now: Instant, event: Connected | Disconnected) -> list[Effect]:
        if isinstance(event, Connected):
            self._connected = True
            return self._register(now)
        for call in self._calls.values():
            call.met_bug |= call.sent and call.had[-1] in event.crashed
        self._connected = False
        self._coordinator = None
        self._register_again = None
        self._parts.clear()
        return self._break_calls(now)

    def _break_calls(self, now: Instant) -> list[Effect]:
        """What was sent in the last session will never be answered in this one."""
        effects: list[Effect] = []
        for number, call in list(self._calls.items()):
            if not call.sent:
                continue
            call.sent = False
            call.give_up = Instant(now + ms(COORDINATOR_DOWN_WAIT_MS))
            if not isinstance(call.asked, ForwardAsked | IdsAsked):
                effects.append(self._finish(number, _outcome_unknown(call.asked)))
        return effects

    def _tick(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for number, call in list(self._calls.items()):
            if now >= call.asked.deadline:
                effects.append(self._finish(number, ErrorCode.REQUEST_TIMED_OUT))
            elif not call.sent and now >= call.give_up:
                never = call.sent_at is None
                result = _never_sent(call.asked) if never else _outcome_unknown(call.asked)
                effects.append(self._finish(number, result))
        if self._register_again is not None and now >= self._register_again:
            effects += self._register(now)
        return effects

    def _asked(self, now: Instant, asked: Asked) -> list[Effect]:
        assert asked.call not in self._calls, asked.call
        if isinstance(asked, ForwardAsked) and len(asked.frame) > FORWARDED_FRAME_BYTES_MAX:
            return [Finished(asked.call, ErrorCode.INVALID_REQUEST)]
        if len(self._calls) >= FORWARDED_CALLS_MAX:
            return [Finished(asked.call, _never_sent(asked))]
        if isinstance(asked, LeaveAsked):
            self._leaving = True
        give_up = Instant(now + ms(COORDINATOR_DOWN_WAIT_MS))
        self._calls[asked.call] = _Call(asked, give_up)
        return self._send_calls()

    def _send_calls(self) -> list[Effect]:
        if self._coordinator is None:
            return []
        sends = self._suspects(self._coordinator)
        for call in self._calls.values():
            if not call.sent:
                call.sent = True
                if self._coordinator not in call.had:
                    call.had += (self._coordinator,)
                sends.append(Send(_message(self._coordinator, call.asked, call.sent_at)))
                if call.sent_at is None:
                    call.sent_at = self.image.offset
        return sends

    def _suspects(self, coordinator: Incarnation) -> list[Effect]:
        """Do not let a request that may end coordinators end this one."""
        effects: list[Effect] = []
        for number, call in list(self._calls.items()):
            asked, had = call.asked, call.had
            if (
                isinstance(asked, ForwardAsked)
                and not call.sent
                and coordinator not in had
                and len(had) >= COORDINATORS_PER_CALL_MAX
            ):
                key = int.from_bytes(asked.frame[:2], "big")
                final = ErrorCode.UNKNOWN_SERVER_ERROR
                result = final if call.met_bug else _outcome_unknown(asked)
                effects += [
                    Suspected(key, asked.client.address, len(had)),
                    self._finish(number, result),
                ]
        return effects

    def _finish(self, number: int, result: Result) -> Finished:
        del self._calls[number]
        return Finished(number, result)

    def _received(self, now: Instant, frame: bytes) -> list[Effect]:
        try:
            message = decode_to_broker(frame)
        except WireError:
            # Not of our making: start over, in a while, rather than miss what it was.
            self._register_again = Instant(now + ms(REGISTER_AGAIN_MS))
            return []
        if not isinstance(message, RegisterAgain) and message.session != self._session:
            return []
        match message:
            case Deltas():
                return self._deltas(now, message)
            case Snapshot():
                return self._snapshot(now, message)
            case Registered() | Refused() | RegisterAgain():
                return self._registered(now, message)
            case _:
                return self._answered(message)

    def _registered(
        self, now: Instant, message: Registered | Refused | RegisterAgain
    ) -> list[Effect]:
        if isinstance(message, RegisterAgain):
            return [] if self._coordinator is None else self._register(now)
        self._register_again = None
        if isinstance(message, Refused):
            return [TurnedAway(message.code, message.detail)]
        self._coordinator = message.coordinator
        # How this life began is written now: registering anew in it, it has its files and cache.
        if isinstance(self._me, Me):
            self._me = replace(self._me, stopped=StopKind.KILLED, kept={})
        told_all = not self._joined  # by the membership
        effects = [*self._membership(now), *self._send_calls()]
        return effects if told_all else [*effects, *self._ends_wanted(self._all_places())]

    def _answered(
        self, message: Answered | Failed | ProducerIds | IsrAltered | Left
    ) -> list[Effect]:
        if message.call not in self._calls:
            return []  # its deadline was earlier
        result: Result
        match message:
            case Answered():
                result = message.frame
            case Failed():
                result = message.code
            case ProducerIds():
                result = IdBlock(message.first, message.count)
            case IsrAltered():
                result = message.outcomes
            case Left():
                result = ErrorCode.NONE
            case _:
                assert_never(message)
        return [self._finish(message.call, result)]

    def _snapshot(self, now: Instant, message: Snapshot) -> list[Effect]:
        self._parts += message.records
        if not message.last:
            return []
        ended = self._parts[-1]
        if ended != SnapshotEnded(len(self._parts) - 1):
            return self._register(now)
        image = MetadataImage()
        image.load(message.offset, self._parts)
        self._parts = []
        changes = difference(self.image, image)
        for one in fields(MetadataImage):
            if one.init and one.name != "noting":
                setattr(self.image, one.name, getattr(image, one.name))
        return self._applied(now, changes)

    def _deltas(self, now: Instant, message: Deltas) -> list[Effect]:
        have = self.image.offset + 1 - message.base
        if have < 0 or self._parts:
            return self._register(now)  # something is missing in between
        if have >= len(message.records):
            return []
        for record in message.records[have:]:
            self.image.replay(record)
        return self._applied(now, self.image.take_changes())

    def _applied(self, now: Instant, changes: Changes) -> list[Effect]:
        effects: list[Effect] = [ImageChanged(changes)]
        if self._coordinator is not None:
            effects.append(Send(Applied(self._coordinator, self.image.offset)))
        wanted = self._ends_wanted(changes.partitions) if self._joined else []
        return [*effects, *self._membership(now), *wanted]

    def _ends_wanted(self, places: Iterable[tuple[TopicView, int]]) -> list[Effect]:
        """Of what nobody leads the coordinator wants to know who has how much."""
        mine = [
            (topic, partition)
            for topic, partition in places
            for view in [topic.partitions[partition]]
            if view.leader == NO_LEADER and self._me.broker in view.replicas
        ]
        return [EndsWanted(mine)] if mine else []

    def _all_places(self) -> Iterator[tuple[TopicView, int]]:
        for topic in self.image.topics.values():
            for partition in range(len(topic.partitions)):
                yield topic, partition

    def _told(self, event: EndsTold | DamageTold | NoRoomTold) -> list[Effect]:
        to = self._coordinator
        if to is None:
            return []  # the next one is told when it answers
        if isinstance(event, DamageTold):
            return [Send(LogsDamaged(to, event.logs))]
        if isinstance(event, NoRoomTold):
            return [Send(HandOver(to, event.places))]
        return [Send(LogEnds(to, event.ends))]

    def _membership(self, now: Instant) -> list[Effect]:
        """Whether the image says that this life of this broker may serve."""
        if isinstance(self._me, Observer):
            return self._observed(now, self._me.incarnation)
        known = self.image.brokers.get(self._me.broker)
        ours = known is not None and known.incarnation == self._me.incarnation
        if known is not None and ours and not known.fenced:
            was_joined, self._joined = self._joined, True
            self._register_again = None
            if was_joined:
                return []
            return [Joined(known.epoch), *self._ends_wanted(self._all_places())]
        if self._joined and (ours or known is None):
            self._joined = False
            return [Fenced(), *self._register(now)]
        if not self._leaving:
            # Fenced anew before it was unfenced, it would hear of neither: ask once more when
            # nothing has come for a while.
            self._register_again = Instant(now + ms(JOIN_AGAIN_MS))
        return []

    def _observed(self, now: Instant, mine: Incarnation) -> list[Effect]:
        """As `_membership`. Who is followed by another one is never asked for again."""
        if self.image.transactions_incarnation > mine:
            self._joined, self._leaving, self._register_again = False, True, None
            return [Fenced()]
        if self.image.transactions_incarnation < mine:
            self._register_again = Instant(now + ms(JOIN_AGAIN_MS))
            return []
        self._register_again = None
        was_joined, self._joined = self._joined, True
        return [] if was_joined else [Joined(Offset(self.image.transactions_epoch))]


def _message(to: Incarnation, asked: Asked, sent_at: Offset | None) -> ToCoordinator:
    match asked:
        case ForwardAsked():
            return Forward(to, asked.call, asked.client, asked.deadline, asked.frame, sent_at)
        case IdsAsked():
            return AllocateProducerIds(to, asked.call, asked.deadline)
        case IsrAsked():
            return AlterIsr(to, asked.call, asked.changes)
        case LeaveAsked():
            return Leave(to, asked.call)
        case _:
            assert_never(asked)


def _never_sent(asked: Asked) -> ErrorCode:
    """Nothing was decided: clients look for another controller, producers try again."""
    if isinstance(asked, IdsAsked):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NOT_CONTROLLER


def _outcome_unknown(asked: Asked) -> ErrorCode:
    if isinstance(asked, IdsAsked):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # a block nobody heard of is never used
    return ErrorCode.REQUEST_TIMED_OUT
