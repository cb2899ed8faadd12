"""Where a group shall go on reading: what `group reset-offsets` was told, as offsets. No I/O."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import Partition, TopicPartition

_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


class To(Enum):
    """What the new offset is counted from."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    TIME = auto()
    SHIFT = auto()
    FILE = auto()


class Goal(Struct, frozen=True):
    """Where to go on."""

    to: To
    number: int = 0
    """The offset, the milliseconds since 1970, or how far to shift."""
    offsets: Mapping[TopicPartition, int] = {}
    """Of a file."""


class Known(Struct, frozen=True):
    """What is true of one partition."""

    start: int
    end: int
    committed: int | None = None
    at_time: int = -1
    """The first offset at or after the time asked for, -1 where nothing is as late."""


class Row(Struct, frozen=True):
    """What becomes of one partition."""

    partition: TopicPartition
    before: int | None
    offset: int
    asked: int
    """Before it was clamped to what the partition has."""


class ResettingError(ValueError):
    """One sentence on what cannot be done."""


def reset(goal: Goal, known: Mapping[TopicPartition, Known]) -> list[Row]:
    """By topic and partition; what lies beyond a log's ends is set to the end."""
    rows = []
    for partition, one in sorted(known.items()):
        asked = _asked(goal, partition, one)
        offset = min(max(asked, one.start), one.end)
        rows.append(Row(partition, one.committed, offset, asked))
    return rows


def _asked(goal: Goal, partition: TopicPartition, known: Known) -> int:
    if goal.to is To.SHIFT and known.committed is None:
        raise ResettingError(
            f"{partition[0]}-{partition[1]} cannot be shifted: the group has committed nothing "
            "there; leave it out, or use --to-earliest or --to-latest"
        )
    committed = known.end if known.committed is None else known.committed
    at_time = known.end if known.at_time == -1 else known.at_time
    return {
        To.EARLIEST: known.start,
        To.LATEST: known.end,
        To.CURRENT: committed,
        To.OFFSET: goal.number,
        To.TIME: at_time,
        To.SHIFT: committed + goal.number,
        To.FILE: goal.offsets.get(partition, committed),
    }[goal.to]


def clamped(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that could not be had as asked."""
    return [
        f"{row.partition[0]}-{row.partition[1]}: {row.asked} lies "
        f"{'beyond the end' if row.asked > row.offset else 'before the start'} of the log, "
        f"{row.offset} is taken"
        for row in rows
        if row.asked != row.offset
    ]


def moment_ms(text: str) -> tuple[int, str]:
    """Milliseconds since 1970 of an ISO time, and what to say of its zone: one without is local."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ResettingError(
            f"{text!r} is no time: write it as 2026-01-31T12:00, 2026-01-31T12:00:00.5Z or with "
            "+01:00"
        ) from None
    said = ""
    if at.tzinfo is None:
        at = at.astimezone()
        said = f"{text} has no zone: it is taken as local, {at.isoformat()}"
    return round(at.timestamp() * 1000), said


def duration_ago_ms(text: str, now: datetime) -> int:
    """Milliseconds since 1970, so long ago."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ResettingError(f"{text!r} is no duration: write it as P1D, PT2H30M or P7DT12H")
    parts = {name: float(value) for name, value in found.groupdict().items() if value}
    try:
        at = now.astimezone(UTC) - timedelta(**parts)
    except OverflowError:
        raise ResettingError(f"{text!r} is longer than there is time") from None
    return round(at.timestamp() * 1000)


def read_csv(text: str) -> dict[TopicPartition, int]:
    """`topic,partition,offset` a line, as `--export` prints it."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row:
            continue
        words = [word.strip() for word in row]
        if len(words) != 3 or not all(_is_number(word) for word in words[1:]):
            raise ResettingError(f"line {number}: {','.join(row)!r} is no topic,partition,offset")
        offsets[words[0], Partition(int(words[1]))] = int(words[2])
    return offsets


def write_csv(rows: Iterable[Row]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((*row.partition, row.offset) for row in rows)
    return out.getvalue()


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 20
