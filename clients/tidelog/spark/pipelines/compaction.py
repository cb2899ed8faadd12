"""What compaction would take from a topic, and what it would leave, by partition."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.clients.settings import Isolation
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, UsageError
from tidelog.spark.pipelines.frames import first_rows, read_between, read_files
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.segments_of import by_segment, segments_in
from tidelog.spark.pipelines.topics import connect, ends, partitions_of, starts

_SUMS = ("records", "superseded", "tombstones", "unkeyed", "bytes", "superseded_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    bootstrap: str = ""
    data: str | None = None
    topic: str
    top: int = option(given.whole, 5)

    def check(self) -> None:
        if not self.bootstrap and self.data is None:
            raise UsageError("give --bootstrap, or --data of a cluster that is stopped")

    def look(self, client: Client) -> None:
        partitions_of(client, self.topic)


def main(spark: SparkSession, arguments: Arguments) -> int:
    rows = judged(_read(spark, arguments)).cache()
    partitions = [row.asDict() for row in by_partition(rows).collect()]
    total = {name: sum(one[name] for one in partitions) for name in _SUMS}
    share = total["superseded_bytes"] / total["bytes"] if total["bytes"] else 0.0
    emit(
        {
            "pipeline": "compaction",
            "topic": arguments.topic,
            **total,
            "removable_ratio": round(share, 4),
            "partitions": partitions,
            "keys": rewritten(rows, arguments.top),
            **(_of_segments(rows, arguments) if arguments.data is not None else {}),
        }
    )
    return DONE


def _read(spark: SparkSession, arguments: Arguments) -> DataFrame:
    columns = "key,value,partition,offset"
    if arguments.data is not None:
        return read_files(spark, arguments.data, arguments.topic, columns=columns)
    client = connect(arguments.bootstrap)
    places = partitions_of(client, arguments.topic)
    first, stop = starts(client, places), ends(client, places, Isolation.READ_COMMITTED)
    return read_between(spark, arguments.bootstrap, first, stop, columns=columns)


def _of_segments(rows: DataFrame, arguments: Arguments) -> dict[str, Any]:
    """Which of the segments most would go from."""
    bases = segments_in(Path(arguments.data or ""), arguments.topic)
    found = by_segment(rows, bases).orderBy(f.desc("superseded_bytes"), "partition", "segment")
    return {"segments": first_rows(found, arguments.top)}


def judged(rows: DataFrame) -> DataFrame:
    """Each record with its size, and whether a later one of its key supersedes it. Compaction
    takes a key's last record too where that is a tombstone, after delete.retention.ms."""
    same = Window.partitionBy("partition", "key")
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    is_older = f.col("key").isNotNull() & (f.col("offset") < f.max("offset").over(same))
    return rows.select(
        "partition",
        "offset",
        "key",
        size.alias("size"),
        f.col("value").isNull().alias("deletes"),
        is_older.alias("superseded"),
    )


def by_partition(rows: DataFrame) -> DataFrame:
    """In records and bytes of keys and values."""
    is_last = ~f.col("superseded")
    return (
        rows.groupBy("partition")
        .agg(
            f.count("*").alias("records"),
            f.count_if("superseded").alias("superseded"),
            f.count_if(is_last & f.col("deletes") & f.col("key").isNotNull()).alias("tombstones"),
            f.count_if(f.col("key").isNull()).alias("unkeyed"),
            f.sum("size").alias("bytes"),
            f.sum(f.when(f.col("superseded"), f.col("size")).otherwise(0)).alias(
                "superseded_bytes"
            ),
        )
        .orderBy("partition")
    )


def rewritten(rows: DataFrame, count: int) -> list[dict[str, Any]]:
    """The keys of which most would go."""
    if not count:
        return []
    keys = (
        rows.where("superseded")
        .groupBy("key")
        .agg(f.count("*").alias("superseded"), f.sum("size").alias("superseded_bytes"))
    )
    return first_rows(keys.orderBy(f.desc("superseded_bytes"), "key"), count)
