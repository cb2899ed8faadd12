"""Between the transaction coordinator's machine and the process that runs it: events, effects.

The shell keeps the sockets and the metadata image; it changes the image and then says so. A message
to a broker is complete: the machine puts in the session that BrokerUp told it. Nothing is lost
quietly: what a broker never answers ends with its session (BrokerUp, BrokerDown) or, where it leads
no more, with the image.
"""

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Incarnation, Offset, ProducerId
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import FromTransactions, ToTransactions


class ImageChanged(Struct, frozen=True):
    """The metadata image that the machine was given has moved on."""


class BrokerUp(Struct, frozen=True):
    """A broker said Hello, of this cluster: a new connection, maybe of a life that is known. It is
    answered by Welcome; what was under way to an earlier session of it is answered never."""

    broker: BrokerId
    incarnation: Incarnation
    session: int


class BrokerDown(Struct, frozen=True):
    """The broker of that life is connected no more."""

    broker: BrokerId
    incarnation: Incarnation


class Received(Struct, frozen=True):
    """A broker's message, all but Hello; what is meant for another life the machine drops."""

    broker: BrokerId
    message: ToTransactions


class IdsGiven(Struct, frozen=True):
    """The controller's answer to WantIds: these producer ids are ours alone."""

    first: ProducerId
    count: int


class IdsRefused(Struct, frozen=True):
    """There are none now: the controller refused, or is away."""

    code: ErrorCode


class Tick(Struct, frozen=True):
    """The deadline came."""


Event = ImageChanged | BrokerUp | BrokerDown | Received | IdsGiven | IdsRefused | Tick


class SendTo(Struct, frozen=True):
    """To the broker's present connection; dropped where there is none."""

    broker: BrokerId
    message: FromTransactions


class WantIds(Struct, frozen=True):
    """Draw a block of producer ids; exactly one IdsGiven or IdsRefused answers."""


class Stop(Struct, frozen=True):
    """Another process is the coordinator now: end this one, it may do nothing more."""

    reason: str


class PartitionLoaded(Struct, frozen=True):
    """A partition of `__transaction_state` is open: its ids are decided on here."""

    partition: int
    ids: int
    prepared: int
    """Of these, those whose markers are owed."""
    end: Offset
    took_ms: float
    """Since its leader was found."""


class PartitionNotLoaded(Struct, frozen=True):
    """An attempt to load a partition was refused; it is tried again, and told of once."""

    partition: int
    code: ErrorCode


class PartitionLeft(Struct, frozen=True):
    """A partition is decided on no more, until it is loaded anew."""

    partition: int
    reason: str


class TransactionTimedOut(Struct, frozen=True):
    """This transaction was open for longer than its producer wanted; it is aborted."""

    transactional_id: str
    producer_id: ProducerId
    open_ms: int


class RequestFailed(Struct, frozen=True):
    """A request brought out a fault of ours; it is refused, or answered with an error."""

    reason: str


Happened = (
    PartitionLoaded | PartitionNotLoaded | PartitionLeft | TransactionTimedOut | RequestFailed
)
"""For the log of the process."""
Effect = SendTo | WantIds | Stop | Happened
