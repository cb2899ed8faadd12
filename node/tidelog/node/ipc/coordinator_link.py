"""A broker's connection to the coordinator, or the transaction coordinator's: a ZeroMQ DEALER under
the event loop. (shell)

Everything that is decided is decided by `metadata/link.py`; here are the socket, the clock and the
callbacks.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Incarnation, Offset, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    ALTER_ISR_TIMEOUT_MS,
    FORWARD_TIMEOUT_MS,
)
from tidelog.node.ipc.dealer import Dealer
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.node.metadata.link import (
    Asked,
    Connected,
    DamageTold,
    Disconnected,
    EndsTold,
    EndsWanted,
    Event,
    Fenced,
    Finished,
    ForwardAsked,
    IdBlock,
    IdsAsked,
    ImageChanged,
    IsrAsked,
    Joined,
    LeaveAsked,
    Link,
    Me,
    NoRoomTold,
    Observer,
    Received,
    Result,
    Send,
    Suspected,
    Tick,
    TurnedAway,
)
from tidelog.wire.control import (
    Client,
    DamagedLog,
    IsrChange,
    LogEnd,
    NoRoom,
    encode,
)
from tidelog.wire.errors import ErrorCode

_LISTENER: Final = "PLAINTEXT"
_PRINCIPAL: Final = "User:ANONYMOUS"


class Hooks(Struct):
    """What the broker does when the coordinator says something."""

    on_image_changed: Callable[[MetadataImage, Changes], None]
    on_registered: Callable[[Offset], None]
    """This broker may serve; with its epoch. Again each time after it was fenced."""
    on_fenced: Callable[[], None]
    on_refused: Callable[[ErrorCode, str], None]
    on_ends_wanted: Callable[[Sequence[tuple[TopicView, int]]], tuple[LogEnd, ...]]
    """Nobody leads these, and this broker has replicas of them."""
    on_suspected: Callable[[int, str, int], None]
    """A client's request of this API key is refused, for so many coordinators ended with it."""
    crashed_coordinators: Callable[[], frozenset[Incarnation]] = frozenset
    """Those that ended by a bug of their own, as far as that is known."""


def peer_name(broker: BrokerId, incarnation: Incarnation) -> bytes:
    """What the coordinator's socket calls this life of this broker."""
    return f"{broker}/{incarnation}".encode()


class CoordinatorLink:
    """Calls go in by methods, what comes back goes out by callbacks, all on one loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: str, me: Me | Observer, hooks: Hooks
    ) -> None:
        self._loop = loop
        self._hooks = hooks
        self._link = Link(me)
        self._dealer = Dealer(
            loop,
            endpoint,
            peer_name(me.broker, me.incarnation),
            on_up=lambda: self._step(Connected()),
            on_down=lambda: self._step(Disconnected(hooks.crashed_coordinators())),
            on_frame=lambda frame: self._step(Received(frame)),
        )
        self._calls = 0
        self._done: dict[int, Callable[[Result], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Instant | None = None
        self._closed = False

    @property
    def image(self) -> MetadataImage:
        """The cluster as this broker knows it; one object, changed in place."""
        return self._link.image

    def start(self) -> None:
        """Connect, and stay connected."""
        self._dealer.start()

    def forward(
        self,
        api_key: int,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[bytes | ErrorCode], None],
    ) -> None:
        """Have the coordinator answer a frame (without its size); `done` gets the answer's frame,
        without its size, or why there is none. Never later than the deadline."""
        assert int.from_bytes(frame[:2], "big") == api_key, api_key
        client = Client(_LISTENER, _PRINCIPAL, client_address)

        def finished(result: Result) -> None:
            assert not isinstance(result, IdBlock | tuple)
            done(result)

        self._ask(ForwardAsked(self._new_call(), client, frame, deadline), finished)

    def allocate_producer_ids(
        self, done: Callable[[tuple[ProducerId, int] | ErrorCode], None]
    ) -> None:
        """A block of ids that nobody else ever gets."""

        def finished(result: Result) -> None:
            assert not isinstance(result, bytes | tuple)
            done((result.first, result.count) if isinstance(result, IdBlock) else result)

        self._ask(IdsAsked(self._new_call(), self._deadline(FORWARD_TIMEOUT_MS)), finished)

    def alter_isr(
        self,
        changes: tuple[IsrChange, ...],
        done: Callable[[tuple[ErrorCode, ...] | ErrorCode], None],
    ) -> None:
        """Have other in-sync replicas written down; `done` gets what became of each change, after
        the image has what was taken, or why none of it is known to be taken."""

        def finished(result: Result) -> None:
            assert not isinstance(result, bytes | IdBlock)
            done(result)

        deadline = self._deadline(ALTER_ISR_TIMEOUT_MS)
        self._ask(IsrAsked(self._new_call(), changes, deadline), finished)

    def leave(self, done: Callable[[ErrorCode], None], *, wait_ms: int) -> None:
        """Before a stop: have leadership taken away; NONE once that is decided. Then `close`."""

        def finished(result: Result) -> None:
            assert isinstance(result, ErrorCode)
            done(result)

        self._ask(LeaveAsked(self._new_call(), self._deadline(wait_ms)), finished)

    def tell_damage(self, logs: tuple[DamagedLog, ...]) -> None:
        """These replicas of ours are not to be counted on; told again until the image says so."""
        self._step(DamageTold(logs))

    def hand_over(self, places: tuple[NoRoom, ...]) -> None:
        """Somebody else shall lead these; told again until the image says so."""
        self._step(NoRoomTold(places))

    def close(self) -> None:
        """Let go of the socket; calls under way are never answered."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._dealer.close()

    def _new_call(self) -> int:
        self._calls += 1
        return self._calls

    def _deadline(self, wait_ms: int) -> Instant:
        return Instant(time.monotonic_ns() + ms(wait_ms))

    def _ask(self, asked: Asked, done: Callable[[Result], None]) -> None:
        self._done[asked.call] = done
        self._step(asked)

    def _step(self, event: Event) -> None:
        for effect in self._link.step(Instant(time.monotonic_ns()), event):
            match effect:
                case Send(message):
                    self._dealer.send(encode(message))
                case Finished(call, result):
                    self._done.pop(call)(result)
                case ImageChanged(changes):
                    self._hooks.on_image_changed(self._link.image, changes)
                case Joined(epoch):
                    self._hooks.on_registered(epoch)
                case Fenced():
                    self._hooks.on_fenced()
                case TurnedAway(code, detail):
                    self._hooks.on_refused(code, detail)
                case Suspected(key, client, coordinators):
                    self._hooks.on_suspected(key, client, coordinators)
                case EndsWanted(places):
                    self._step(EndsTold(self._hooks.on_ends_wanted(places)))
                case _:
                    assert_never(effect)
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._link.deadline()
        if deadline == self._timer_at or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None:
            wait_s = max(0, deadline - time.monotonic_ns()) / 1e9
            self._timer = self._loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = None
        self._step(Tick())
