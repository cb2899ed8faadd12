"""What a group goes through, told as it happens: why it rebalances, for whom, who was last.

What is told goes to the broker's log, and stays there when another broker keeps the group. Here is
only what the rebalance that is under way, or was the latest, needs to go on telling.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from tidelog.kernel.instant import Instant, ms
from tidelog.node.few_lines import FewLines

TOLD_MAX: Final = 20
TOLD_SPAN_MS: Final = 60_000
"""So many rebalances of one group are told in so long; the others are counted."""
NAMED_MAX: Final = 5
"""Members named in one line."""
PATIENCE_MS: Final = 1_000
"""Then it is told whom a rebalance waits for; and again after four times as long, and so on."""
_LESS_AND_LESS: Final = 4


class Trigger(StrEnum):
    """Why a rebalance began."""

    JOIN = "join"
    LEAVE = "leave"
    SESSION_TIMEOUT = "session time-out"
    REBALANCE_TIMEOUT = "rebalance time-out"
    SUBSCRIPTION = "subscription change"
    GROWTH = "partition growth"
    TOPIC = "new topic"
    TOPIC_GONE = "topic deleted"
    GIVEN_UP = "partitions given up"
    """Of a classic group that goes step by step: what was given up is for others now."""
    LEADER = "leader asks"
    """It joins again to assign anew, and nothing here says what for."""
    STATIC = "static member replaced"
    DISCONNECT = "connection ended"
    MOVED = "coordinator moved"


class Chapter(StrEnum):
    """What is told of a rebalance; the words are the events of the broker's log."""

    BEGAN = "group_rebalance_began"
    WAITS = "group_rebalance_waits"
    """It is slow: whom it waits for."""
    GATHERED = "group_rebalance_gathered"
    """All have joined the generation, or come to the epoch and given up what others shall have."""
    ENDED = "group_rebalance_ended"
    """Each member has what it shall have."""


class Named(NamedTuple):
    """A member, as people know it."""

    member_id: str
    client_id: str
    host: str


NOBODY: Final = Named("", "", "")


class Cause(Struct, frozen=True):
    """Why a rebalance began."""

    trigger: Trigger
    member: Named = NOBODY
    reason: str = ""
    """What the client says of it, where it says something."""
    detail: str = ""
    """What the coordinator knows besides."""


class Told(Struct, frozen=True):
    """One line of a group's story."""

    chapter: Chapter
    group: str
    fields: Mapping[str, object]


Tell = Callable[[Told], None]


class Rebalance(Struct):
    """The latest one."""

    cause: Cause | None
    """None where it began under another coordinator."""
    generation: int
    """That it leads to."""
    is_told: bool
    has_gathered: bool = False
    has_ended: bool = False
    last: Named = NOBODY
    """Whom the others waited for."""
    given_up: tuple[Named, ...] = ()
    """Members that did not come in time."""


class History:
    """Tells the story of one group.

    Invariant: of one rebalance everything is told, in order, or nothing is.
    """

    def __init__(self, group: str, kind: str, tell: Tell) -> None:
        self.latest: Rebalance | None = None
        self.look_at: Instant | None = None
        """When whom it waits for is told next."""
        self._group = group
        self._kind = kind
        self._tell = tell
        self._few = FewLines(TOLD_MAX, TOLD_SPAN_MS)
        self._untold = 0
        self._patience_ms = PATIENCE_MS

    @property
    def is_open(self) -> bool:
        """Whether a rebalance is under way."""
        return self.latest is not None and not self.latest.has_ended

    def began(self, cause: Cause, now: Instant, generation: int, members: int) -> None:
        """One that was under way is over with it."""
        is_told = self._few.may_say(now // ms(1))
        self.latest = Rebalance(cause, generation, is_told)
        self._be_patient(now)
        if not is_told:
            self._untold += 1
            return
        fields = {
            "kind": self._kind,
            "generation": generation,
            "trigger": cause.trigger.value,
            **_of(cause.member),
            "reason": cause.reason,
            "detail": cause.detail,
            "members": members,
            "untold": self._untold,
        }
        self._untold = 0
        self._say(Chapter.BEGAN, fields)

    def goes_on(self, now: Instant, generation: int) -> None:
        """It began under another coordinator, which told why."""
        self.latest = Rebalance(None, generation, is_told=True)
        self._be_patient(now)

    def waits(self, now: Instant, missing: Sequence[Named]) -> None:
        """Tell it, if it is time for that."""
        if self.look_at is None or now < self.look_at:
            return
        self._patience_ms *= _LESS_AND_LESS
        self.look_at = Instant(now + ms(self._patience_ms))
        self._go_on(Chapter.WAITS, {"missing": _names(missing), "missing_count": len(missing)})

    def gathered(
        self,
        now: Instant,
        members: int,
        last: Named,
        given_up: Sequence[Named] = (),
    ) -> None:
        latest = self.latest
        if latest is None or latest.has_gathered:
            return
        latest.has_gathered, latest.last = True, last
        latest.given_up += tuple(given_up)
        self._be_patient(now)
        gone = {"given_up": _names(latest.given_up), "given_up_count": len(latest.given_up)}
        self._go_on(Chapter.GATHERED, {"members": members, **_of(last), **gone})

    def gave_up(self, member: Named) -> None:
        """It was silent while the others waited for it."""
        if self.latest is not None and not self.latest.has_gathered:
            self.latest.given_up += (member,)

    def ended(self, last: Named = NOBODY) -> None:
        latest = self.latest
        if latest is None or latest.has_ended:
            return
        latest.has_ended = True
        self.look_at = None
        self._go_on(Chapter.ENDED, _of(last))

    def _be_patient(self, now: Instant) -> None:
        self._patience_ms = PATIENCE_MS
        self.look_at = Instant(now + ms(PATIENCE_MS))

    def _go_on(self, chapter: Chapter, fields: Mapping[str, object]) -> None:
        assert self.latest is not None, chapter
        if self.latest.is_told:
            self._say(chapter, {"generation": self.latest.generation, **fields})

    def _say(self, chapter: Chapter, fields: Mapping[str, object]) -> None:
        self._tell(Told(chapter, self._group, fields))


def _of(member: Named) -> dict[str, object]:
    return {"member": member.member_id, "client": member.client_id, "host": member.host}


def _names(members: Sequence[Named]) -> list[str]:
    return [f"{one.client_id} ({one.host.removeprefix('/')})" for one in members[:NAMED_MAX]]
