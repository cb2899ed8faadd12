"""Time as the logic sees it: nanoseconds handed in by a shell, never asked for."""

from typing import NewType

Instant = NewType("Instant", int)
"""Nanoseconds on the monotonic clock."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970, as Kafka stamps records."""


def ms(milliseconds: float) -> int:
    """So many milliseconds, in nanoseconds."""
    return int(milliseconds * 1_000_000)


def s(seconds: float) -> int:
    """So many seconds, in nanoseconds."""
    return int(seconds * 1_000_000_000)
