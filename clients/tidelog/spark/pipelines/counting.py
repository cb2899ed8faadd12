"""What readers of records find, counted by tasks.

Only offsets are decoded, and none of them passes through the JVM.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.spark.offsets import OffsetRange, Positions, ranges_between, split
from tidelog.spark.options import Mode, SourceOptions, source_options
from tidelog.spark.pipelines.topics import connect, ends
from tidelog.spark.reading import read_range

Offsets = npt.NDArray[np.int64]
Spans = list[tuple[int, int]]
"""Each from a first offset up to another one, which is not part of it."""
_OFFSETS_AT_ONCE = 5_000_000


class Asked(NamedTuple):
    """What one task counts: of a range, the offsets that lie in the spans, or all of them."""

    wanted: OffsetRange
    spans: Offsets | None = None


def count_records(
    spark: SparkSession,
    bootstrap: str,
    first: Positions,
    stop: Positions,
    *,
    committed: bool = True,
) -> int:
    """How many there are between; what is gone is passed over."""
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    there = ends(connect(bootstrap), stop, isolation)
    asked = [Asked(one) for one in _ranges(spark, first, stop, there)]
    return _count(spark, bootstrap, asked, committed=committed)


def count_within(spark: SparkSession, bootstrap: str, spans: Mapping[TopicPartition, Spans]) -> int:
    """How many records have an offset in one of the spans, committed or not; each counts once."""
    there = ends(connect(bootstrap), spans, Isolation.READ_UNCOMMITTED)
    asked = []
    for place, of_place in spans.items():
        edges = np.array(sorted(of_place), np.int64)
        first, stop = {place: int(edges[0, 0])}, {place: int(edges[:, 1].max())}
        asked += [Asked(one, edges) for one in _ranges(spark, first, stop, there)]
    return _count(spark, bootstrap, asked, committed=False)


def visible_offsets(
    bootstrap: str, place: TopicPartition, first: int, stop: int, *, committed: bool = True
) -> Offsets:
    """Of the records there; nothing of them but the offset is decoded."""
    if first >= stop:
        return np.empty(0, np.int64)
    span = OffsetRange(*place, Offset(first), Offset(stop), from_earliest=True)
    options = _options(bootstrap, place[0], committed=committed)
    parts = [batch.column("offset").to_numpy() for batch in read_range(span, options)]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def within(offsets: Offsets, spans: Offsets) -> int:
    """
    >>> within(np.array([1, 3, 4, 7, 9]), np.array([[2, 4], [4, 5], [9, 12]]))
    3
    """
    before = np.searchsorted(spans[:, 0], offsets, side="right") - 1
    return int(((before >= 0) & (offsets < spans[np.maximum(before, 0), 1])).sum())


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """
    >>> merged([(4, 6), (0, 2), (2, 3)])
    [(0, 3), (4, 6)]
    """
    found: Spans = []
    for first, stop in sorted(spans):
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found


def _ranges(
    spark: SparkSession, first: Positions, stop: Positions, there: Positions
) -> list[OffsetRange]:
    """Not beyond the ends of the logs: an unclean election may have cut them."""
    tasks = spark.sparkContext.defaultParallelism
    found = ranges_between(first, {one: min(at, there[one]) for one, at in stop.items()})
    return split(found, parts_min=tasks, size_max=_OFFSETS_AT_ONCE)


def _count(spark: SparkSession, bootstrap: str, asked: list[Asked], *, committed: bool) -> int:
    if not asked:
        return 0
    tasks = spark.sparkContext.parallelize(asked, len(asked))
    return sum(tasks.map(partial(_found, bootstrap, committed)).collect())


def _found(bootstrap: str, committed: bool, asked: Asked) -> int:  # noqa: FBT001 -- for partial
    one = asked.wanted
    found = visible_offsets(bootstrap, one.place, one.start, one.end, committed=committed)
    return len(found) if asked.spans is None else within(found, asked.spans)


def _options(bootstrap: str, topic: str, *, committed: bool) -> SourceOptions:
    given: dict[str, Any] = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "tidelog.columns": "offset",
        "kafka.isolation.level": "read_committed" if committed else "read_uncommitted",
        "failOnDataLoss": "false",
    }
    return source_options(given, Mode.BATCH)
