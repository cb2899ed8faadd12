"""What happened to partitions and brokers: kinds of events, and each process's ring of them. Pure.

```
head    64   how many were ever recorded; how many of them are in the log too
entry i 96   number, wall time, incarnation, topic, partition, kind, five values, CRC
```
The ring lies on the board, so it outlives its writer: who reads it sees the last events of a killed
process, and its next life goes on counting where the dead one stopped. There is one writer and no
lock. A reader copies an entry and believes it only if its CRC fits, so one that was overwritten at
that moment, or that its writer died on, is left out.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Incarnation, Uuid
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.node.log.causes import Cause
from tidelog.wire.errors import ErrorCode

KEPT: Final = 256
"""Events in a ring; older ones are in the process's log."""
_HEAD_BYTES: Final = 64
_WORD_BYTES: Final = 8
_ENTRY: Final = struct.Struct("@qqq16siH2xqqqqq")
_CRC: Final = struct.Struct("@I4x")
_ENTRY_BYTES: Final = _ENTRY.size + _CRC.size
RING_BYTES: Final = _HEAD_BYTES + KEPT * _ENTRY_BYTES
VALUES_MAX: Final = 5
_NOBODY: Final = (0,) * VALUES_MAX
_RECORDED, _LOGGED = range(2)

Value = int | Sequence[BrokerId]
Fields = dict[str, int | str | list[int]]


class Kind(IntEnum):
    """What happened. A number is never used again for something else."""

    # decided by the coordinator
    CREATED = 1
    ELECTED = 2
    ISR_CHANGED = 3
    BROKER_FENCED = 4
    BROKER_UNFENCED = 5
    RECORDS_LOST = 6
    REASSIGNED = 7
    # seen by the supervisor
    STARTED = 20
    ENDED = 21
    HUNG = 22
    RESUMED = 23
    CUT_OFF = 24
    # done by a broker
    LEADS = 40
    FOLLOWS = 41
    TRUNCATED = 42
    STARTED_ANEW = 43
    HIGH_WATERMARK = 44
    ISR_PROPOSED = 45
    ISR_REFUSED = 46
    LOST = 47
    NO_ROOM = 48
    NOT_COMPACTED = 49
    COMPACTED_AGAIN = 50

    @property
    def word(self) -> str:
        """As logs and `tidelog timeline` say it."""
        return self.name.lower()


class Shape(Enum):
    """What a value means."""

    NUMBER = 0
    BROKERS = 1
    """A set of brokers, one bit each."""
    ERROR = 2
    """One of Kafka's codes; people are told its name."""
    CAUSE = 3
    """Why compaction fails; people are told its name."""


_BROKER = ("broker", Shape.NUMBER)
_LEADER = ("leader", Shape.NUMBER)
_EPOCH = ("leader_epoch", Shape.NUMBER)
_BROKER_EPOCH = ("broker_epoch", Shape.NUMBER)
_ISR = ("isr", Shape.BROKERS)
_FROM, _TO = ("from", Shape.NUMBER), ("to", Shape.NUMBER)
_END, _WATERMARK = ("end", Shape.NUMBER), ("high_watermark", Shape.NUMBER)

FIELDS: Final[Mapping[Kind, tuple[tuple[str, Shape], ...]]] = {
    Kind.CREATED: (("replicas", Shape.BROKERS), _ISR, _LEADER, _EPOCH),
    Kind.ELECTED: (_LEADER, _EPOCH, ("before", Shape.NUMBER), _ISR, ("elr", Shape.BROKERS)),
    Kind.ISR_CHANGED: (
        _ISR,
        ("before", Shape.BROKERS),
        ("elr", Shape.BROKERS),
        ("partition_epoch", Shape.NUMBER),
    ),
    Kind.BROKER_FENCED: (_BROKER, _BROKER_EPOCH),
    Kind.BROKER_UNFENCED: (_BROKER, _BROKER_EPOCH),
    Kind.REASSIGNED: (
        ("replicas", Shape.BROKERS),
        ("adding", Shape.BROKERS),
        ("removing", Shape.BROKERS),
        ("before", Shape.BROKERS),
        ("partition_epoch", Shape.NUMBER),
    ),
    Kind.RECORDS_LOST: (_LEADER, _EPOCH, ("at_least", Shape.NUMBER), _FROM),
    Kind.STARTED: (_BROKER, ("life", Shape.NUMBER)),
    Kind.ENDED: (_BROKER, ("life", Shape.NUMBER), ("code", Shape.NUMBER)),
    Kind.HUNG: (_BROKER, ("life", Shape.NUMBER)),
    Kind.RESUMED: (_BROKER, ("life", Shape.NUMBER)),
    Kind.CUT_OFF: (_BROKER, ("life", Shape.NUMBER), ("connections", Shape.NUMBER)),
    Kind.LEADS: (_EPOCH, _END, _WATERMARK),
    Kind.FOLLOWS: (_LEADER, _EPOCH, _END, _WATERMARK),
    Kind.TRUNCATED: (
        _FROM,
        _TO,
        ("last_epoch", Shape.NUMBER),  # of what it had
        _EPOCH,  # now
        ("committed", Shape.NUMBER),  # of those it gives up, as far as it knew
    ),
    Kind.STARTED_ANEW: (_FROM, _TO),
    Kind.HIGH_WATERMARK: (_FROM, _TO, _EPOCH),
    Kind.ISR_PROPOSED: (_ISR, _EPOCH),
    Kind.ISR_REFUSED: (("error", Shape.ERROR), _EPOCH),
    Kind.LOST: (_BROKER, _BROKER_EPOCH),
    Kind.NO_ROOM: (_EPOCH, _END, ("others", Shape.BROKERS)),  # one of these is to lead instead
    Kind.NOT_COMPACTED: (("cause", Shape.CAUSE), ("segment", Shape.NUMBER)),  # -1: no certain one
    Kind.COMPACTED_AGAIN: (),
}
assert set(FIELDS) == set(Kind)
assert max(map(len, FIELDS.values())) <= VALUES_MAX
assert BROKERS_MAX <= 64


class Happening(Struct, frozen=True):
    """One event, without when and where it was recorded. `topic` is zeros, and `partition` -1,
    where it is about a broker."""

    kind: Kind
    topic: Uuid
    partition: int
    values: tuple[Value, ...]


class Event(Struct, frozen=True):
    """One entry of a ring."""

    number: int
    """Counted by its process's ring, in this run of the cluster."""
    wall_ns: int
    incarnation: Incarnation
    topic: Uuid
    partition: int
    kind: Kind
    fields: Fields


class EventRing:
    """The one writer of a ring."""

    def __init__(self, ring: memoryview) -> None:
        assert len(ring) == RING_BYTES, len(ring)
        self._head = ring[:_HEAD_BYTES].cast("q")
        self._entries = ring[_HEAD_BYTES:]
        self._ring = ring

    def record(self, wall_ns: int, incarnation: Incarnation, happening: Happening) -> int:
        """Write it over the oldest; its number."""
        number = self._head[_RECORDED] + 1
        shapes = FIELDS[happening.kind]
        values = happening.values
        assert len(values) == len(shapes), happening
        plain = [_word(value) for value in values]
        start = number % KEPT * _ENTRY_BYTES
        entry = _ENTRY.pack(
            number,
            wall_ns,
            incarnation,
            happening.topic,
            happening.partition,
            happening.kind,
            *plain,
            *_NOBODY[len(plain) :],
        )
        self._entries[start : start + _ENTRY_BYTES] = entry + _CRC.pack(zlib.crc32(entry))
        self._head[_RECORDED] = number
        return int(number)

    def unlogged(self) -> list[Event]:
        """What is not in the log yet, as far as it is still kept."""
        logged = self._head[_LOGGED]
        if logged == self._head[_RECORDED]:
            return []
        return [event for event in read_ring(self._ring) if event.number > logged]

    def logged(self, number: int) -> None:
        """All up to this one is in the log."""
        self._head[_LOGGED] = number

    @property
    def is_logged(self) -> bool:
        return bool(self._head[_LOGGED] == self._head[_RECORDED])

    def release(self) -> None:
        """Let go of the shared memory."""
        self._head.release()
        self._entries.release()
        self._ring.release()


def read_ring(ring: memoryview) -> list[Event]:
    """What a ring holds, in order; whoever writes it, or died writing it."""
    if not any(ring[:_WORD_BYTES]):
        return []
    copy = bytes(ring)
    found = [event for event in map(_event, _entries_of(copy)) if event is not None]
    return sorted(found, key=lambda event: event.number)


def _entries_of(ring: bytes) -> Iterator[bytes]:
    for start in range(_HEAD_BYTES, RING_BYTES, _ENTRY_BYTES):
        yield ring[start : start + _ENTRY_BYTES]


def _event(entry: bytes) -> Event | None:
    body = entry[: _ENTRY.size]
    (crc,) = _CRC.unpack_from(entry, _ENTRY.size)
    number, wall_ns, incarnation, topic, partition, kind, *values = _ENTRY.unpack(body)
    if number <= 0 or zlib.crc32(body) != crc or kind not in _KINDS:
        return None
    known = Kind(kind)
    fields = fields_of(known, values[: len(FIELDS[known])])
    return Event(number, wall_ns, Incarnation(incarnation), Uuid(topic), partition, known, fields)


def fields_of(kind: Kind, values: Sequence[Value]) -> Fields:
    """A kind's values with their names, as people and programs are told them."""
    return {
        name: _readable(shape, value)
        for (name, shape), value in zip(FIELDS[kind], values, strict=True)
    }


def _readable(shape: Shape, value: Value) -> int | str | list[int]:
    if not isinstance(value, int):
        return sorted(value)
    if shape is Shape.BROKERS:
        return _brokers(value)
    if shape is Shape.ERROR:
        return ErrorCode(value).name if value in _ERRORS else value
    if shape is Shape.CAUSE:
        return Cause(value).name.lower() if value in _CAUSES else value
    return value


_ERRORS: Final = frozenset(map(int, ErrorCode))
_CAUSES: Final = frozenset(map(int, Cause))
_KINDS: Final = frozenset(map(int, Kind))


def _word(value: Value) -> int:
    """Brokers as bits, the highest of which is the sign."""
    if isinstance(value, int):
        return value
    bits = 0
    for broker in value:
        bits |= 1 << broker
    return bits - (1 << 64) if bits >> 63 else bits


def _brokers(word: int) -> list[int]:
    bits = word % (1 << 64)
    return [broker for broker in range(BROKERS_MAX) if bits >> broker & 1]
