"""Topics of one cluster into another, exactly once, and the offsets of groups with them."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, UsageError
from tidelog.spark.pipelines.frames import Driven
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import (
    connect,
    ensure_topics,
    partition_counts,
    partitions_of,
)
from tidelog.spark.pipelines.translating import Copy
from tidelog.spark.sessions import read_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    to: str
    topics: str
    checkpoint: str
    name: str = "mirror"
    prefix: str = ""
    groups: str | None = None
    replicas: int = option(given.whole, 0)
    batch_offsets: int = option(given.size, 1_000_000)
    follow: bool = False
    interval: float = option(given.seconds, 5.0)

    def check(self) -> None:
        if self.to == self.bootstrap and not self.prefix:
            raise UsageError(
                "--to is the cluster itself: the copies need another name, by --prefix"
            )

    def look(self, client: Client) -> None:
        counts = partition_counts(partitions_of(client, self.topics))
        copies = {self.prefix + topic: count for topic, count in counts.items()}
        ensure_topics(connect(self.to), copies, self.replicas or -1)


def main(spark: SparkSession, arguments: Arguments) -> int:
    if not arguments.follow:
        _round(spark, arguments, tells_always=True)
        return INTERRUPTS.code if INTERRUPTS.asked else DONE
    first = True
    with INTERRUPTS.awaited():
        while not INTERRUPTS.asked:
            _round(spark, arguments, tells_always=first)
            first = False
            INTERRUPTS.pause(arguments.interval)
    return DONE


def _round(spark: SparkSession, arguments: Arguments, *, tells_always: bool) -> None:
    """All there is now, and where groups are in it; of a copy that was broken off nobody can say.
    What has changed nothing is told only where that is asked."""
    done = _copy(spark, arguments)
    groups = {} if INTERRUPTS.asked else _groups(arguments)
    if done.rows or tells_always:
        told = {"rows": done.rows, "micro_batches": done.batches, "groups": groups}
        emit({"pipeline": "mirror", **told})


def _copy(spark: SparkSession, arguments: Arguments) -> Driven:
    """All there is now. Between two such runs the copy stands still: only then can offsets of
    groups be counted from its end."""
    rows = read_stream(
        spark,
        arguments.bootstrap,
        checkpoint=arguments.checkpoint,
        subscribe=arguments.topics,
        startingOffsets="earliest",
        includeHeaders=True,
        maxOffsetsPerTrigger=arguments.batch_offsets,
        kafka__isolation__level="read_committed",
        commitOffsetsToGroup=arguments.name,
    )
    topic = f.concat(f.lit(arguments.prefix), f.col("topic")).alias("topic")
    writer = (
        rows.select("key", "value", "partition", "headers", "timestamp", topic)
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.to)
        .option("includeHeaders", "true")
        .option("tidelog.delivery", "exactly-once")
        .option("tidelog.sink.id", arguments.name)
        .option("tidelog.sink.markerTopic", arguments.prefix + arguments.topics.split(",")[0])
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
    )
    return Driven(writer.start(), "mirror").to_the_end()


def _groups(arguments: Arguments) -> dict[str, Any]:
    copy = Copy(arguments.bootstrap, arguments.to, arguments.prefix, progress=arguments.name)
    groups = arguments.groups.split(",") if arguments.groups else []
    return {group: copy.tell(group) for group in groups}
