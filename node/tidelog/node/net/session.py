"""The order of one connection: answers leave as requests came, and both sides are bounded."""

from collections import deque
from typing import TYPE_CHECKING, Final

from tidelog.kernel import limits
from tidelog.wire.compile import Piece

if TYPE_CHECKING:
    from collections.abc import Callable


PRODUCE: Final = 0
OFFSET_COMMIT: Final = 8
OVERLAPPING: Final = frozenset({PRODUCE, OFFSET_COMMIT})
"""API keys whose requests may overlap with others of their key."""


class Slot:
    """The place of one request's answer in the order."""

    __slots__ = ("barrier", "on_abandoned", "pieces")

    def __init__(self, *, barrier: bool) -> None:
        self.barrier = barrier
        """Nothing behind it is begun before it is answered, or is none any more."""
        self.pieces: list[Piece] | None = None
        """None until answered; empty where the client wants no answer."""
        self.on_abandoned: Callable[[], None] | None = None
        """Called where the client goes before it is answered: nobody need wait any more."""


class Session:
    """What one connection has asked and not yet been sent.

    Consecutive Produce requests overlap: each is appended in order and may wait for its
    replicas while the next one is appended. So do consecutive commits of offsets. Any other request
    is a barrier: it begins once everything before it is answered, and nothing behind it begins
    before it is. A Produce is one while it is made ready to be appended.

    Invariant: nothing is ever behind a barrier; what overlaps has one key.
    """

    __slots__ = ("_ready", "_slots", "closing", "key", "on_end", "undelivered_bytes")

    def __init__(self) -> None:
        self._ready: list[Piece] = []
        """Answers whose turn has come, those of requests that took no slot; before all slots."""
        self._slots: deque[Slot] = deque()
        self.key = PRODUCE
        """Of the requests that overlap now."""
        self.undelivered_bytes = 0
        """Answers given and not yet taken by the socket."""
        self.closing = False
        """No further request is begun; the connection ends once all answers are out."""
        self.on_end: list[Callable[[], None]] = []
        """Called when the connection has ended."""

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def may_begin(self, *, barrier: bool, key: int = PRODUCE) -> bool:
        """Whether the next request may be begun now."""
        slots = self._slots
        if self.closing or self.undelivered_bytes >= limits.UNDELIVERED_ANSWER_BYTES_MAX:
            return False
        if not slots:
            return True
        if barrier or key != self.key or slots[-1].barrier:
            return False
        return len(slots) < limits.IN_FLIGHT_REQUESTS_MAX

    def begin(self, *, barrier: bool, key: int = PRODUCE) -> Slot:
        assert self.may_begin(barrier=barrier, key=key)
        self.key = key
        slot = Slot(barrier=barrier)
        self._slots.append(slot)
        return slot

    def answer(self, piece: Piece) -> None:
        """Answer a request that is begun and done at one go: it needs no slot if it is alone."""
        if self._slots:
            self.begin(barrier=False).pieces = [piece]
        else:
            self._ready.append(piece)

    def ready(self) -> list[Piece]:
        """The pieces of all answers whose turn has come."""
        slots = self._slots
        pieces, self._ready = self._ready, []
        while slots and slots[0].pieces is not None:
            slot = slots.popleft()
            assert slot.pieces is not None
            pieces.extend(slot.pieces)
            slot.on_abandoned = None  # it refers to what refers to the slot
        for piece in pieces:
            self.undelivered_bytes += len(piece)
        return pieces

    def abandon(self) -> None:
        """No request is begun any more, and those that still wait are not answered."""
        self.closing = True
        slots = self._slots
        while slots:
            slot = slots.popleft()
            if slot.pieces is None and slot.on_abandoned is not None:
                slot.on_abandoned()
            slot.on_abandoned = None
        ended, self.on_end = self.on_end, []
        for tell in ended:
            tell()

    def delivered(self, count: int) -> None:
        self.undelivered_bytes -= count
        assert self.undelivered_bytes >= 0
