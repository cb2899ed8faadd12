"""The rebalances of a group, out of what its coordinators told in their brokers' logs. No I/O.

A rebalance is told in chapters, by whichever broker keeps the group at that time: when another one
goes on, its chapters follow in its log.
"""

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from tidelog.node.groups.history import Chapter
from tidelog.tools.timeline import Entry

KEPT: Final = 50
_CHAPTERS: Final = frozenset(chapter.value for chapter in Chapter)


class Outcome(StrEnum):
    """What became of a rebalance."""

    DONE = "done"
    OPEN = "under way"
    OVERTAKEN = "overtaken"
    """The next one began before it was through."""
    MOVED = "coordinator gone"
    """Its coordinator was gone before it was through, and the next one did not go on with it."""


def member_name(client_id: str, host: str) -> str:
    """A host is told with a slash before it.

    >>> member_name("billing", "/127.0.0.1"), member_name("billing", "")
    ('billing (127.0.0.1)', 'billing')
    """
    host = host.removeprefix("/")
    return f"{client_id} ({host})" if host else client_id


class Someone(Struct, frozen=True):
    """A member, as people know it."""

    member_id: str = ""
    client_id: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        return member_name(self.client_id, self.host)


class Rebalance(Struct):
    """One rebalance. Moments are ISO texts, as the logs have them."""

    at: str
    broker: str
    """The process that told of it."""
    kind: str
    generation: int
    """That it leads to; of a group of the consumer protocol, its epoch."""
    trigger: str
    member: Someone
    reason: str
    detail: str
    members: int
    untold: int
    """How many came before it that were left out, for they were too many."""
    gathered_at: str | None = None
    gathered_last: Someone = Someone()
    gathered_members: int | None = None
    given_up: list[str] = []
    given_up_count: int = 0
    ended_at: str | None = None
    ended_last: Someone = Someone()
    waits_for: list[str] = []
    """Of one that is slow: whom it was told to wait for, the last time."""
    waits_count: int = 0
    outcome: Outcome = Outcome.OPEN

    @property
    def gathering_s(self) -> float | None:
        """Until all had joined, or had given up what others shall have."""
        return _seconds(self.at, self.gathered_at)

    @property
    def sharing_s(self) -> float | None:
        """From then until each had what it shall have."""
        return None if self.gathered_at is None else _seconds(self.gathered_at, self.ended_at)

    @property
    def seconds(self) -> float | None:
        """All of it."""
        return _seconds(self.at, self.ended_at)


def _seconds(start: str, end: str | None) -> float | None:
    if end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def rebalances_of(entries: Iterable[Entry], group: str) -> list[Rebalance]:
    """Those that are told of, in the order of time, the latest ones."""
    found: list[Rebalance] = []
    for entry in entries:
        if entry.event in _CHAPTERS and entry.fields.get("group") == group:
            _take(found, entry)
    for before, after in itertools.pairwise(found):
        if before.outcome is Outcome.OPEN:
            is_here = before.broker == after.broker
            before.outcome = Outcome.OVERTAKEN if is_here else Outcome.MOVED
    return found[-KEPT:]


def _take(found: list[Rebalance], entry: Entry) -> None:
    if entry.event == Chapter.BEGAN:
        found.append(_begun(entry))
    else:
        _go_on(found, entry)


def _begun(entry: Entry) -> Rebalance:
    said = entry.fields
    return Rebalance(
        at=entry.at,
        broker=entry.process,
        kind=str(said.get("kind", "")),
        generation=int(said.get("generation", -1)),
        trigger=str(said.get("trigger", "")),
        member=_someone(said),
        reason=str(said.get("reason", "")),
        detail=str(said.get("detail", "")),
        members=int(said.get("members", 0)),
        untold=int(said.get("untold", 0)),
    )


def _go_on(found: Sequence[Rebalance], entry: Entry) -> None:
    """Of the latest that leads there; what an old log no longer begins is left out."""
    said = entry.fields
    one = next((one for one in reversed(found) if one.generation == said.get("generation")), None)
    if one is None:
        return
    if entry.event == Chapter.WAITS:
        one.waits_for, one.waits_count = _words(said, "missing"), int(said.get("missing_count", 0))
    elif entry.event == Chapter.GATHERED:
        one.gathered_at, one.gathered_last = entry.at, _someone(said)
        one.gathered_members = int(said.get("members", 0))
        one.given_up = _words(said, "given_up")
        one.given_up_count = int(said.get("given_up_count", 0))
        one.waits_for, one.waits_count = [], 0
    else:
        one.ended_at, one.ended_last = entry.at, _someone(said)
        one.waits_for, one.waits_count = [], 0
        one.outcome = Outcome.DONE


def _someone(said: Any) -> Someone:  # noqa: ANN401 -- what a line of a log holds
    return Someone(*(str(said.get(name, "")) for name in ("member", "client", "host")))


def _words(said: Any, name: str) -> list[str]:  # noqa: ANN401 -- as above
    value = said.get(name)
    return [str(one) for one in value] if isinstance(value, list) else []
