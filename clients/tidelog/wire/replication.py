"""What brokers say to each other to replicate; docs/replication.md says when and why.

One message on the pipe is a frame and, for each Bytes in it, a part of its own with the batches. A
frame is a head and entries: a byte for the kind, then a fixed layout. Little-endian, no padding.
"""

from collections.abc import Iterable, Sequence
from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 -- an exception; its own name says nothing
from typing import Any, Final, NamedTuple

from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, Partition, Uuid
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.wire.errors import WireError

MAGIC: Final = b"tlR1"
_HEAD: Final = Layout("<4sHqqI")


class Head(NamedTuple):
    """Who says it, to whom, and on which of the follower's streams."""

    sender: BrokerId
    incarnation: Incarnation
    to: Incarnation
    """0: whoever is there."""
    stream: int


class Open(NamedTuple):
    """From a follower: a new stream; whatever I had of you before, I use no more."""

    broker_epoch: Offset


class Join(NamedTuple):
    """From a follower: I have this ring mapped."""

    ring: int


class Attach(NamedTuple):
    """From a follower: let me follow this partition under this leader epoch."""

    channel: int
    topic: Uuid
    partition: Partition
    leader_epoch: Epoch
    last_epoch: Epoch
    """Of my log; NO_EPOCH of an empty one."""
    end: Offset
    log_start: Offset


class Ack(NamedTuple):
    """From a follower: my log has all below `end`."""

    channel: int
    end: Offset
    log_start: Offset


class Detach(NamedTuple):
    """From a follower: I follow this no more."""

    channel: int


class Alive(NamedTuple):
    """From a follower, twice a second."""


class LeftRing(NamedTuple):
    """From a follower: I read nothing of this ring any more."""

    ring: int


class Opened(NamedTuple):
    """From a leader: here is my ring. Of size 0 where I have none."""

    ring: int
    size_bytes: int


class Refused(NamedTuple):
    """From a leader: not by me, or not in this epoch."""

    channel: int
    code: int


class EpochEnd(NamedTuple):
    """From a leader: of the epochs not above your last one, my largest is this; it ends here."""

    channel: int
    epoch: Epoch
    end: Offset
    log_start: Offset


class Attached(NamedTuple):
    """From a leader: our logs agree below `start`; the rest comes."""

    channel: int
    start: Offset
    high_watermark: Offset
    log_start: Offset


class Batch(NamedTuple):
    """From a leader: one batch lies in my ring, or in catch-up several."""

    channel: int
    after: Offset
    """Where the follower's log must end."""
    ring: int
    position: int
    size: int
    high_watermark: Offset
    log_start: Offset


class Bytes(NamedTuple):
    """From a leader: batches, in the next part of the message."""

    channel: int
    after: Offset
    high_watermark: Offset
    log_start: Offset


class State(NamedTuple):
    """From a leader: where we stand."""

    channel: int
    sent: Offset
    """Where the follower's log ends when it has all I sent."""
    high_watermark: Offset
    log_start: Offset
    ack_wanted: bool


class LeaveRing(NamedTuple):
    """From a leader: you hold the ring up; let it go, the rest comes from the log."""

    ring: int


class Closed(NamedTuple):
    """From a leader: I know no such stream."""


class Close(NamedTuple):
    """From a follower: this stream is over."""


Message = (
    Open
    | Join
    | Attach
    | Ack
    | Detach
    | Alive
    | LeftRing
    | Opened
    | Refused
    | EpochEnd
    | Attached
    | Batch
    | Bytes
    | State
    | LeaveRing
    | Closed
    | Close
)
FROM_FOLLOWER: Final = (Open, Join, Attach, Ack, Detach, Alive, LeftRing, Close)

_ROWS: Final[tuple[tuple[int, Any, str], ...]] = (
    (1, Open, "q"),
    (2, Join, "I"),
    (3, Attach, "I16sIiiqq"),
    (4, Ack, "Iqq"),
    (5, Detach, "I"),
    (6, Alive, ""),
    (7, LeftRing, "I"),
    (8, Close, ""),
    (16, Opened, "IQ"),
    (17, Refused, "Ih"),
    (18, EpochEnd, "Iiqq"),
    (19, Attached, "Iqqq"),
    (20, Batch, "IqIQIqq"),
    (21, Bytes, "Iqqq"),
    (22, State, "Iqqq?"),
    (23, LeaveRing, "I"),
    (24, Closed, ""),
)
_PACK: Final = {
    kind_class: (kind, Layout(f"<B{layout}").pack) for kind, kind_class, layout in _ROWS
}
_UNPACK: Final = {
    kind: (kind_class, Layout(f"<x{layout}").unpack_from, Layout(f"<x{layout}").size)
    for kind, kind_class, layout in _ROWS
}

Payload = bytes | bytearray | memoryview
_new: Final = tuple.__new__  # skips the tuple's own Python-level constructor
Entry = tuple[Message, Payload | None]
"""A message, and its batches where it is Bytes."""


class Received(NamedTuple):
    """One message of the pipe, read."""

    head: Head
    entries: list[Entry]


def packed_head(head: Head) -> bytes:
    """What every message begins with."""
    return _HEAD.pack(MAGIC, *head)


def packed(message: Message) -> bytes:
    """One entry, without its payload."""
    kind, pack = _PACK[type(message)]
    found: bytes = pack(kind, *message)
    return found


def encode(head: Head, entries: Iterable[Entry]) -> list[Payload]:
    """The parts of one message on the pipe."""
    frame = bytearray(packed_head(head))
    parts: list[Payload] = [frame]
    for message, payload in entries:
        frame += packed(message)
        if payload is not None:
            parts.append(payload)
    return parts


def decode(parts: Sequence[Payload]) -> Received:
    """WireError where the parts are no such message."""
    return Received(read_head(head_bytes(parts)), read_entries(parts))


def head_bytes(parts: Sequence[Payload]) -> bytes:
    """What a message begins with; the same of all that one broker says on one stream."""
    return bytes(parts[0][: _HEAD.size]) if parts else b""


def read_head(content: bytes) -> Head:
    """WireError where it is none."""
    if len(content) < _HEAD.size:
        raise WireError("shorter than a head")
    magic, sender, incarnation, to, stream = _HEAD.unpack(content)
    if magic != MAGIC:
        raise WireError("no replication message")
    if sender >= BROKERS_MAX:
        raise WireError(f"no cluster has a broker {sender}")
    return Head(BrokerId(sender), Incarnation(incarnation), Incarnation(to), stream)


def read_entries(parts: Sequence[Payload]) -> list[Entry]:
    """Of a message whose head is good; WireError where it is damaged behind that."""
    frame = parts[0]
    entries: list[Entry] = []
    position, end, payloads = _HEAD.size, len(frame), 1
    try:
        while position < end:
            kind_class, unpack, size = _UNPACK[frame[position]]
            message = _new(kind_class, unpack(frame, position))
            position += size
            payload = None
            if kind_class is Bytes:
                payload = parts[payloads]
                payloads += 1
            entries.append((message, payload))
    except (KeyError, IndexError, LayoutError) as error:
        raise WireError(f"a replication message is damaged at byte {position}: {error}") from error
    if payloads != len(parts):
        raise WireError(f"{len(parts) - payloads} parts that no entry speaks of")
    return entries
