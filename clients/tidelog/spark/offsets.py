"""Offsets of many partitions: their JSON, ranges of them, and what of it one micro-batch or one
task takes. Nothing here asks a cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.spark.grouping import grouped

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]
"""As the connector's checkpoints have it: `{"topic":{"0":123}}`."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: from `start` up to `end`, which is not part of it."""

    topic: str
    partition: Partition
    start: Offset
    end: Offset
    from_earliest: bool = False
    """Begin at the first record that is there: it is no loss if earlier ones are gone."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    """Sorted, so that equal offsets are equal texts: Spark compares those.

    >>> to_json({("b", Partition(0)): 1, ("a", Partition(10)): 2, ("a", Partition(9)): 3})
    {'a': {'9': 3, '10': 2}, 'b': {'0': 1}}
    """
    found: Json = {}
    for (topic, number), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def from_json(json: Mapping[str, Mapping[str, int]]) -> Positions:
    """
    >>> from_json({"a": {"9": 3}})
    {('a', 9): 3}
    """
    return {
        (topic, Partition(int(number))): int(offset)
        for topic, partitions in json.items()
        for number, offset in partitions.items()
    }


def ranges_between(start: Positions, end: Positions) -> list[OffsetRange]:
    """What lies between; nothing else is looked at, so that a replay reads the same.

    A partition that `start` does not have is new to the stream and is read from offset 0 on, so
    records that its log has lost since it was created count as lost, as with the connector.
    """
    return [
        OffsetRange(
            topic,
            number,
            Offset(start.get((topic, number), 0)),
            Offset(until),
        )
        for (topic, number), until in sorted(end.items())
        if until > start.get((topic, number), 0)
    ]


def split(
    ranges: Iterable[OffsetRange], *, parts_min: int | None, size_max: int | None
) -> list[OffsetRange]:
    """Ranges cut into about as many as `parts_min`, in proportion to their size, and none larger
    than `size_max`; the order stays."""
    whole = list(ranges)
    total = sum(one.size for one in whole)
    cut: list[OffsetRange] = []
    for one in whole:
        parts = 1
        if parts_min is not None and len(whole) < parts_min and total:
            parts = max(1, round(parts_min * one.size / total))
        if size_max is not None:
            parts = max(parts, -(-one.size // size_max))
        cut += _cut(one, min(parts, one.size))
    return cut


def gathered(ranges: Iterable[OffsetRange], *, size_min: int) -> list[tuple[OffsetRange, ...]]:
    """Ranges that one task reads, one after the other: as many as have so many offsets together.

    Only the last task may have fewer.
    """
    return [tuple(task) for task in grouped(ranges, attrgetter("size"), size_min=size_min)]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    if parts <= 1:
        return [whole]
    edges = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, Offset(start), Offset(end), whole.from_earliest)
        for start, end in pairwise(edges)
    ]


def backlog(start: Positions, latest: Positions, earliest: Positions) -> dict[TopicPartition, int]:
    """How much each partition has left; one that is new counts from its `earliest`."""
    return {
        one: max(0, until - start.get(one, earliest.get(one, 0))) for one, until in latest.items()
    }


def limited(start: Positions, latest: Positions, earliest: Positions, most: int) -> Positions:
    """Ends so that at most about `most` offsets lie before them, shared out by backlog."""
    left = backlog(start, latest, earliest)
    total = sum(left.values())
    if total <= most:
        return dict(latest)
    return {
        one: latest[one] - size + min(size, -(-most * size // total)) for one, size in left.items()
    }


def never_back(start: Positions, latest: Positions) -> Positions:
    """The ends, and for partitions that have none the start again: a stream must come to an end
    also where partitions have vanished."""
    return {**start, **latest}
