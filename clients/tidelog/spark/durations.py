"""Durations as Spark's users write them: `500ms`, `30s`, `15m`, `2 hours`."""

import re
from typing import Final

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_SHAPE = re.compile(r"(\d{1,12})\s*([a-z]+)")


def duration_ms(text: str) -> int:
    """Milliseconds; ValueError where it is no duration.

    >>> duration_ms("15m"), duration_ms("2 hours"), duration_ms("250ms")
    (900000, 7200000, 250)
    """
    shaped = _SHAPE.fullmatch(text.strip().lower())
    if shaped is None:
        raise ValueError(text)
    count, unit = shaped.groups()
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if factor is None:
        raise ValueError(text)
    return int(count) * factor
