"""How much memory the bytes received from all clients of a broker take. No I/O.

Each connection has a small buffer of its own. Whoever needs a larger one asks here, and is not read
from while there is no room: so its client waits, and everybody else is served.

Nobody waits for ever:

- One quarter of the room is for buffers of ordinary size: large requests cannot take all of it.
- Of those who wait for each size, the one that waits longest may go on where the room is taken by
  requests that are not complete: one after the other they are completed, and give their room back.
- While others wait, a request that does not come ends its connection: one of which no byte comes
  for some seconds, and one that is not complete after some more. So does one that went on beyond
  the room for those who wait, and is not begun by then: it may have come, and have to wait for
  another request of its connection.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms

_OWN: Final = limits.RECEIVE_BUFFER_BYTES_FIRST
_INCOMPLETE_MAX: Final = ms(limits.INCOMPLETE_REQUEST_MS)
_STALLED_MAX: Final = ms(limits.STALLED_REQUEST_MS)


class Account:
    """The part of one connection.

    Invariant: `held` is what its buffer takes beyond the small one that each has, or what it was
    just granted.
    """

    __slots__ = (
        "_received",
        "come",
        "held",
        "incomplete",
        "line",
        "relax",
        "since",
        "wake",
        "watched",
    )

    def __init__(
        self,
        received: "ReceivedBytes",
        wake: Callable[[], None],
        relax: Callable[[], None],
        incomplete: Callable[[], int],
    ) -> None:
        self._received = received
        self.wake = wake
        """Called when what it waited for was granted."""
        self.relax = relax
        """Called to have it give back what it does not need now."""
        self.incomplete = incomplete
        """How many bytes have come of a request that is not complete; 0 if it waits or is none."""
        self.held = 0
        self.line: _Line | None = None
        """Where it waits."""
        self.since: Instant | None = None
        """When it was first seen with a request that was not complete, since it waited last."""
        self.come = (0, Instant(0))
        """How many bytes of that had come, and when that was first seen."""
        self.watched = False
        """Whether it must tell when a request is complete."""

    def may_hold(self, capacity: int) -> bool:
        """Whether its buffer may be so large. If not, `wake` is called when it may."""
        return self.held >= capacity - _OWN or self._received.take(self, capacity)

    def holds(self, capacity: int) -> None:
        """Its buffer is so large now."""
        less = self.held - max(0, capacity - _OWN)
        if less:
            self._received.give_back(self, less)

    def completed(self) -> None:
        """A request is complete: it stalls no more, is favoured no more and waits no more. Where
        more has come behind it, that asks anew."""
        self.since = None
        self.watched = False
        self._received.completed(self)

    def close(self) -> None:
        """Its connection has ended, and is forgotten: memory must not wait for the collector of
        garbage, which comes by very rarely."""
        self._received.leave(self)
        self.wake = self.relax = _nothing
        self.incomplete = _none


def _nothing() -> None:
    """There is no connection any more."""


def _none() -> int:
    return 0


class _Line:
    """Those who wait for buffers of one size."""

    __slots__ = ("_favoured", "room", "since", "waiting")

    def __init__(self) -> None:
        self.room = 0
        self.waiting: deque[tuple[Account, int]] = deque()
        """With what each wants its buffer to grow by."""
        self._favoured: Account | None = None
        self.since: Instant | None = None
        """When that was first seen."""

    @property
    def favoured(self) -> Account | None:
        """Who may go beyond the limit until its request is begun."""
        return self._favoured

    @favoured.setter
    def favoured(self, who: Account | None) -> None:
        self._favoured, self.since = who, None

    def overdue(self, now: Instant) -> Account | None:
        """Who has been favoured for so long that it must let others go on."""
        if self._favoured is None or not self.waiting:
            return None
        if self.since is None:
            self.since = now
        return self._favoured if now - self.since > _INCOMPLETE_MAX else None


class ReceivedBytes:
    """The memory of all connections' buffers, and of requests that are kept until they are done.

    Invariant: `used` is the sum of what the accounts hold, and of `kept`. It is beyond `limit` by
    one large and one ordinary request at most, and by copies of requests that were within it.
    """

    def __init__(self, limit: int = limits.RECEIVED_BYTES_MAX) -> None:
        self.used = 0
        self.kept = 0
        self.on_scarce: Callable[[], None] = lambda: None
        """Called when somebody begins to wait: `relieve` is wanted from now on."""
        self._holders: dict[Account, None] = {}
        self._ordinary, self._large = _Line(), _Line()
        self.bound(limit)

    def bound(self, limit: int) -> None:
        """So much is allowed from now on."""
        self._limit = limit
        self._ordinary.room = limit
        self._large.room = limit * 3 // 4
        self._serve()

    @property
    def is_scarce(self) -> bool:
        """Somebody waits: whoever needs less than it has is to give the rest back."""
        return bool(self._ordinary.waiting or self._large.waiting)

    def open(
        self,
        wake: Callable[[], None],
        relax: Callable[[], None],
        incomplete: Callable[[], int],
    ) -> Account:
        return Account(self, wake, relax, incomplete)

    def keep(self, count: int) -> None:
        """A request is copied, and kept while its connection's buffer is used again."""
        self.kept += count
        self.used += count

    def release(self, count: int) -> None:
        self.kept -= count
        self.used -= count
        assert self.kept >= 0
        self._serve()

    def take(self, who: Account, capacity: int) -> bool:
        if who.line is not None:
            return False
        line = self._large if capacity > limits.RECEIVE_BUFFER_BYTES_STEADY else self._ordinary
        more = capacity - _OWN - who.held
        if line.favoured is who or (not line.waiting and self.used + more <= line.room):
            self._grant(who, more)
            return True
        if self._ordinary.favoured is who:
            self._ordinary.favoured = None  # it is no ordinary one
        was_scarce = self.is_scarce
        who.line, who.watched = line, True
        line.waiting.append((who, more))
        if not was_scarce:
            self._reclaim()
            self.on_scarce()
        self._serve()
        return who.line is None

    def _grant(self, who: Account, more: int) -> None:
        who.held += more
        self.used += more
        self._holders[who] = None

    def give_back(self, who: Account, less: int) -> None:
        who.held -= less
        self.used -= less
        assert who.held >= 0 <= self.used
        if not who.held:
            self._holders.pop(who, None)
        self._serve()

    def completed(self, who: Account) -> None:
        self._forget(who)
        self._serve()

    def leave(self, who: Account) -> None:
        self._forget(who)
        self.give_back(who, who.held)

    def _forget(self, who: Account) -> None:
        """It waits no more, and is not favoured."""
        for line in (self._ordinary, self._large):
            if line.favoured is who:
                line.favoured = None
        if who.line is not None:
            line = who.line
            line.waiting = deque(one for one in line.waiting if one[0] is not who)
            who.line = None

    def _serve(self) -> None:
        for line in (self._ordinary, self._large):
            while line.waiting:
                who, more = line.waiting[0]
                if self.used + more > line.room:
                    if line.favoured is not None or 2 * self.kept > self._limit:
                        break  # it gets on when those are done
                    line.favoured = who
                    who.watched = True
                line.waiting.popleft()
                who.line = who.since = None
                self._grant(who, more)
                who.wake()

    def _reclaim(self) -> None:
        for who in list(self._holders):
            who.relax()

    def relieve(self, now: Instant) -> list[Account]:
        """Asked each second while it is scarce: who must end, for others wait."""
        self._reclaim()
        if not self.is_scarce:
            return []
        late = dict.fromkeys(who for who in self._holders if self._is_late(who, now))
        overdue = (line.overdue(now) for line in (self._ordinary, self._large))
        return [*(late | {who: None for who in overdue if who is not None})]

    def _is_late(self, who: Account, now: Instant) -> bool:
        come = who.incomplete() if who.line is None else 0
        if not come:
            who.since = None
            return False
        if who.since is None:
            who.since, who.watched, who.come = now, True, (come, now)
        elif come != who.come[0]:
            who.come = (come, now)
        return now - who.since > _INCOMPLETE_MAX or now - who.come[1] > _STALLED_MAX
