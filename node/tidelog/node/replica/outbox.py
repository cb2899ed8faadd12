"""What goes out to other brokers, gathered until the end of a turn of the loop. No I/O."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.wire.replication import Head, Message, Payload, packed, packed_head

_HEADS_KEPT_MAX: Final = 200


class Address(NamedTuple):
    """One stream of one life of another broker."""

    peer: BrokerId
    incarnation: Incarnation
    stream: int


class Outbox:
    """In order, within a stream; many entries go as one message."""

    def __init__(
        self, me: BrokerId, incarnation: Incarnation, on_first: Callable[[], None]
    ) -> None:
        self.me = me
        self._incarnation = incarnation
        self._on_first = on_first
        """Called when there is something to take, where there was nothing."""
        self._frames: dict[Address, bytearray] = {}
        self._payloads: dict[Address, list[Payload]] = {}
        self._ended: list[tuple[Address, list[Payload]]] = []
        """Messages that nothing is added to; before those in `_frames`."""
        self._heads: dict[Address, bytes] = {}

    def say(self, to: Address, message: Message, payload: Payload | None = None) -> None:
        """A payload must stay as it is until it is sent."""
        frame = self._frames.get(to)
        if frame is None:
            if not self._frames and not self._ended:
                self._on_first()
            frame = self._frames[to] = bytearray(self._heads.get(to) or self._head(to))
        frame += packed(message)
        if payload is not None:
            self._payloads.setdefault(to, []).append(payload)

    def _head(self, to: Address) -> bytes:
        """Made once for a stream."""
        if len(self._heads) >= _HEADS_KEPT_MAX:
            self._heads.clear()
        head = packed_head(Head(self.me, self._incarnation, to.incarnation, to.stream))
        self._heads[to] = head
        return head

    def end_message(self, to: Address) -> None:
        """What is said to it from now on goes as another message, which is heard later."""
        frame = self._frames.pop(to, None)
        if frame is not None:
            self._ended.append((to, [frame, *self._payloads.pop(to, ())]))

    def forget(self, to: Address) -> None:
        """Nobody wants to hear it any more."""
        self._frames.pop(to, None)
        self._payloads.pop(to, None)
        self._ended = [one for one in self._ended if one[0] != to]

    def take(self) -> list[tuple[Address, list[Payload]]]:
        """Each stream's message in parts, since this was last asked."""
        frames, self._frames = self._frames, {}
        payloads, self._payloads = self._payloads, {}
        if not payloads and not self._ended:
            return [(to, [frame]) for to, frame in frames.items()]
        ended, self._ended = self._ended, []
        rest = [(to, [frame, *payloads.get(to, ())]) for to, frame in frames.items()]
        return [*ended, *rest]
