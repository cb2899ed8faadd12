"""The one way offsets are written: `start`, `end`, `123`, `-10`, `@ISO`, `@-1h`, `@-30m:@now`.

A range is two of them with a colon between; its end is not part of it. Parsing gives points;
`plan_offsets` asks the cluster where they are, once for all partitions.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto

from tidelog.clients.admin.offsets import END, START, FoundOffset, list_offsets
from tidelog.clients.asking import Plan
from tidelog.clients.cluster_view import ClusterView
from tidelog.clients.consumer.at_times import first_at_times
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.instant import WallMs

RULE = "must be start, end, 123, -10, @ISO, @-1h, or two of them as in @-30m:@now"

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"([0-9]+)(ms|[smhdw])")
_OFFSET_MAX = 2**63 - 1


class Anchor(Enum):
    """What a point counts from."""

    START = auto()
    END = auto()
    ZERO = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a partition: so many records from an anchor, or a timestamp in milliseconds."""

    anchor: Anchor
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """From a point to the end of the log and on, or to another point."""

    first: Point
    stop: Point | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a range is in one partition: from `first` on, up to and without `stop`."""

    first: Offset
    stop: Offset | None


def parse_range(text: str, now: WallMs) -> Range:
    """ValueError with the rule where it is none.

    >>> parse_range("-10", WallMs(0))
    Range(first=Point(anchor=<Anchor.END: 2>, amount=-10), stop=None)
    """
    point = _point(text, now)
    if point is not None:
        return Range(point)
    # A time of day has colons too: the first one with a point on either side counts.
    for at in (found.start() for found in re.finditer(":", text)):
        first, stop = _point(text[:at], now), _point(text[at + 1 :], now)
        if first is not None and stop is not None:
            return Range(first, stop)
    raise ValueError(f"offset {text!r}: {RULE}")


def plan_offsets(
    view: ClusterView,
    partitions: Iterable[TopicPartition],
    span: Range,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Plan[dict[TopicPartition, Place]]:
    """Where the range is in each partition, now: an end that is asked for is today's.

    A time is the first record at or after it that a reader sees under this isolation level.
    """
    wanted = list(partitions)
    starts = yield from list_offsets(view, dict.fromkeys(wanted, START), isolation)
    ends = yield from list_offsets(view, dict.fromkeys(wanted, END), isolation)
    times: dict[int, Mapping[TopicPartition, FoundOffset]] = {}
    for point in (span.first, span.stop):
        if point is not None and point.anchor is Anchor.TIME:
            asked = dict.fromkeys(wanted, point.amount)
            times[point.amount] = yield from first_at_times(view, asked, isolation)

    def place(point: Point, one: TopicPartition) -> Offset:
        low, high = starts[one].offset, ends[one].offset
        match point.anchor:
            case Anchor.START:
                return low
            case Anchor.END:
                return Offset(min(max(high + point.amount, low), high))
            case Anchor.ZERO:
                return Offset(point.amount)
            case Anchor.TIME:
                found = times[point.amount][one].offset
                return high if found < 0 else found

    return {
        one: Place(place(span.first, one), None if span.stop is None else place(span.stop, one))
        for one in wanted
    }


def _point(text: str, now: WallMs) -> Point | None:
    if text == "start":
        return Point(Anchor.START)
    if text == "end":
        return Point(Anchor.END)
    if text.startswith("@"):
        timestamp = _time(text[1:], now)
        return None if timestamp is None else Point(Anchor.TIME, timestamp)
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        return None
    number = int(text)
    if number > _OFFSET_MAX:
        return None
    return Point(Anchor.END, number) if text.startswith("-") else Point(Anchor.ZERO, number)


def _time(text: str, now: WallMs) -> int | None:
    """Milliseconds since 1970. A time without a zone is UTC, as the records' own stamps are."""
    if text == "now":
        return now
    if text.startswith("-"):
        length = duration_ms(text[1:])
        return None if length is None else max(0, now - length)
    if re.fullmatch(r"[0-9]{13}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1_000))


def duration_ms(text: str) -> int | None:
    """A length of time as people write it, None where it is none.

    >>> duration_ms("1h30m")
    5400000
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)
