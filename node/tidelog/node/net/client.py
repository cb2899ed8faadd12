"""What a request's handler may know of, and ask from, the connection it came by."""

from typing import Protocol

from tidelog.node.net.session import Session


class CloseConnectionError(Exception):
    """The protocol has no answer for this request: the connection ends, the text says why."""


class RequestFailedError(CloseConnectionError):
    """A fault of ours that one request brought out: its connection ends, all others go on."""


class Client(Protocol):
    """One connection, as handlers see it."""

    session: Session

    @property
    def address(self) -> str:
        """Host and port of the peer, for logs and for DescribeGroups later."""
        ...

    def answered(self) -> None:
        """A slot of the session has got its answer: send what is ready."""
        ...

    def close(self, reason: str) -> None:
        """End the connection once what is ready is sent."""
        ...
