"""Keys and values in Kafka's internal topics: two bytes that say what follows, and a message.

The two bytes are the kind of a key, or the version of a value.
"""

from typing import Any

from tidelog.wire.compile import Piece, reader, writer

_HEAD_BYTES = 2


def written(
    head: int, what: object, *, version: int | None = None, flexible: bool = False
) -> bytes:
    """By the message's layout of that version; without one the head says it."""
    pieces: list[Piece] = []
    out = bytearray(head.to_bytes(_HEAD_BYTES, "big"))
    layout = writer(type(what), head if version is None else version, flexible=flexible)
    last = layout(what, out, pieces)
    assert not pieces, "nothing here is sent from a file"
    return bytes(last)


def read_stored(view: memoryview, cls: type, version: int, *, flexible: bool = False) -> Any:  # noqa: ANN401 -- of that class
    """Behind the first two bytes. Fields that a later program added at the end are left alone."""
    found, _ = reader(cls, version, flexible=flexible)(view, _HEAD_BYTES)
    return found
