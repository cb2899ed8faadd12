"""What goes out to other brokers, gathered until the end of a turn of the loop. No I/O."""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.wire.replication import Entry, Head, Message, Payload, encode


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
        self._me = me
        self._incarnation = incarnation
        self._on_first = on_first
        """Called when there is something to take, where there was nothing."""
        self._entries: dict[Address, list[Entry]] = {}

    def say(self, to: Address, message: Message, payload: Payload | None = None) -> None:
        """A payload must stay as it is until it is sent."""
        entries = self._entries.get(to)
        if entries is None:
            if not self._entries:
                self._on_first()
            entries = self._entries[to] = []
        entries.append((message, payload))

    def forget(self, to: Address) -> None:
        """Nobody wants to hear it any more."""
        self._entries.pop(to, None)

    def take(self) -> list[tuple[Address, list[Payload]]]:
        """Each stream's message in parts, since this was last asked."""
        gathered, self._entries = self._entries, {}
        return [
            (
                to,
                encode(Head(self._me, self._incarnation, to.incarnation, to.stream), entries),
            )
            for to, entries in gathered.items()
        ]
