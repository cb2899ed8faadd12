"""What consumers of a classic group tell one another inside JoinGroup and SyncGroup.

The coordinator only hands it on, but looks into it to know what a group reads. A version that is
newer than all known ones is read as the newest: what it adds stands behind the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tidelog.wire.compile import Piece, reader, writer
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import BYTES, INT32, STRING
from tidelog.wire.schema import array, message, row

NEWEST: Final = 3
_VERSION_BYTES: Final = 2


@message
class _Topics:
    topics: list[str] = row(array(STRING))


@message
class _Partitions:
    topic: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class _Subscription:
    topics: list[str] = row(array(STRING))
    user_data: bytes | None = row(BYTES, nullable="0+", default=None)
    owned: list[_Partitions] = row(array(_Partitions), "1+")
    generation: int = row(INT32, "2+", default=-1)
    rack: str | None = row(STRING, "3+", nullable="3+", default=None)


@message
class _Assignment:
    topics: list[_Partitions] = row(array(_Partitions))
    user_data: bytes | None = row(BYTES, nullable="0+", default=None)


Owned = Mapping[str, frozenset[int]]
"""Partitions by topic."""


class Subscription(Struct, frozen=True):
    """What one member wants, and has."""

    version: int
    topics: frozenset[str]
    owned: Owned = {}
    rack: str | None = None
    user_data: bytes | None = None


def topics_in(subscription: bytes) -> frozenset[str] | None:
    """The topics alone; None where it cannot be read."""
    found = _read(subscription, _Topics, 0)
    return None if found is None else frozenset(found.topics)


def read_subscription(subscription: bytes) -> Subscription | None:
    """None where it cannot be read."""
    version = _version(subscription)
    found = None if version is None else _read(subscription, _Subscription, version)
    if found is None or version is None:
        return None
    return Subscription(
        version,
        frozenset(found.topics),
        {one.topic: frozenset(one.partitions) for one in found.owned},
        found.rack,
        None if found.user_data is None else bytes(found.user_data),
    )


def read_assignment(assignment: bytes) -> Owned | None:
    """None where it cannot be read; nothing where it is empty."""
    if not assignment:
        return {}
    found = None if _version(assignment) is None else _read(assignment, _Assignment, 0)
    if found is None:
        return None
    return {one.topic: frozenset(one.partitions) for one in found.topics}


def takes_user_data(assignment: bytes) -> bool:
    """Whether its assignor gives a member more than partitions."""
    found = _read(assignment, _Assignment, 0) if assignment else None
    return found is not None and bool(found.user_data)


def write_assignment(version: int, given: Mapping[str, Sequence[int]]) -> bytes:
    """As a leader would have made it."""
    rows = [_Partitions(topic=name, partitions=list(parts)) for name, parts in given.items()]
    pieces: list[Piece] = []
    out = bytearray(version.to_bytes(_VERSION_BYTES, "big"))
    last = writer(_Assignment, 0, flexible=False)(_Assignment(topics=rows), out, pieces)
    assert not pieces, "nothing here is sent from a file"
    return bytes(last)


def _version(said: bytes) -> int | None:
    if len(said) < _VERSION_BYTES:
        return None
    version = int.from_bytes(said[:_VERSION_BYTES], "big", signed=True)
    return None if version < 0 else min(version, NEWEST)


def _read(said: bytes, what: type, version: int) -> Any:  # noqa: ANN401 -- of that class
    try:
        found, _ = reader(what, version, flexible=False)(memoryview(said), _VERSION_BYTES)
    except WireError:
        return None
    return found
