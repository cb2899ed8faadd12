"""A broker's link to the transaction coordinator, and what a test says to it."""

from collections.abc import Callable, Sequence

from tidelog.kernel.ids import (
    BrokerId,
    Epoch,
    Incarnation,
    ProducerEpoch,
    ProducerId,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.node.transactions.link import (
    Connected,
    Effect,
    Finished,
    ForwardAsked,
    Link,
    Me,
    Received,
    Send,
)
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    Append,
    Forward,
    FromTransactions,
    Hello,
    Marker,
    ToTransactions,
    Welcome,
    encode,
)

START = Instant(0)
LIFE, NEXT_LIFE = Incarnation(70), Incarnation(71)
CLIENT = Client("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:1")
MARKER = Marker("t", 0, Epoch(1), ProducerId(7), ProducerEpoch(0), committed=True)
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
BROKEN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
DEADLINE = Instant(ms(20_000))
Make = Callable[[int], FromTransactions]
"""A message of a session."""


def at(milliseconds: float) -> Instant:
    return Instant(ms(milliseconds))


def asked(call: int, frame: bytes = b"frame", deadline: Instant = DEADLINE) -> ForwardAsked:
    return ForwardAsked(call, CLIENT, frame, deadline)


def said(effects: Sequence[Effect]) -> list[ToTransactions]:
    """What goes to the coordinator."""
    return [effect.message for effect in effects if isinstance(effect, Send)]


def finished(effects: Sequence[Effect]) -> dict[int, bytes | ErrorCode]:
    return {effect.call: effect.result for effect in effects if isinstance(effect, Finished)}


def hear(link: Link, message: FromTransactions, now: Instant = START) -> Sequence[Effect]:
    return link.step(now, Received(encode(message)))


def new_link() -> Link:
    return Link(Me("cluster", BrokerId(2), Incarnation(5)))


def connected(epoch: int = 3) -> tuple[Link, int]:
    """A link that was welcomed, and its session."""
    link = new_link()
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, Welcome(hello.session, LIFE, Epoch(epoch))) == []
    return link, hello.session


def append(session: int, call: int = 1, epoch: int = 3, batch: bytes = b"batch") -> Append:
    return Append(session, call, Epoch(epoch), 0, Epoch(1), batch)


def sent_number(effects: Sequence[Effect]) -> int:
    """Under which number the one call went out."""
    (message,) = said(effects)
    assert isinstance(message, Forward)
    return message.call
