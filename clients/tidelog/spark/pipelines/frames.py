"""Data frames of topics, streams that are driven to their end, and what tells topics apart."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.kernel.ids import TopicPartition, by_topic
from tidelog.spark.offsets import Positions, from_json, to_json
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import progress, progress_ends

_LOOK_S = 1
_LOOKS_TO_STOP = 10


def read_topics(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    """What there is; two underscores in a name are a dot."""
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{name.replace("__", "."): one for name, one in options.items()}).load()


def read_between(
    spark: SparkSession,
    bootstrap: str,
    first: Mapping[TopicPartition, int],
    stop: Mapping[TopicPartition, int],
    *,
    columns: str = "",
    headers: bool = False,
) -> DataFrame:
    """The committed records of ranges of offsets."""
    chosen = {"tidelog__columns": columns} if columns else {}
    return read_topics(
        spark,
        bootstrap,
        assign=json.dumps(by_topic(sorted(first))),
        startingOffsets=json.dumps(to_json(first)),
        endingOffsets=json.dumps(to_json({one: stop[one] for one in first})),
        kafka__isolation__level="read_committed",
        includeHeaders=str(headers).lower(),
        **chosen,
    )


def read_files(
    spark: SparkSession, folder: str, topics: str, *, columns: str = "", headers: bool = False
) -> DataFrame:
    """The committed records in the files of a cluster that is not asked, and may be stopped."""
    reader = (
        spark.read.format("tidelog")
        .option("tidelog.read", "segments")
        .option("tidelog.dataDirs", folder)
        .option("subscribe", topics)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", str(headers).lower())
    )
    return (reader.option("tidelog.columns", columns) if columns else reader).load()


class Span(NamedTuple):
    """Offsets of a micro-batch; those of a stream's first one have no beginning."""

    first: Positions | None
    stop: Positions


class Driven:
    """A stream while it runs, and what it has done."""

    def __init__(self, query: StreamingQuery, what: str) -> None:
        self._query = query
        self._what = what
        self._rows: dict[int, int] = {}
        self._spans: dict[int, Span] = {}
        self.ends: Positions = {}

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def batches(self) -> int:
        return sum(1 for rows in self._rows.values() if rows)

    @property
    def begin(self) -> Positions:
        """Where the first micro-batch of this run has begun."""
        first = self._spans[min(self._spans)].first if self._spans else None
        return first or {}

    def unread(self, since: Positions) -> list[Span]:
        """Spans of offsets from there to the ends that this run has not read itself: an earlier
        run has, or Spark has found their micro-batch done."""
        spans = [self._spans[batch] for batch in sorted(self._spans)]
        begin = spans[0].first if spans else self.ends
        found = [Span(since, begin)] if begin is not None else []
        silent = [span for batch, span in self._spans.items() if not self._rows[batch]]
        return [*found, *(Span(one.first or since, one.stop) for one in silent)]

    def to_the_end(self) -> "Driven":
        """Until it has read all there is, has failed, or is interrupted: then it stops in order."""
        with INTERRUPTS.awaited():
            while not self._query.awaitTermination(_LOOK_S):
                self._look()
                if INTERRUPTS.asked:
                    self._stop()
        self._look()
        progress_ends()
        return self

    def _stop(self) -> None:
        """Once the micro-batch that is being done is done, if that is soon: one that is broken off
        may be written, but nobody is told of it before it is done again."""
        done = len(self._rows)
        for _ in range(_LOOKS_TO_STOP):
            if len(self._rows) > done or not self._query.status["isTriggerActive"]:
                break
            if self._query.awaitTermination(_LOOK_S):
                return
            self._look()
        self._query.stop()

    def _look(self) -> None:
        for one in self._query.recentProgress:
            self._rows[one["batchId"]] = one["numInputRows"]
            source = one["sources"][0]
            end = _positions(source["endOffset"])
            if end is not None:
                self._spans[one["batchId"]] = Span(_positions(source.get("startOffset")), end)
                self.ends |= end
        progress(f"{self._what}: {self.batches} micro-batches, {self.rows} rows")


def _positions(said: Any) -> Positions | None:  # noqa: ANN401 -- as Spark says it, perhaps as text
    found = json.loads(said) if isinstance(said, str) else said
    return None if found is None else from_json(found)


def fingerprints(rows: DataFrame) -> dict[tuple[str, int], tuple[int, int]]:
    """How many rows each partition has, and a number that differs where any of them, or their
    order, does."""
    place = Window.partitionBy("topic", "partition").orderBy("offset")
    said = f.xxhash64(f.row_number().over(place), *record_parts())
    found = (
        rows.withColumn("said", said)
        .groupBy("topic", "partition")
        .agg(f.count("*").alias("rows"), f.bit_xor("said").alias("print"))
    )
    return {(row.topic, row.partition): (row.rows, row["print"]) for row in found.collect()}


def record_parts() -> list[Column]:
    """All that makes a record what it is, in a form in which equal hashes mean equal records.

    Spark's hash functions skip nulls and do not mark where an array ends: so each part that may be
    null is preceded by whether it is, and the headers by their number.
    """
    no_headers = f.array().cast("array<struct<key:string,value:binary>>")
    headers = f.coalesce("headers", no_headers)
    pairs = f.transform(headers, lambda one: f.struct(*_marked(one["key"]), *_marked(one["value"])))
    return [
        *_marked(f.col("key")),
        *_marked(f.col("value")),
        *_marked(milliseconds(f.col("timestamp"))),
        f.size(headers),
        pairs,
    ]


def _marked(part: Column) -> tuple[Column, Column]:
    return part.isNull(), part


def milliseconds(moment: Column) -> Column:
    """Since 1970, as records have it."""
    return f.unix_millis(moment)


def first_rows(rows: DataFrame, count: int) -> list[dict[str, Any]]:
    """Some rows for people: bytes as text where they are one."""
    return [_shown(row.asDict(recursive=True)) for row in rows.limit(count).collect()]


def _shown(value: Any) -> Any:  # noqa: ANN401 -- anything that a row holds
    match value:
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "backslashreplace")
        case dict():
            return {name: _shown(one) for name, one in value.items()}
        case list():
            return [_shown(one) for one in value]
        case _:
            return value
