"""What became of every record: a history of producers held against the topics, by Spark's joins."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.clients.settings import Isolation
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines import verdicts
from tidelog.spark.pipelines.acks import check_complete
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, NOT_FOUND, VIOLATION, PipelineError, UsageError
from tidelog.spark.pipelines.frames import first_rows, read_between, read_files
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import connect, ends, partitions_of, starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    bootstrap: str = ""
    history: str
    topics: str | None = None
    records: str | None = None
    data: str | None = None
    reads: str | None = None
    faults: str | None = None
    id: str = verdicts.ID_OF_VALUE
    ids_of: int = option(given.positive, verdicts.IDS_OF_PRODUCER)
    dest: str | None = None
    show: int = option(given.whole, 3)

    def check(self) -> None:
        if (self.topics is None) == (self.records is None):
            raise UsageError("give either --topics of a cluster, or --records that export wrote")
        if self.topics is not None and not self.bootstrap and self.data is None:
            raise UsageError("--topics needs --bootstrap, or --data of a cluster that is stopped")

    def look(self, client: Client) -> None:
        if self.topics is not None:
            partitions_of(client, self.topics)


def main(spark: SparkSession, arguments: Arguments) -> int:
    acks = history(
        spark, arguments.history, "id", "topic", "partition", "offset", "status", "at_ms"
    )
    id_of = f.expr(arguments.id)
    records = verdicts.records_of(_records(spark, arguments), id_of).cache()
    found = verdicts.findings(acks, records, arguments.ids_of)
    if arguments.reads is not None:
        reads = history(spark, arguments.reads, "id", "at_ms")
        found = found.unionByName(verdicts.of_reads(acks, records, reads))
    found = found.cache()
    totals = {row.kind: row["count"] for row in found.groupBy("kind").count().collect()}
    counts = {name: totals.get(name, 0) for name in verdicts.KINDS}
    summary: dict[str, Any] = {
        "pipeline": "verify",
        "history": {row.status: row["count"] for row in acks.groupBy("status").count().collect()},
        "records": records.count(),
        **counts,
    }
    if arguments.faults is not None:
        summary["windows"] = _windows(spark, arguments.faults, found)
    summary["examples"] = {
        kind: first_rows(
            found.where(f.col("kind") == kind).orderBy("id").drop("kind"), arguments.show
        )
        for kind, count in counts.items()
        if count and arguments.show
    }
    if arguments.dest is not None:
        found.write.mode("overwrite").partitionBy("kind").parquet(arguments.dest)
    emit(summary)
    return VIOLATION if any(counts[kind] for kind in verdicts.VIOLATIONS) else DONE


def history(spark: SparkSession, path: str, *columns: str) -> DataFrame:
    """Parquet, or JSON where the name says so. Of a load that did not end nobody can judge."""
    check_complete(path)
    form = "json" if path.rstrip("/").endswith((".json", ".jsonl")) else "parquet"
    rows = spark.read.format(form).load(path)
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise PipelineError(f"{path}: no {', '.join(missing)} in it", NOT_FOUND)
    return rows.select(*columns)


def _records(spark: SparkSession, arguments: Arguments) -> DataFrame:
    if arguments.records is not None:
        spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        rows = spark.read.parquet(arguments.records)
        return rows.withColumn("partition", f.col("partition").cast("int"))
    if arguments.data is not None:
        return read_files(spark, arguments.data, arguments.topics or "", headers=True)
    client = connect(arguments.bootstrap)
    places = partitions_of(client, arguments.topics or "")
    stop = ends(client, places, Isolation.READ_COMMITTED)
    return read_between(spark, arguments.bootstrap, starts(client, places), stop, headers=True)


def _windows(spark: SparkSession, path: str, found: DataFrame) -> list[dict[str, Any]]:
    """What was found of each fault; the times of both are those of who wrote them down."""
    faults = history(spark, path, "name", "from_ms", "to_ms")
    near = (f.col("at_ms") >= f.col("from_ms")) & (f.col("at_ms") <= f.col("to_ms"))
    counted = (
        faults.join(found, near, "left")
        .groupBy("name", "from_ms", "to_ms")
        .agg(*[f.count_if(f.col("kind") == kind).alias(kind) for kind in verdicts.KINDS])
    )
    return [row.asDict() for row in counted.orderBy("from_ms", "name").collect()]
