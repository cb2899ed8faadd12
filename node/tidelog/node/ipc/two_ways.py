"""Two ways from one broker to another, and one order. No I/O.

The pipe takes everything and is long: two threads hand each message on. The short way takes small
messages, delivers them before the call that sends them returns, or refuses them. A message of the
short way says how many went through the pipe before it, and waits for those at the receiver. A
message of the pipe comes after all of the short way that were sent before it, if the receiver looks
there first.

Each time the short way is made anew, a session begins, with a message through the pipe.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct as Layout
from typing import Final, NamedTuple

from tidelog.kernel.ids import BrokerId
from tidelog.wire.replication import Payload

_STAMP: Final = Layout("<HQQ")
STAMP_BYTES: Final = _STAMP.size
HELD_MAX: Final = 1_000
"""So many wait for the pipe; more are lost, as those are that a full pipe refuses."""


class Stamp(NamedTuple):
    """What stands behind each frame."""

    sender: BrokerId
    session: int
    """Later ones are larger, over all lives of a sender."""
    piped: int
    """How many of this session went through the pipe, with this one where it does."""


def read_stamp(frame: Payload) -> Stamp:
    """Of a frame that is long enough."""
    sender, session, piped = _STAMP.unpack_from(frame, len(frame) - STAMP_BYTES)
    return Stamp(BrokerId(sender), session, piped)


class Sent:
    """The sender's count, for one receiver."""

    __slots__ = ("_me", "_piped", "_session", "_stamp")

    def __init__(self, me: BrokerId, session: int) -> None:
        self._me = me
        self.begin(session)

    def begin(self, session: int) -> None:
        """The short way was made anew: what was sent before may come late, or never."""
        self._session = session
        self._piped = 0
        self._stamp = b""

    def short_stamp(self) -> bytes:
        """For a message on the short way; empty where it must go through the pipe."""
        return self._stamp

    def pipe_stamp(self) -> bytes:
        """For the next message through the pipe."""
        return _STAMP.pack(self._me, self._session, self._piped + 1)

    def piped(self) -> None:
        """The pipe has taken it."""
        self._piped += 1
        self._stamp = _STAMP.pack(self._me, self._session, self._piped)


class Received:
    """The receiver's end for one sender: what may be heard now.

    Invariant: what is held waits for a message that the pipe has not brought, so all that comes by
    the short way meanwhile waits too.
    """

    __slots__ = ("_held", "_reached")

    def __init__(self) -> None:
        self._reached = (0, 0)
        """Session and number of what the pipe brought last."""
        self._held: deque[tuple[tuple[int, int], bytes]] = deque()

    def short(self, stamp: Stamp, frame: Payload) -> bool:
        """Whether this one, of the short way, may be heard now; it is held, or lost, where not."""
        awaited = stamp[1:]
        if awaited <= self._reached:
            return True
        if len(self._held) >= HELD_MAX:
            self._held.clear()
        else:
            self._held.append((awaited, bytes(frame)))
        return False

    def piped(self, stamp: Stamp) -> None:
        """One came through the pipe, and was heard; the short way was looked at before."""
        self._reached = max(self._reached, stamp[1:])

    def released(self) -> Iterator[Sequence[bytes]]:
        """What need not wait any longer."""
        while self._held and self._held[0][0] <= self._reached:
            yield [self._held.popleft()[1]]
