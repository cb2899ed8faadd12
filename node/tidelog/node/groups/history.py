"""What a group went through lately: why each rebalance began, who was last, how long it took."""

from collections import deque
from typing import Final

from msgspec import Struct

from tidelog.kernel.instant import Instant

KEPT: Final = 20


class Cause(Struct, frozen=True):
    """Why a rebalance began."""

    trigger: str
    """One of `Trigger`, or of a consumer group its own."""
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    reason: str = ""
    """What the client says of it, where it says something."""


class Rebalance(Struct):
    """One rebalance. Times are on the broker's monotonic clock; None where not reached."""

    cause: Cause
    began_ms: int
    """By the wall clock."""
    began: Instant
    joined: Instant | None = None
    """All members had joined, or were given up."""
    ended: Instant | None = None
    """The leader's assignment was there."""
    generation: int = -1
    members: int = 0
    last_member_id: str = ""
    """Whom the others waited for."""
    given_up: tuple[str, ...] = ()
    """Members that did not join in time."""


class History:
    """The latest rebalances of one group, in memory alone."""

    def __init__(self) -> None:
        self.rebalances: deque[Rebalance] = deque(maxlen=KEPT)

    def began(self, cause: Cause, now: Instant, now_ms: int) -> None:
        self.rebalances.append(Rebalance(cause, now_ms, now))

    @property
    def latest(self) -> Rebalance | None:
        return self.rebalances[-1] if self.rebalances else None

    def joined(self, now: Instant, generation: int, members: int) -> None:
        latest = self.latest
        if latest is not None:
            latest.joined, latest.generation, latest.members = now, generation, members

    def ended(self, now: Instant) -> None:
        latest = self.latest
        if latest is not None and latest.ended is None:
            latest.ended = now
