"""Topics to Parquet: offsets, timestamps and headers are kept; goes on where it stopped."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE
from tidelog.spark.pipelines.frames import Driven
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import partitions_of
from tidelog.spark.sessions import read_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    topics: str
    dest: str
    checkpoint: str | None = None
    by_date: bool = False
    follow: bool = False
    batch_offsets: int = option(given.size, 1_000_000)
    uncommitted: bool = False

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
    done = Driven(writer.start(), "export").to_the_end()
    ends = {f"{topic}-{number}": end for (topic, number), end in sorted(done.ends.items())}
    emit(
        {
            "pipeline": "export",
            "dest": arguments.dest,
            "rows": done.rows,
            "micro_batches": done.batches,
            "ends": ends,
        }
    )
    return INTERRUPTS.code if INTERRUPTS.asked and not arguments.follow else DONE


def dated(rows: DataFrame, *, by_date: bool) -> DataFrame:
    """With the day of each record, in UTC."""
    return rows.withColumn("date", f.to_date("timestamp")) if by_date else rows
