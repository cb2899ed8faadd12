"""The APIs a broker serves: dispatch, ApiVersions and the table in docs/ are made of these rows."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from tidelog.node.api.call import Call
from tidelog.wire.header import AnyApi

NO_ANSWER: Final = object()
"""A handler returns it where the protocol wants no answer (produce with acks=0)."""

Handler = Callable[[Call, Any], object | None]
"""Takes the call and its message; gives the answer, NO_ANSWER, or None: it will answer later."""


class Route(Struct, frozen=True):
    """One API key as this broker serves it."""

    api: AnyApi
    versions: range
    """Versions that are served."""
    handle: Handler
    note: str
    """One line for the table of docs/protocol.md."""
    advertised_min: int | None = None
    """What ApiVersions says instead of the true floor; only Produce has one."""

    @property
    def key(self) -> int:
        return self.api.key


def settle(call: Call, answer: object | None) -> None:
    """Give what a handler returned; it leaves once the connection's turn is over."""
    if answer is NO_ANSWER:
        call.slot.pieces = []
        call.done()
    elif answer is not None:
        call.settle(answer)


class Registry:
    """All routes, by key."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = {route.key: route for route in sorted(routes, key=lambda row: row.key)}

    def advertised(self) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version, as ApiVersions answers them."""
        rows: list[tuple[int, int, int]] = []
        for route in self.routes.values():
            low = route.versions[0] if route.advertised_min is None else route.advertised_min
            rows.append((route.key, low, route.versions[-1]))
        return rows
