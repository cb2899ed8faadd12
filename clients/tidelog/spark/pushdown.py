"""Filters of a query that narrow what is read; Spark goes on to filter what comes of it.

So a range may be too wide, never too narrow. A filter that is not understood narrows nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog.kernel.ids import TopicPartition

OFFSET_MAX = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Condition:
    """`column comparison value`; `in` has a tuple."""

    column: str
    comparison: str
    value: Any


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the conditions, all of which hold, leave to be read. None: any."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int = OFFSET_MAX
    not_before_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        topic, number = partition
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or number in self.partitions
        )


def pushed_by(conditions: Iterable[Condition]) -> Pushed:
    """
    >>> pushed_by([Condition("offset", ">", 9), Condition("partition", "=", 1)]).first
    10
    """
    pushed = Pushed()
    for one in conditions:
        narrowed = _BY_COLUMN.get(one.column)
        if narrowed is not None:
            pushed = narrowed(pushed, one)
    return pushed


def _topics(pushed: Pushed, one: Condition) -> Pushed:
    return replace(pushed, topics=_both(pushed.topics, _values(one)))


def _partitions(pushed: Pushed, one: Condition) -> Pushed:
    return replace(pushed, partitions=_both(pushed.partitions, _values(one)))


def _offsets(pushed: Pushed, one: Condition) -> Pushed:
    low, high = _between(one.comparison, one.value)
    return replace(pushed, first=max(pushed.first, low), end=min(pushed.end, high))


def _timestamps(pushed: Pushed, one: Condition) -> Pushed:
    """Only a lower bound: timestamps need not rise.

    A bound before 1970 is left to Spark: a negative time asks a broker for something else, -1 for
    the end of the log for example.
    """
    if one.comparison not in {">", ">=", "="} or not isinstance(one.value, datetime):
        return pushed
    at = (one.value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    if at < 0:
        return pushed
    known = pushed.not_before_ms
    return replace(pushed, not_before_ms=at if known is None else max(at, known))


_BY_COLUMN: Final[Mapping[str, Callable[[Pushed, Condition], Pushed]]] = {
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
}


def _both(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _values(one: Condition) -> frozenset[Any] | None:
    match one.comparison:
        case "=":
            return frozenset({one.value})
        case "in":
            return frozenset(one.value)
        case _:
            return None


def _between(comparison: str, value: Any) -> tuple[int, int]:  # noqa: ANN401 -- `in` has a tuple
    """The first offset that the comparison allows, and the one behind the last.

    Null equals nothing, so an `in` with a null allows what it would allow without.
    """
    given = [one for one in (value if comparison == "in" else (value,)) if one is not None]
    low, high = 0, OFFSET_MAX
    if not given:
        return low, high
    match comparison:
        case ">":
            low = given[0] + 1
        case ">=":
            low = given[0]
        case "<":
            high = given[0]
        case "<=":
            high = given[0] + 1
        case "=" | "in":
            low, high = min(given), max(given) + 1
        case _:
            pass
    return low, high
