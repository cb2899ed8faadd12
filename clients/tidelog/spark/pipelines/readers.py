"""Whether readers find the rows of a load that brokers have acknowledged."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import TopicPartition
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines.counting import Spans, count_records, count_within, merged
from tidelog.spark.pipelines.loading import Report
from tidelog.spark.pipelines.topics import compacted, connect, ends, partitions_of, starts

_WAIT_S = 10.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """In rows."""

    acknowledged: int
    found: int
    removed: int = 0
    """By retention, since they were written."""
    is_compacted: bool = False

    @property
    def lost(self) -> int:
        """Of a compacted topic nobody can tell them from superseded ones."""
        return 0 if self.is_compacted else max(0, self.acknowledged - self.removed - self.found)

    def document(self) -> dict[str, Any]:
        return {"found": self.found, **({"removed": self.removed} if self.removed else {})}

    def sentence(self, topic: str, *, acks: str) -> str:
        why = (
            "with --acks 0 brokers confirm nothing; load again with --acks all"
            if acks == "0"
            else f"tidelog why {topic} tells what happened to its partitions"
        )
        return (
            f"of {self.acknowledged} rows that count as acknowledged readers of topic {topic!r} "
            f"find {self.found}, {self.lost} are not there: {why}"
        )


def begins(bootstrap: str, topic: str) -> Positions:
    """Where the partitions of a topic end before the load."""
    client = connect(bootstrap)
    return ends(client, partitions_of(client, topic), Isolation.READ_UNCOMMITTED)


class Readers:
    """Of the topic that was written. They may be held back by transactions of others, so that these
    read what is not committed, too; a load has no transactions of its own."""

    def __init__(self, spark: SparkSession, bootstrap: str, before: Positions) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._before = before

    def of(self, reports: list[Report]) -> Found:
        """What was acknowledged is looked for where the brokers said; what has no offset, among
        all that has come since."""
        client = connect(self._bootstrap)
        told = {place: merged(_spans_of(reports, place)) for place in self._before}
        first = starts(client, self._before)
        kept = {place: _since(one, first[place]) for place, one in told.items()}
        there = {place: one for place, one in kept.items() if one}
        found = count_within(self._spark, self._bootstrap, there)
        unplaced = sum(one.unplaced for one in reports)
        if unplaced:
            found += min(unplaced, self._grown(_rows(told) + unplaced) - found)
        acknowledged = sum(one.rows - one.failed for one in reports)
        topics = {topic for topic, _ in self._before}
        removed = _rows(told) - _rows(kept)
        return Found(acknowledged, found, removed, bool(compacted(client, topics)))

    def _grown(self, rows: int) -> int:
        """By how many records: nobody has said when the last of them are there."""
        client, until = connect(self._bootstrap), time.monotonic() + _WAIT_S
        while True:
            now = ends(client, self._before, Isolation.READ_UNCOMMITTED)
            grown = sum(now.values()) - sum(self._before.values())
            if grown >= rows or time.monotonic() > until:
                return count_records(
                    self._spark, self._bootstrap, self._before, now, committed=False
                )
            time.sleep(_LOOK_S)


def _spans_of(reports: Iterable[Report], place: TopicPartition) -> Spans:
    return [span for one in reports for span in one.acked.get(place, [])]


def _since(spans: Spans, start: int) -> Spans:
    return [(max(first, start), stop) for first, stop in spans if stop > start]


def _rows(spans: Mapping[TopicPartition, Spans]) -> int:
    return sum(stop - first for of_place in spans.values() for first, stop in of_place)
