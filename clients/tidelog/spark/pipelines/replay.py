"""What `export` wrote back to topics: the same partitions, order, keys, headers and timestamps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.settings import Isolation
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.failures import DONE, NOT_FOUND, VIOLATION, PipelineError
from tidelog.spark.pipelines.frames import fingerprints, read_between
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import connect, ends, ensure_topics, starts, topic_partitions

_NAMED_MAX = 20
Prints = Mapping[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    source: str
    topic: str | None = None
    job_id: str | None = None
    verify: bool = False


def main(spark: SparkSession, arguments: Arguments) -> int:
    client = connect(arguments.bootstrap)
    rows = exported(spark, arguments.source, arguments.topic)
    counts = partition_counts(rows)
    ensure_topics(client, counts)
    places = topic_partitions(counts)
    # Who is written once is verified from the beginning: this run may find that it is written.
    before = (
        starts(client, places)
        if arguments.job_id
        else ends(client, places, Isolation.READ_COMMITTED)
    )
    write(rows, counts, arguments)
    after = ends(client, places, Isolation.READ_COMMITTED)
    summary: dict[str, Any] = {"pipeline": "replay", "topics": sorted(counts)}
    if not arguments.verify:
        emit({**summary, "rows": rows.count(), "verified": None})
        return DONE
    wanted = fingerprints(rows)
    found = fingerprints(read_between(spark, arguments.bootstrap, before, after, headers=True))
    wrong = differences(wanted, found)
    written = sum(count for count, _ in wanted.values())
    emit({**summary, "rows": written, "verified": not wrong, "differences": wrong[:_NAMED_MAX]})
    return VIOLATION if wrong else DONE


def exported(spark: SparkSession, source: str, topic: str | None) -> DataFrame:
    """The rows; a topic whose name looks like a number stays a name."""
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    rows = spark.read.parquet(source)
    missing = {"topic", "partition", "offset", "value"} - set(rows.columns)
    if missing:
        lacking = ", ".join(sorted(missing))
        raise PipelineError(f"{source}: no {lacking} in it: is it what export wrote?", NOT_FOUND)
    rows = rows.withColumn("partition", f.col("partition").cast("int"))
    return rows if topic is None else rows.withColumn("topic", f.lit(topic))


def partition_counts(rows: DataFrame) -> dict[str, int]:
    """How many partitions each topic needs."""
    found = rows.groupBy("topic").agg((f.max("partition") + 1).alias("count")).collect()
    return {row["topic"]: row["count"] for row in found}


def write(rows: DataFrame, counts: Mapping[str, int], arguments: Arguments) -> None:
    """A task for each partition: within it the order of offsets stays."""
    tasks = max(1, sum(counts.values()))
    ordered = rows.repartition(tasks, "topic", "partition").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    writer = (
        ordered.select("key", "value", "topic", "partition", "headers", "timestamp")
        .write.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("includeHeaders", "true")
    )
    if arguments.job_id is not None:
        marker = min(counts, default="-")
        writer = writer.option("tidelog.job.id", arguments.job_id).option(
            "tidelog.sink.markerTopic", marker
        )
    writer.mode("append").save()


def differences(wanted: Prints, found: Prints) -> list[dict[str, Any]]:
    """Partitions whose rows are not the same, in the same order."""
    nothing = (0, 0)
    return [
        {
            "partition": f"{topic}-{number}",
            "rows_wanted": wanted.get((topic, number), nothing)[0],
            "rows_found": found.get((topic, number), nothing)[0],
        }
        for topic, number in sorted({*wanted, *found})
        if wanted.get((topic, number), nothing) != found.get((topic, number), nothing)
    ]
