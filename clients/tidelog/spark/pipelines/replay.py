"""What `export` wrote back to topics: the same partitions, order, keys, headers and timestamps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.admin.group_offsets import commit_offsets, committed_offsets
from tidelog.clients.client import Client
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import TopicPartition
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines import contents
from tidelog.spark.pipelines.contents import Taken
from tidelog.spark.pipelines.counting import count_records
from tidelog.spark.pipelines.failures import DONE, NOT_FOUND, VIOLATION, PipelineError
from tidelog.spark.pipelines.frames import fingerprints, read_between
from tidelog.spark.pipelines.output import emit, note
from tidelog.spark.pipelines.topics import (
    compacted,
    connect,
    ends,
    ensure_topics,
    settled_ends,
    starts,
    topic_partitions,
)

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
    before = begins(client, places, arguments.job_id)
    write(rows, counts, arguments)
    back = Back(spark, arguments.bootstrap, before, settled_ends(client, places))
    told, wrong = back.verified(rows) if arguments.verify else back.counted(rows)
    emit({"pipeline": "replay", "topics": sorted(counts), **told})
    if wrong:
        note(
            f"error: what readers of {', '.join(sorted(counts))} find differs from the files in "
            f"{arguments.source}: look at `differences`, and replay into new topics"
        )
    return VIOLATION if wrong else DONE


def begins(client: Client, places: list[TopicPartition], job: str | None) -> Positions:
    """Where the first record of this replay can be. Of a job that has been begun before, this is
    where the logs ended then: this run may find all rows written."""
    now = ends(client, places, Isolation.READ_UNCOMMITTED)
    if job is None:
        return now
    group = f"{job}/before"
    known = client.run(committed_offsets(client.view, group))
    if known:
        first = starts(client, places)
        return {one: known[one].offset if one in known else first[one] for one in places}
    parts = [job, *(f"{job}/{number}" for number in range(len(places)))]
    if any(client.run(committed_offsets(client.view, one)) for one in parts):
        return starts(client, places)  # an earlier version has begun it, nobody knows where
    client.run(commit_offsets(client.view, group, now))
    return now


class Back:
    """What readers of committed records find of a replay."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, before: Positions, after: Positions
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._before = before
        there = starts(connect(bootstrap), before)
        self._first = {one: max(at, before[one]) for one, at in there.items()}
        self._after = {one: max(at, self._first[one]) for one, at in after.items()}

    def verified(self, rows: DataFrame) -> tuple[dict[str, Any], bool]:
        """Number, contents and order of each partition; what to tell, and whether it is wrong."""
        wanted, found = fingerprints(rows), fingerprints(self._records())
        wrong = differences(wanted, found)
        counts = {"rows": _rows(wanted), "found": _rows(found)}
        return {**counts, "verified": not wrong, "differences": wrong[:_NAMED_MAX]}, bool(wrong)

    def counted(self, rows: DataFrame) -> tuple[dict[str, Any], bool]:
        """The number of rows; their contents only where that differs."""
        wanted = rows.count()
        found = count_records(self._spark, self._bootstrap, self._first, self._after)
        told = {"rows": wanted, "found": found, "verified": None}
        if wanted == found:
            return told, False
        differ = contents.differences(rows, self._records(), self._taken())
        wrong = any(one.is_wrong for one in differ)
        return {**told, "differences": contents.shown(differ, _NAMED_MAX)}, wrong

    def _records(self) -> DataFrame:
        return read_between(self._spark, self._bootstrap, self._first, self._after, headers=True)

    def _taken(self) -> Taken:
        cut = [one for one, at in self._first.items() if at > self._before[one]]
        return Taken(compacted(connect(self._bootstrap), {one[0] for one in self._first}), cut)


def _rows(prints: Prints) -> int:
    return sum(count for count, _ in prints.values())


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
