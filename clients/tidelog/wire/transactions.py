"""What brokers and the transaction coordinator say to each other.

As between brokers and the coordinator (`control.py`): MessagePack arrays, decoded into exactly
these types or refused. Every message to a broker carries the `session` that the broker opened by
its last Hello, every message to the transaction coordinator the incarnation it is meant for; what
belongs to an earlier connection or an earlier process is dropped by these two numbers.

The transaction coordinator keeps no file: its log is `__transaction_state`, and it writes, reads
and marks through the brokers that lead. Every such message carries its epoch, which the controller
gives out; a broker refuses what comes with a lower one than it has heard of.
"""

from typing import Final

import msgspec

from tidelog.kernel.ids import (
    Epoch,
    Incarnation,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from tidelog.kernel.instant import Instant
from tidelog.wire.control import BrokerNumber, Client
from tidelog.wire.errors import ErrorCode, WireError

STATE_TOPIC: Final = "__transaction_state"
RESERVED_PRODUCER_ID: Final = ProducerId(1 << 62)
"""Writes `__transaction_state`; never given to a client. Its producer epoch is the coordinator's
epoch, so that the ordinary check of a producer's epoch refuses a coordinator of the past."""
_EPOCH_BITS: Final = 15


def written_as(epoch: Epoch) -> tuple[ProducerId, ProducerEpoch]:
    """The producer that a coordinator of this epoch writes as. A producer's epoch has 15 bits: the
    32,768th coordinator begins with the next reserved id, where brokers, who know the epochs, are
    all that holds back the one before it.

    >>> written_as(Epoch(7)) == (RESERVED_PRODUCER_ID, 7)
    True
    >>> written_as(Epoch(32_769)) == (RESERVED_PRODUCER_ID + 1, 1)
    True
    """
    beyond, within = divmod(epoch, 1 << _EPOCH_BITS)
    return ProducerId(RESERVED_PRODUCER_ID + beyond), ProducerEpoch(within)


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Common to all messages."""


class Hello(_Message, frozen=True, tag=1):
    """I am this broker, in this life. The first message of every connection."""

    session: int
    cluster_id: str
    broker: BrokerNumber
    incarnation: Incarnation


class Forward(_Message, frozen=True, tag=2):
    """A request that is yours to answer: a client's, or my own AddPartitionsToTxn (from v4 on)."""

    to: Incarnation
    call: int
    """Of one count with the broker's sessions: a lower number than that of its last Hello is of an
    earlier connection, and nothing may be decided on it."""
    client: Client
    deadline: Instant
    """On the machine's monotonic clock: after it nobody waits, so nothing may be decided."""
    frame: bytes
    """A request's frame without its size."""


class Appended(_Message, frozen=True, tag=3):
    """What became of an Append: NONE once it is committed."""

    to: Incarnation
    call: int
    code: ErrorCode
    end: Offset
    """Where the log ended behind the batch."""


class Marked(_Message, frozen=True, tag=4):
    """What became of each marker, in order: NONE once it is committed, or was before."""

    to: Incarnation
    call: int
    outcomes: tuple[ErrorCode, ...]


class Chunk(_Message, frozen=True, tag=5):
    """A piece of a partition of `__transaction_state`."""

    to: Incarnation
    call: int
    code: ErrorCode
    start: Offset
    """Where the log starts."""
    end: Offset
    """Where it ends, committed or not."""
    next_sequence: int
    """What the next batch of the reader's epoch has to begin with."""
    following: Offset
    """Where to read on: behind the last batch."""
    batches: bytes


class Welcome(_Message, frozen=True, tag=16):
    """You are heard; this is my life, and my epoch."""

    session: int
    coordinator: Incarnation
    epoch: Epoch


class Answered(_Message, frozen=True, tag=17):
    """The answer to a forwarded request: its frame without size, for the client as it is."""

    session: int
    call: int
    frame: bytes


class Failed(_Message, frozen=True, tag=18):
    """A forwarded request was refused as a whole."""

    session: int
    call: int
    code: ErrorCode


class Append(_Message, frozen=True, tag=19):
    """Append this to your partition of `__transaction_state`, and tell me when it is committed."""

    session: int
    call: int
    epoch: Epoch
    partition: int
    leader_epoch: Epoch
    batch: bytes


class Marker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a transaction in one partition."""

    topic: str
    partition: int
    leader_epoch: Epoch
    """Under another one it is not written: a late copy could end the next transaction."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool


class Mark(_Message, frozen=True, tag=20):
    """Write these into partitions that you lead, and tell me when they are committed."""

    session: int
    call: int
    epoch: Epoch
    markers: tuple[Marker, ...]


class Read(_Message, frozen=True, tag=21):
    """Give me what your partition of `__transaction_state` holds from here on."""

    session: int
    call: int
    epoch: Epoch
    partition: int
    leader_epoch: Epoch
    offset: Offset
    """NO_OFFSET asks for no batches, only for where the log starts and ends."""
    max_bytes: int


class Admitted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition that is part of a transaction."""

    topic: str
    partition: int
    leader_epoch: Epoch
    """Whoever leads under another one did not hear this."""


class Admit(_Message, frozen=True, tag=22):
    """Take this producer's first records into these partitions without a question: its transaction
    has them, until you are given a marker of it. Not answered, and never sent behind that marker
    in one session; what does not arrive costs a question.
    """

    session: int
    epoch: Epoch
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[Admitted, ...]


ToTransactions = Hello | Forward | Appended | Marked | Chunk
FromTransactions = Welcome | Answered | Failed | Append | Mark | Read | Admit

encode: Final = msgspec.msgpack.Encoder().encode
_to_transactions: Final[msgspec.msgpack.Decoder[ToTransactions]] = msgspec.msgpack.Decoder(
    ToTransactions
)
_from_transactions: Final[msgspec.msgpack.Decoder[FromTransactions]] = msgspec.msgpack.Decoder(
    FromTransactions
)


def decode_to_transactions(frame: bytes) -> ToTransactions:
    """WireError where the bytes are no such message."""
    try:
        return _to_transactions.decode(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(str(error)) from error


def decode_from_transactions(frame: bytes) -> FromTransactions:
    """WireError where the bytes are no such message."""
    try:
        return _from_transactions.decode(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(str(error)) from error
