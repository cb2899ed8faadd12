"""What brokers, the transaction coordinator and the coordinator say to each other.

Messages are MessagePack arrays: a number, then fields in order, decoded into exactly these types or
refused. Every message to a broker carries the `session` it opened by its last Register, every
message to the coordinator the incarnation it is meant for: a pipe may still hold messages of an
earlier connection or an earlier process, and whoever reads them drops them by these two numbers.
"""

from typing import Annotated, Final

import msgspec

from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, ProducerId, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.metadata_records import MetadataRecord, StopKind

BrokerNumber = Annotated[BrokerId, msgspec.Meta(ge=0, lt=BROKERS_MAX)]
"""Refused when read where a cluster can have no such broker: shared memory has no place for it."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Common to all messages."""


class Register(_Message, frozen=True, tag=1):
    """I am here, in this life; send me what I miss. The first message of every connection."""

    session: int
    cluster_id: str
    broker: BrokerNumber
    incarnation: Incarnation
    host: str
    port: int
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    stopped: StopKind
    applied: Offset
    """The last offset of the metadata log in my image; NO_OFFSET asks for all of it."""
    kept: tuple[tuple[Uuid, tuple[int, ...]], ...] = ()
    """Partitions of which I have all I ever vouched for, though files of mine were lost."""


class Applied(_Message, frozen=True, tag=2):
    """My image has everything up to this offset."""

    to: Incarnation
    offset: Offset


class Client(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who asked the broker that forwards."""

    listener: str
    principal: str
    address: str


class Forward(_Message, frozen=True, tag=3):
    """A client's request that is yours to answer."""

    to: Incarnation
    call: int
    client: Client
    deadline: Instant
    """On the machine's monotonic clock: after it nobody waits, so nothing may be decided."""
    frame: bytes
    """The client's frame without its size."""
    sent_at: Offset | None = None
    """I sent this before, when my image had come to here, and do not know what became of it."""


class AllocateProducerIds(_Message, frozen=True, tag=4):
    to: Incarnation
    call: int
    deadline: Instant


class Leave(_Message, frozen=True, tag=5):
    """I am going: fence me, and tell me when that is decided."""

    to: Incarnation
    call: int


class IsrChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The in-sync replicas that a leader wants for one partition, as of these epochs."""

    topic: Uuid
    partition: int
    leader_epoch: Epoch
    partition_epoch: Epoch
    isr: tuple[tuple[BrokerId, Offset], ...]
    """Each member with its broker epoch: the life that the leader saw catch up."""


class AlterIsr(_Message, frozen=True, tag=6):
    """I lead these; write down who is in sync. Each change is taken or refused by itself."""

    to: Incarnation
    call: int
    changes: tuple[IsrChange, ...]


class LogEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica has of a partition that nobody leads."""

    topic: Uuid
    partition: int
    leader_epoch: Epoch
    """Of the partition, in the image of who tells."""
    last_epoch: Epoch
    """In which the last record was appended; -1 where there is none."""
    end: Offset
    """NO_OFFSET where the log cannot be used."""
    high_watermark: Offset
    """All below it was committed, as far as this broker knows."""
    start: Offset = Offset(0)
    missing: int = 0
    """How many offsets right before `start` a power loss took from the front of the log."""


class LogEnds(_Message, frozen=True, tag=7):
    """Nobody leads these, and I have replicas of them."""

    to: Incarnation
    ends: tuple[LogEnd, ...]


class DamagedLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica's files are not what was written to them, as of this state of the partition."""

    topic: Uuid
    partition: int
    partition_epoch: Epoch
    usable: bool
    """Most of it can be read and written: it may lead while nobody else can."""


class LogsDamaged(_Message, frozen=True, tag=8):
    """Count on these replicas of mine no more; I get anew from the others what they held."""

    to: Incarnation
    logs: tuple[DamagedLog, ...]


class NoRoom(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition whose leader's disk is full, as of this state of it."""

    topic: Uuid
    partition: int
    partition_epoch: Epoch
    others: tuple[BrokerId, ...]
    """In sync, with all that the leader holds, and with room on their disks as far as it sees."""


class HandOver(_Message, frozen=True, tag=10):
    """I lead these and have no room for what comes: let one of the others lead."""

    to: Incarnation
    places: tuple[NoRoom, ...]


class Observe(_Message, frozen=True, tag=9):
    """I am the transaction coordinator, in this life; send me what I miss. As Register is a
    broker's, the first message of every connection."""

    session: int
    cluster_id: str
    incarnation: Incarnation
    applied: Offset
    """As in Register."""


class Registered(_Message, frozen=True, tag=16):
    """You are known. What follows in this session brings your image up to date."""

    session: int
    coordinator: Incarnation
    epoch: Offset
    """A broker's, or the one that the transaction coordinator's life was given."""


class Refused(_Message, frozen=True, tag=17):
    """You cannot join; do not ask again."""

    session: int
    code: ErrorCode
    detail: str


class Snapshot(_Message, frozen=True, tag=18):
    """A part of the whole image as of `offset`; the last says so. It replaces what you have."""

    session: int
    offset: Offset
    records: tuple[MetadataRecord, ...]
    last: bool


class Deltas(_Message, frozen=True, tag=19):
    """Committed records, the first at offset `base`: one batch of the log, applied as one."""

    session: int
    base: Offset
    records: tuple[MetadataRecord, ...]


class Answered(_Message, frozen=True, tag=20):
    """The answer to a forwarded request: its frame without size, for the client as it is."""

    session: int
    call: int
    frame: bytes


class Failed(_Message, frozen=True, tag=21):
    """A call of yours was refused as a whole."""

    session: int
    call: int
    code: ErrorCode


class ProducerIds(_Message, frozen=True, tag=22):
    """`count` ids from `first` on are yours to give away."""

    session: int
    call: int
    first: ProducerId
    count: int


class Left(_Message, frozen=True, tag=23):
    session: int
    call: int


class RegisterAgain(_Message, frozen=True, tag=24):
    """I do not know this connection; whoever waits for a Registered already may forget this."""


class IsrAltered(_Message, frozen=True, tag=25):
    """What became of each change, in order. What was taken is committed, and was sent before."""

    session: int
    call: int
    outcomes: tuple[ErrorCode, ...]


ToCoordinator = (
    Register
    | Observe
    | Applied
    | Forward
    | AllocateProducerIds
    | Leave
    | AlterIsr
    | LogEnds
    | LogsDamaged
    | HandOver
)
ToBroker = (
    Registered
    | Refused
    | Snapshot
    | Deltas
    | Answered
    | Failed
    | ProducerIds
    | Left
    | RegisterAgain
    | IsrAltered
)

encode: Final = msgspec.msgpack.Encoder().encode
_to_coordinator: Final[msgspec.msgpack.Decoder[ToCoordinator]] = msgspec.msgpack.Decoder(
    ToCoordinator
)
_to_broker: Final[msgspec.msgpack.Decoder[ToBroker]] = msgspec.msgpack.Decoder(ToBroker)


def decode_to_coordinator(frame: bytes) -> ToCoordinator:
    """WireError where the bytes are no such message."""
    try:
        return _to_coordinator.decode(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(str(error)) from error


def decode_to_broker(frame: bytes) -> ToBroker:
    """WireError where the bytes are no such message."""
    try:
        return _to_broker.decode(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(str(error)) from error
