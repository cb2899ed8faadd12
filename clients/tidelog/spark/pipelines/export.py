"""Topics to Parquet: offsets, timestamps and headers are kept; goes on where it stopped."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.spark.offsets import Positions, from_json, to_json
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.counting import count_records
from tidelog.spark.pipelines.failures import DONE, VIOLATION
from tidelog.spark.pipelines.frames import Driven
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.kept import Kept, check_local
from tidelog.spark.pipelines.output import emit, note
from tidelog.spark.pipelines.topics import partitions_of
from tidelog.spark.sessions import read_stream

_FILE = "tidelog-export.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    topics: str
    dest: str
    checkpoint: str | None = None
    by_date: bool = False
    follow: bool = False
    batch_offsets: int = option(given.size, 1_000_000)
    uncommitted: bool = False

    def check(self) -> None:
        check_local(self.checkpoint or self.dest)

    def look(self, client: Client) -> None:
        partitions_of(client, self.topics)


def main(spark: SparkSession, arguments: Arguments) -> int:
    # Spark takes no file for data whose name, or whose folder's, begins so.
    checkpoint = arguments.checkpoint or f"{arguments.dest}/_checkpoint"
    rows = read_stream(
        spark,
        arguments.bootstrap,
        checkpoint=checkpoint,
        subscribe=arguments.topics,
        startingOffsets="earliest",
        includeHeaders=True,
        maxOffsetsPerTrigger=arguments.batch_offsets,
        kafka__isolation__level="read_uncommitted" if arguments.uncommitted else "read_committed",
    )
    writer = (
        dated(rows, by_date=arguments.by_date)
        .writeStream.format("parquet")
        .option("path", arguments.dest)
        .option("checkpointLocation", checkpoint)
        .partitionBy("topic", "partition", *(["date"] if arguments.by_date else []))
    )
    writer = writer if arguments.follow else writer.trigger(availableNow=True)
    with INTERRUPTS.awaited():
        done = Driven(writer.start(), "export").to_the_end()
        if INTERRUPTS.asked and not arguments.follow:
            _tell(arguments, done, {"rows": done.rows, "found": None})
            return INTERRUPTS.code
        return _checked(spark, arguments, done, Kept(f"{checkpoint}/{_FILE}"))


def _checked(spark: SparkSession, arguments: Arguments, done: Driven, kept: Kept) -> int:
    """Counted since the last run that came to here: one that was killed has written rows, too."""
    document = kept.read()
    begin = done.begin if document is None else from_json(document)
    files = Files(spark, arguments.dest, begin, {**begin, **done.ends})
    committed = not arguments.uncommitted
    rows = done.rows + sum(
        count_records(spark, arguments.bootstrap, one.first or {}, one.stop, committed=committed)
        for one in done.unread(begin)
    )
    found = files.rows()
    # More than can be read now: the topic may have lost some since, but none may be there twice.
    doubled = found - files.different_rows() if found > rows else 0
    _tell(arguments, done, {"rows": rows, "found": found})
    if found < rows or doubled:
        note(
            f"error: the files in {arguments.dest} differ from what was read: of {rows} rows "
            f"{max(0, rows - found)} are not there, and {doubled} are there more than once: "
            "export again, into another --dest"
        )
        return VIOLATION
    kept.write(to_json(files.stop))
    return DONE


def _tell(arguments: Arguments, done: Driven, counts: dict[str, Any]) -> None:
    ends = {f"{topic}-{number}": end for (topic, number), end in sorted(done.ends.items())}
    told = {"dest": arguments.dest, **counts, "micro_batches": done.batches, "ends": ends}
    emit({"pipeline": "export", **told})


class Files:
    """The rows of a span of offsets, in the files that Spark's file sink has taken note of."""

    def __init__(self, spark: SparkSession, folder: str, first: Positions, stop: Positions) -> None:
        self.stop = stop
        rows = spark.read.schema("topic string, partition int, offset bigint")
        self._rows = rows.parquet(folder).where(_between(first, stop))

    def rows(self) -> int:
        return self._rows.count()

    def different_rows(self) -> int:
        return self._rows.select("topic", "partition", "offset").distinct().count()


def _between(first: Positions, stop: Positions) -> Column:
    """Per partition, so that most files need no look."""
    spans = [
        (f.col("topic") == topic)
        & (f.col("partition") == int(number))
        & (f.col("offset") >= first.get((topic, number), 0))
        & (f.col("offset") < end)
        for (topic, number), end in stop.items()
        if end > first.get((topic, number), 0)
    ]
    return reduce(or_, spans, f.lit(0) == 1)


def dated(rows: DataFrame, *, by_date: bool) -> DataFrame:
    """With the day of each record, in UTC."""
    return rows.withColumn("date", f.to_date("timestamp")) if by_date else rows
