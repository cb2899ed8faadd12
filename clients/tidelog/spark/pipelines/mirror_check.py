"""Whether a copy has what a mirror says that it has copied."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.kernel.ids import TopicPartition
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines.contents import Difference, Taken, differences, shown
from tidelog.spark.pipelines.counting import count_records
from tidelog.spark.pipelines.frames import Driven, read_between
from tidelog.spark.pipelines.mirror_memory import Counted, Memory
from tidelog.spark.pipelines.output import note
from tidelog.spark.pipelines.topics import compacted, connect, settled_ends, starts

_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to say of a round."""

    rows: int
    """Of the source, since the copy was counted last."""
    found: int | None
    """In the copy, since then; None where nobody can know."""
    now: Counted | None
    differences: Collection[Difference] = ()

    @property
    def is_wrong(self) -> bool:
        return self.lost > 0 or any(one.is_wrong for one in self.differences)

    @property
    def lost(self) -> int:
        """Also where their own source has taken them meanwhile, so that nobody can name them."""
        missing = self.rows - (self.rows if self.found is None else self.found)
        removed = sum(one.removed for one in self.differences)
        return max(missing - removed, sum(one.lost for one in self.differences), 0)

    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = {"rows": self.rows, "found": self.found}
        if self.differences:
            said["differences"] = shown(self.differences, _NAMED_MAX)
        return said

    def sentence(self, to: str) -> str:
        doubled = sum(one.doubled for one in self.differences)
        return (
            f"the copy in {to} differs from what was read: of {self.rows} rows {self.lost} are not "
            f"there, and {doubled} are there more than once; look at `differences`, and mirror the "
            "topics again into new ones, by --prefix and with a new --checkpoint"
        )


class Check:
    """Between two clusters."""

    def __init__(self, spark: SparkSession, source: str, to: str, prefix: str) -> None:
        self._spark = spark
        self._source = source
        self._to = to
        self._prefix = prefix

    def of(self, done: Driven, memory: Memory) -> Found:
        """Only what has come since the copy was counted last is read: of the copy, and of the
        source what this run has not read itself."""
        since = memory.counted
        copied = done.ends if since is None else {**since.source, **done.ends}
        places = [self._there(one) for one in copied]
        now = Counted(copied, settled_ends(connect(self._to), places))
        if since is None:
            note(
                "not counted: the checkpoint is of an earlier version; the next run counts its rows"
            )
            return Found(done.rows, None, now)
        rows = done.rows + sum(
            count_records(self._spark, self._source, one.first or {}, one.stop)
            for one in done.unread(since.source)
        )
        found = count_records(self._spark, self._to, self._begins(since, now), now.copy)
        if found == rows or not rows:
            return Found(rows, found, now)
        return Found(rows, found, now, self._differences(since, now))

    def _there(self, place: TopicPartition) -> TopicPartition:
        return self._prefix + place[0], place[1]

    def _begins(self, since: Counted, now: Counted) -> Positions:
        """In the copy, within what its logs have."""
        first = starts(connect(self._to), now.copy)
        return {one: max(at, since.copy.get(one, 0)) for one, at in first.items()}

    def _differences(self, since: Counted, now: Counted) -> list[Difference]:
        begins = self._begins(since, now)
        cut = [one for one, at in begins.items() if at > since.copy.get(one, 0)]
        taken = Taken(compacted(connect(self._to), {topic for topic, _ in now.copy}), cut)
        first = starts(connect(self._source), now.source)
        first = {one: max(at, since.source.get(one, 0)) for one, at in first.items()}
        prefix = f.lit(self._prefix)
        wanted = self._records(self._source, first, now.source)
        wanted = wanted.withColumn("topic", f.concat(prefix, f.col("topic")))
        return differences(wanted, self._records(self._to, begins, now.copy), taken)

    def _records(self, bootstrap: str, first: Positions, stop: Positions) -> DataFrame:
        last = {one: max(at, stop[one]) for one, at in first.items()}
        return read_between(self._spark, bootstrap, first, last, headers=True)
