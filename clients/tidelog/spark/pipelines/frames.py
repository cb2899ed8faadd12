"""Data frames of topics, streams that are driven to their end, and what tells topics apart."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.kernel.ids import TopicPartition, by_topic
from tidelog.spark.offsets import from_json, to_json
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


class Driven:
    """A stream while it runs, and what it has done."""

    def __init__(self, query: StreamingQuery, what: str) -> None:
        self._query = query
        self._what = what
        self._rows: dict[int, int] = {}
        self.ends: dict[TopicPartition, int] = {}

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def batches(self) -> int:
        return sum(1 for rows in self._rows.values() if rows)

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
            end = one["sources"][0]["endOffset"]
            if end is not None:
                self.ends |= from_json(json.loads(end) if isinstance(end, str) else end)
        progress(f"{self._what}: {self.batches} micro-batches, {self.rows} rows")


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
