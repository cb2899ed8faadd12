"""Records what happens, at once on the board and soon after in the log. (shell)

Recording must not hold up what is recorded, a fail-over of a thousand partitions: it packs one
entry into memory. The log's lines are written later, some in each tick; what a killed process had
not logged yet its next life finds in its ring.
"""

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tidelog.kernel.ids import ZERO_UUID, Incarnation, Uuid, uuid_text
from tidelog.node.ipc.events import Event, EventRing, Happening, Kind, Value, fields_of
from tidelog.node.replica.replicas import Replica
from tidelog.node.runtime.process import EventLog

LINES_PER_TURN: Final = 128
WAITING_MAX: Final = 16_384
"""More events than that between two turns are on the board only, as far as it keeps them."""


class Recorder:
    """The events of this process, in this life."""

    def __init__(
        self,
        ring: EventRing,
        log: EventLog,
        incarnation: Incarnation,
        name_of: Callable[[Uuid], str | None] = lambda _: None,
    ) -> None:
        self._ring = ring
        self._log = log
        self._incarnation = incarnation
        self._name_of = name_of
        """What a topic is called, if it is still known."""
        self._waiting: deque[Event] = deque(ring.unlogged())
        self._dropped = 0

    def record(self, kind: Kind, topic: Uuid, partition: int, *values: Value) -> None:
        """Of a partition. `values` are the kind's fields, in their order."""
        self.happened(Happening(kind, topic, partition, values))

    def note(self, kind: Kind, replica: Replica, values: tuple[Value, ...]) -> None:
        """As the machines tell it."""
        self.record(kind, replica.topic_id, replica.partition, *values)

    def record_broker(self, kind: Kind, *values: Value) -> None:
        """Of a broker as a whole."""
        self.happened(Happening(kind, ZERO_UUID, -1, values))

    def happened(self, *happenings: Happening, wall_ns: int | None = None) -> None:
        """Now, or at a moment that lies a little back."""
        when = time.time_ns() if wall_ns is None else wall_ns
        for happening in happenings:
            number = self._ring.record(when, self._incarnation, happening)
            if len(self._waiting) >= WAITING_MAX:
                self._dropped += 1
            else:
                self._waiting.append(_event_of(number, when, self._incarnation, happening))

    def turn(self, lines_max: int = LINES_PER_TURN) -> None:
        """Write some lines; call it again and again. Costs nothing where nothing happened."""
        waiting = self._waiting
        if not waiting:
            return
        for _ in range(min(lines_max, len(waiting))):
            event = waiting.popleft()
            self._write(event)
            self._ring.logged(event.number)
        if self._dropped and not waiting:
            self._log.warning("events_not_logged", count=self._dropped)
            self._dropped = 0

    def close(self) -> None:
        """Write the rest."""
        self.turn(WAITING_MAX)

    def _write(self, event: Event) -> None:
        place: dict[str, object] = {}
        if event.partition >= 0:
            name = self._name_of(event.topic) or uuid_text(event.topic)
            place = {
                "partition": f"{name}-{event.partition}",
                "topic_id": uuid_text(event.topic),
            }
        self._log.info(
            event.kind.word,
            at=moment(event.wall_ns),
            number=event.number,
            incarnation=event.incarnation,
            **place,
            **event.fields,
        )


def _event_of(number: int, wall_ns: int, incarnation: Incarnation, what: Happening) -> Event:
    fields = fields_of(what.kind, what.values)
    return Event(number, wall_ns, incarnation, what.topic, what.partition, what.kind, fields)


def moment(wall_ns: int) -> str:
    """To the microsecond, so that what follows from what can be seen.

    >>> moment(1_700_000_000_000_001_000)
    '2023-11-14T22:13:20.000001Z'
    """
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{rest // 1000:06d}Z"
