"""Requests with more bytes than they need: they are served, and told of once for each client."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.wire.header import AnyApi, RequestHeader

NAMES_MAX: Final = 100
"""Clients told of; what further names send is served without a word."""
NAME_CHARS_MAX: Final = 64
"""Of a client's name; a client may call itself by 32 KiB."""


class Trailing(NamedTuple):
    """The first such request of a client."""

    client: str
    address: str
    request: str
    size: int
    """Bytes that nobody can explain."""


TellOfTrailing = Callable[[Trailing], None]


class TrailingBytes:
    """Invariant: no name is told of twice, and at most NAMES_MAX are remembered."""

    def __init__(self, tell: TellOfTrailing) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def note(self, header: RequestHeader, api: AnyApi, size: int, address: str) -> None:
        """A request had so many bytes after its end."""
        name = (header.client_id or "")[:NAME_CHARS_MAX]
        if name in self._told or len(self._told) >= NAMES_MAX:
            return
        self._told.add(name)
        self._tell(Trailing(name, address, f"{api} v{header.version}", size))
