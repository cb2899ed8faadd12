"""Drawn topics read by the official connector and by format `tidelog`, in one session of Spark."""

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from harness.kafka.old_cluster import old_cluster
from harness.spark.drawn import Asked, Drawn, drawn_old_topics, drawn_options, drawn_topics
from harness.spark.plain import Place
from tidelog.spark.datasource import BatchReader, TidelogDataSource
from tidelog.spark.options import Mode, source_options

COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
CASES_PER_TOPICS = 5
OLD_EACH = 5
"""Of so many clusters one has messages of old formats."""
_LOOKS = 3
"""A pass of the cleaner between two reads changes what a compacted topic has."""

Row = tuple[Any, ...]


class ForgetsTheLast(TidelogDataSource):
    """A planted fault: each task leaves out the last row of its range."""

    @classmethod
    def name(cls) -> str:
        return "forgets"

    def reader(self, schema: StructType) -> "ForgetfulReader":  # noqa: ARG002 -- Spark's
        return ForgetfulReader(source_options(self.options, Mode.BATCH))


class ForgetfulReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        held = None
        for batch in super().read(partition):
            if held is not None:
                yield held
            held = batch
        if held is not None:
            yield held.slice(0, held.num_rows - 1)


class IgnoresAborts(TidelogDataSource):
    """A planted fault: what was aborted is read as if it had been committed."""

    @classmethod
    def name(cls) -> str:
        return "ignores"

    def reader(self, schema: StructType) -> BatchReader:  # noqa: ARG002 -- Spark's
        given = {**self.options, "kafka.isolation.level": "read_uncommitted"}
        return BatchReader(source_options(given, Mode.BATCH))


PLANTS = (ForgetsTheLast, IgnoresAborts)


class Sources:
    """One cluster, read in one session."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._known: tuple[Asked | None, list[Row]] = None, []

    def rows(self, source: str, options: Mapping[str, Any], where: str = "") -> list[Row]:
        """In order of topic, partition and offset."""
        if where and source != "kafka":
            options = {**options, "tidelog.pushdown": "true"}
        reader = self._spark.read.format(source).option("kafka.bootstrap.servers", self._bootstrap)
        frame = reader.options(**{name: str(one) for name, one in options.items()}).load()
        frame = frame.where(where) if where else frame
        columns = [name for name in COLUMNS if name in frame.columns]
        table = frame.selectExpr(*map(_exact, columns)).toArrow()
        rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
        return sorted(map(_plain, rows), key=lambda row: row[:3])

    def expected(self, drawn: Drawn, asked: Asked) -> list[Row]:
        """What the connector reads; once for each case, unless a cleaner works."""
        if drawn.is_compacted or self._known[0] is not asked:
            self._known = asked, self._expected(drawn, asked)
        return self._known[1]

    def _expected(self, drawn: Drawn, asked: Asked) -> list[Row]:
        """It takes markers for records where it looks for a time, so
        there its rows of the whole topics are cut here."""
        if not asked.times:
            return self.rows("kafka", asked.options, asked.where)
        if not drawn.has_markers:
            strategy = {"startingOffsetsByTimestampStrategy": "latest"}
            return self.rows("kafka", {**asked.options, **asked.times, **strategy})
        return _between(self.rows("kafka", asked.options), asked.times)

    def found(self, asked: Asked, source: str = "tidelog") -> list[Row]:
        strategy = {"startingOffsetsByTimestampStrategy": "latest"} if asked.times else {}
        return self.rows(source, {**asked.options, **asked.times, **strategy}, asked.where)

    def difference(self, drawn: Drawn, asked: Asked, source: str = "tidelog") -> str:
        """Nothing where both give the same rows."""
        said = ""
        for _ in range(_LOOKS if drawn.is_compacted else 1):
            said = told(self.expected(drawn, asked), self.found(asked, source))
            if not said:
                break
        return said


def _exact(column: str) -> str:
    """As a number: Python's times do not go as far as Spark's."""
    return "unix_micros(timestamp) as timestamp" if column == "timestamp" else f"`{column}`"


def _plain(row: tuple[Any, ...]) -> Row:
    return tuple(
        json.dumps(one, default=bytes.hex) if isinstance(one, list) else one for one in row
    )


def _between(rows: list[Row], times: Mapping[str, int]) -> list[Row]:
    """From the first row of each partition that is not older to before the first of the other."""
    first = _first_at(rows, times.get("startingTimestamp"), 0)
    stop = _first_at(rows, times.get("endingTimestamp"), 2**63)
    return [row for row in rows if first(row) <= row[2] < stop(row)]


def _first_at(rows: list[Row], time_ms: int | None, default: int) -> Any:
    if time_ms is None:
        return lambda _row: default
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        if row[5] >= time_ms * 1000:
            found.setdefault(row[:2], row[2])
    return lambda row: found.get(row[:2], 2**63)


def told(expected: list[Row], found: list[Row]) -> str:
    if expected == found:
        return ""
    missing, more = set(expected) - set(found), set(found) - set(expected)
    first = repr(sorted(missing)[:1] + sorted(more)[:1])[:900]
    counts = f"{len(expected)} rows, {len(found)} here"
    return f"{counts}: {len(missing)} missing, {len(more)} more: {first}"


class Comparison:
    """Cases of one seed, and what came of them."""

    def __init__(self, spark: SparkSession, bootstrap: str, seed: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._seed = seed
        for plant in PLANTS:
            spark.dataSource.register(plant)
        self.done = 0
        self.differ: list[dict[str, Any]] = []
        self.caught: dict[str, int] = {}
        kinds = ("markers", "compacted", "by time", "committed only", "filtered", "old formats")
        self.seen = dict.fromkeys(kinds, 0)

    def topics(self, cases: int) -> None:
        """Make topics, and read them in several ways."""
        chance, prefix = self._next()
        place = Place(self._bootstrap)
        drawn = drawn_topics(place, chance, prefix)
        self._read(place, chance, drawn, cases)
        for producer in drawn.unfinished:
            producer.abort()

    def old_topics(self, cases: int) -> None:
        """The same of a cluster that has messages of formats 0 and 1."""
        chance, prefix = self._next()
        drawn, logs = drawn_old_topics(chance, prefix)
        with old_cluster(logs) as bootstrap:
            self._read(Place(bootstrap), chance, drawn, cases)
        self.seen["old formats"] += cases

    def _next(self) -> tuple[Random, str]:
        return Random(f"{self._seed} {self.done}"), f"f{self._seed}x{self.done}"

    def _read(self, place: Place, chance: Random, drawn: Drawn, cases: int) -> None:
        sources = Sources(self._spark, place.bootstrap)
        for _ in range(cases):
            asked = drawn_options(place, chance, drawn)
            self.done += 1
            self._note(drawn, asked)
            said = sources.difference(drawn, asked)
            if said:
                self.differ.append({"case": self.done, "says": said, "asked": repr(asked)})
            self._look_for_plants(sources, drawn, asked)

    def _look_for_plants(self, sources: Sources, drawn: Drawn, asked: Asked) -> None:
        for plant in PLANTS:
            name = plant.name()
            if name not in self.caught and sources.difference(drawn, asked, name):
                self.caught[name] = self.done

    def _note(self, drawn: Drawn, asked: Asked) -> None:
        self.seen["markers"] += drawn.has_markers
        self.seen["compacted"] += drawn.is_compacted
        self.seen["filtered"] += bool(asked.where)
        self.seen["by time"] += bool(asked.times)
        self.seen["committed only"] += asked.options["kafka.isolation.level"] == "read_committed"


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """How many cases were compared, those that differ, and which planted faults were found."""
    comparison = Comparison(spark, asked["bootstrap"], asked["seed"])
    began = time.monotonic()
    turns = itertools.cycle([*[comparison.topics] * (OLD_EACH - 1), comparison.old_topics])
    while comparison.done < asked["cases"]:
        next(turns)(min(CASES_PER_TOPICS, asked["cases"] - comparison.done))
    return {
        "cases": comparison.done,
        "differ": comparison.differ,
        "caught": comparison.caught,
        "seen": comparison.seen,
        "seconds": time.monotonic() - began,
    }
