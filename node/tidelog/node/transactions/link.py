"""A broker's side of its conversation with the transaction coordinator, without the socket.

It says Hello on every connection, carries clients' requests there and answers back, and takes what
it shall append, read and mark. A request goes out once at most: one that was under way when the
connection ended may have been decided, and a second copy of it could end the next transaction of
its producer. Its client is told to try again, and repeats what it still wants.
"""

from collections.abc import Sequence
from typing import Final, assert_never

from msgspec import Struct

from tidelog.kernel.ids import NO_OFFSET, BrokerId, Epoch, Incarnation
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    FORWARDED_CALLS_MAX,
    FORWARDED_FRAME_BYTES_MAX,
    REGISTER_AGAIN_MS,
    TRANSACTION_CALLS_WAITING_BYTES_MAX,
    TRANSACTION_REQUESTS_BYTES_MAX,
    TRANSACTION_REQUESTS_MAX,
    TRANSACTIONS_DOWN_WAIT_MS,
)
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.transactions import (
    Admit,
    Answered,
    Append,
    Appended,
    Chunk,
    Failed,
    Forward,
    Hello,
    Mark,
    Marked,
    Read,
    ToTransactions,
    Welcome,
    decode_from_transactions,
)

_AWAY: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""Every client looks for the coordinator again, and tries again."""
_BROKEN: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""Every client tries again where it is: the next coordinator is there in a moment, and who looks
for another broker first takes longer (librdkafka half a second)."""
_TOO_MUCH: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Me(Struct, frozen=True):
    """What a broker says of itself."""

    cluster_id: str
    broker: BrokerId
    incarnation: Incarnation


class Connected(Struct, frozen=True):
    """The transaction coordinator can be spoken to; perhaps another one than before."""


class Disconnected(Struct, frozen=True):
    """It is gone; or this broker is, for it was given up."""


class Received(Struct, frozen=True):
    frame: bytes


class EpochHeard(Struct, frozen=True):
    """The metadata names the epoch of the transaction coordinator that counts."""

    epoch: Epoch


class ForwardAsked(Struct, frozen=True):
    call: int
    client: Client
    frame: bytes
    deadline: Instant


class Abandoned(Struct, frozen=True):
    """Nobody waits for this call any more: what was not sent of it is not sent."""

    call: int


Request = Append | Mark | Read
"""What the transaction coordinator has a broker do."""
Reply = Appended | Marked | Chunk


class Served(Struct, frozen=True):
    """What became of a request that Serve brought."""

    served: "Serve"
    reply: Reply


class Tick(Struct, frozen=True):
    """The deadline came."""


class Send(Struct, frozen=True):
    message: ToTransactions


class Finished(Struct, frozen=True):
    """A call's end: the answer's frame, or why there is none."""

    call: int
    result: bytes | ErrorCode


class Serve(Struct, frozen=True):
    """Do this; exactly one Served answers it, at once or later."""

    to: Incarnation
    request: Request

    @property
    def size(self) -> int:
        """What it keeps in memory until it is answered."""
        request = self.request
        if isinstance(request, Append):
            return len(request.batch)
        return len(request.markers) * _MARKER_BYTES if isinstance(request, Mark) else 0


Event = Connected | Disconnected | Received | EpochHeard | ForwardAsked | Abandoned | Served | Tick
Effect = Send | Finished | Serve | Admit

_MARKER_BYTES: Final = 256
"""In memory, about."""


class _Waiting(Struct, frozen=True):
    asked: ForwardAsked
    give_up: Instant


class Link:
    """A machine.

    Invariant: a call is sent at most once, to a coordinator that answered this session's Hello, and
    is finished once unless it is abandoned; nothing goes to a coordinator of a lower epoch than was
    heard of, and nothing that it wants is done.
    """

    def __init__(self, me: Me) -> None:
        self.epoch = Epoch(0)
        """The highest heard of."""
        self._me = me
        self._count = 0
        """Of sessions and sent calls together, so that each call of a session has a higher number
        than the session: what has a lower one is of an earlier connection."""
        self.session = 0
        """What is said in another one counts for nothing."""
        self._connected = False
        self._coordinator: Incarnation | None = None
        self._hello_again: Instant | None = None
        self._alarm: Instant | None = None
        """Not after anything that is due: what it was set for may be over by then."""
        self._waiting: dict[int, _Waiting] = {}
        """Calls that could not be sent yet, by the caller's number."""
        self._waiting_bytes = 0
        self._sent: dict[int, ForwardAsked] = {}
        """By the number they went out under; without their frames."""
        self._serving = 0
        self._serving_bytes = 0

    def step(self, now: Instant, event: Event) -> Sequence[Effect]:
        match event:
            case Received(frame):
                return self._received(now, frame)
            case ForwardAsked() | Abandoned():
                return self._client(now, event)
            case Served():
                return self._served(event)
            case Connected() | Disconnected():
                return self._connection(now, event)
            case EpochHeard(epoch):
                return self._heard(now, epoch)
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    def deadline(self) -> Instant | None:
        return self._alarm

    def _wake_at(self, due: Instant) -> None:
        if self._alarm is None or due < self._alarm:
            self._alarm = due

    @property
    def is_welcome(self) -> bool:
        """Whether there is a coordinator now that takes calls."""
        return self._coordinator is not None

    def open_calls(self) -> list[int]:
        """Calls that are not finished yet."""
        return [*self._waiting, *(asked.call for asked in self._sent.values())]

    # -- connections and epochs

    def _connection(self, now: Instant, event: Connected | Disconnected) -> list[Effect]:
        self._connected = isinstance(event, Connected)
        effects = self._part()
        return [*effects, *self._hello(now)] if self._connected else effects

    def _part(self) -> list[Effect]:
        """Nothing that was said in this session counts any more."""
        self._count += 1
        self.session = self._count
        self._coordinator = None
        self._hello_again = None
        broken, self._sent = self._sent, {}
        return [Finished(asked.call, _BROKEN) for asked in broken.values()]

    def _hello(self, now: Instant) -> list[Effect]:
        me = self._me
        self._hello_later(now)
        return [Send(Hello(self.session, me.cluster_id, me.broker, me.incarnation))]

    def _hello_later(self, now: Instant) -> None:
        self._hello_again = Instant(now + ms(REGISTER_AGAIN_MS))
        self._wake_at(self._hello_again)

    def _heard(self, now: Instant, epoch: Epoch) -> list[Effect]:
        if epoch <= self.epoch:
            return []
        self.epoch = epoch
        if not self._connected or self._coordinator is None:
            return []
        # Whoever answers here was replaced: what it was asked it cannot decide any more.
        return [*self._part(), *self._hello(now)]

    def _welcome(self, message: Welcome) -> list[Effect]:
        if message.epoch < self.epoch:
            return []  # of the past; the one that counts is waited for
        self.epoch = message.epoch
        self._coordinator = message.coordinator
        self._hello_again = None
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        return [self._send(one.asked) for one in waiting.values()]

    def _tick(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for call, one in list(self._waiting.items()):
            if now >= one.give_up:
                self._forget_waiting(call)
                effects.append(Finished(call, _AWAY))
        for number, asked in list(self._sent.items()):
            if now >= asked.deadline:
                del self._sent[number]
                effects.append(Finished(asked.call, _AWAY))
        if self._hello_again is not None and now >= self._hello_again:
            effects += [*self._part(), *self._hello(now)]
        times = [one.give_up for one in self._waiting.values()]
        times += [asked.deadline for asked in self._sent.values()]
        if self._hello_again is not None:
            times.append(self._hello_again)
        self._alarm = min(times, default=None)
        return effects

    # -- calls

    def _client(self, now: Instant, event: ForwardAsked | Abandoned) -> list[Effect]:
        if isinstance(event, ForwardAsked):
            return self._asked(now, event)
        if event.call not in self._waiting:
            return []  # decided already, or about to be
        self._forget_waiting(event.call)
        return [Finished(event.call, _AWAY)]

    def _asked(self, now: Instant, asked: ForwardAsked) -> list[Effect]:
        assert asked.call not in self._waiting, asked.call
        size = len(asked.frame)
        if size > FORWARDED_FRAME_BYTES_MAX:
            return [Finished(asked.call, ErrorCode.INVALID_REQUEST)]
        if len(self._waiting) + len(self._sent) >= FORWARDED_CALLS_MAX:
            return [Finished(asked.call, _AWAY)]
        if self._coordinator is not None:
            return [self._send(asked)]
        if self._waiting_bytes + size > TRANSACTION_CALLS_WAITING_BYTES_MAX:
            return [Finished(asked.call, _AWAY)]
        give_up = min(asked.deadline, Instant(now + ms(TRANSACTIONS_DOWN_WAIT_MS)))
        self._waiting[asked.call] = _Waiting(asked, give_up)
        self._wake_at(give_up)
        self._waiting_bytes += size
        return []

    def _send(self, asked: ForwardAsked) -> Send:
        assert self._coordinator is not None
        self._count += 1
        kept = ForwardAsked(asked.call, asked.client, b"", asked.deadline)
        self._sent[self._count] = kept
        self._wake_at(asked.deadline)
        return Send(
            Forward(self._coordinator, self._count, asked.client, asked.deadline, asked.frame)
        )

    def _forget_waiting(self, call: int) -> None:
        one = self._waiting.pop(call)
        self._waiting_bytes -= len(one.asked.frame)

    # -- what comes

    def _received(self, now: Instant, frame: bytes) -> list[Effect]:
        try:
            message = decode_from_transactions(frame)
        except WireError:
            # Not of our making: start over, in a while, rather than miss what it was.
            self._hello_later(now)
            return []
        if message.session != self.session:
            return []
        match message:
            case Welcome():
                return self._welcome(message)
            case Answered(_, call, answer):
                return self._answered(call, answer)
            case Failed(_, call, code):
                return self._answered(call, code)
            case Append() | Mark() | Read() | Admit():
                return self._wanted(message)
            case _:
                assert_never(message)

    def _answered(self, number: int, result: bytes | ErrorCode) -> list[Effect]:
        asked = self._sent.pop(number, None)
        return [] if asked is None else [Finished(asked.call, result)]

    def _wanted(self, request: Request | Admit) -> list[Effect]:
        to = self._coordinator
        if to is None:
            return []  # it speaks before it has said who it is
        if isinstance(request, Admit):
            return [] if request.epoch < self.epoch else [request]
        served = Serve(to, request)
        if request.epoch < self.epoch:
            return [Send(refusal(served, ErrorCode.TRANSACTION_COORDINATOR_FENCED))]
        self.epoch = max(self.epoch, request.epoch)
        size = served.size
        if (
            self._serving >= TRANSACTION_REQUESTS_MAX
            or self._serving_bytes + size > TRANSACTION_REQUESTS_BYTES_MAX
        ):
            return [Send(refusal(served, _TOO_MUCH))]
        self._serving += 1
        self._serving_bytes += size
        return [served]

    def _served(self, event: Served) -> list[Effect]:
        self._serving -= 1
        self._serving_bytes -= event.served.size
        assert self._serving >= 0, "served what nobody wanted"
        # Who asked in an earlier session takes it for unanswered.
        if self._coordinator is None or event.served.request.session != self.session:
            return []
        return [Send(event.reply)]


def refusal(served: Serve, code: ErrorCode) -> Reply:
    """The reply that says that nothing of it was done."""
    to, request = served.to, served.request
    match request:
        case Append():
            return Appended(to, request.call, code, NO_OFFSET)
        case Mark():
            return Marked(to, request.call, (code,) * len(request.markers))
        case Read():
            return Chunk(to, request.call, code, NO_OFFSET, NO_OFFSET, 0, request.offset, b"")
        case _:
            assert_never(request)
