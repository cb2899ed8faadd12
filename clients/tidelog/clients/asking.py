"""The words between the parts of a client: a question, the broker it goes to, and its outcome."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple, NewType, Protocol, TypeVar

from tidelog.kernel.instant import Instant, s
from tidelog.wire.header import AnyApi
from tidelog.wire.schema import VERSION_MAX

ResultT = TypeVar("ResultT")

Ticket = NewType("Ticket", int)
"""Names a question until its outcome is there; never used twice by one network."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. The version is chosen by the connection, so the message fits all of them."""

    api: AnyApi
    message: Any
    timeout_ns: int = s(30)
    version_max: int = VERSION_MAX
    version_min: int = 0
    """Lower ones do less than what is asked."""
    answered: bool = True
    """False for a produce with acks=0: done once it is written."""


class Cause(Enum):
    """Why a question has no answer."""

    UNREACHABLE = auto()
    """The broker cannot be connected, or hung up: it may have acted on the request or not."""
    TIMED_OUT = auto()
    UNSUPPORTED = auto()
    """The broker offers no version of this API that we speak: asking again is of no use."""
    BROKEN = auto()
    """What came is not the protocol."""


@dataclass(frozen=True, slots=True)
class Answered:
    ticket: Ticket
    version: int
    message: Any
    """The response; None where none was asked for."""


@dataclass(frozen=True, slots=True)
class Lost:
    ticket: Ticket
    cause: Cause
    detail: str


Outcome = Answered | Lost


class Features(NamedTuple):
    """What the cluster can do, as a broker said it: the highest epoch counts."""

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})


def is_transient(outcome: Outcome) -> bool:
    """Lost, but asking again, there or elsewhere, may help."""
    return isinstance(outcome, Lost) and outcome.cause is not Cause.UNSUPPORTED


class Network(Protocol):
    """Connections to brokers. `transport.py` is the real one, tests have a fake."""

    @property
    def features(self) -> Features:
        """The latest that any broker told when it was connected to."""
        ...

    def now(self) -> Instant: ...

    def ask(self, to: Address, ask: Ask) -> Ticket:
        """Send now or as soon as the connection can; never blocks."""
        ...

    def poll(self, until: Instant) -> list[Outcome]:
        """Work until outcomes are there, or until then; at `now` or before: only what is ready."""
        ...


class Somewhere(Enum):
    """A destination other than a broker's id."""

    ANY = auto()
    CONTROLLER = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """A question and which broker gets it."""

    to: int | Somewhere
    ask: Ask


@dataclass(frozen=True, slots=True)
class Pause:
    """A plan waits before it tries again, and says why: the text of a timeout."""

    wait_ns: int
    because: str
    renews: bool = False
    """The plan has made progress: the time that it may take begins again. For plans that read
    much; a plan that asks the same again and again must not say so."""


Step = list[Call] | Pause

Plan = Generator[Step, list[Outcome], ResultT]
"""A job of several questions as a generator: it yields calls and is sent their outcomes, in order;
or it yields a pause and is sent nothing. Who runs it owns time and connections."""
