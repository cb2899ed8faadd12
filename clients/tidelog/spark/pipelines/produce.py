"""Load from several tasks, of rows made up here or of a data frame; says how fast it was."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from tidelog.clients.client import Client
from tidelog.spark.pipelines import acks
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, FAILED, VIOLATION, UsageError
from tidelog.spark.pipelines.file_rows import batches_of, frame_of
from tidelog.spark.pipelines.generating import KEYS_MAX, Shape
from tidelog.spark.pipelines.latencies import Latencies
from tidelog.spark.pipelines.loading import Load, Report, generate_and_send, send_batches
from tidelog.spark.pipelines.output import emit, note
from tidelog.spark.pipelines.readers import Readers, begins
from tidelog.spark.pipelines.topics import ensure_topics, partitions_of

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    topic: str
    rows: int = option(given.size, 1_000_000)
    size: int = option(given.size, 100)
    keys: int = option(given.whole, 0)
    skew: float = option(given.number, 0.0)
    rate: float = option(given.number, 0.0)
    seed: int = option(given.whole, 1)
    tasks: int = option(given.whole, 0)
    codec: str = option(given.one_of(*_CODECS), "none")
    acks: str = option(given.one_of("all", "1", "0"), "all")
    batch_size: int = option(given.size, 262_144)
    partitions: int = option(given.whole, 0)
    input: str | None = None
    format: str = option(given.one_of("parquet", "csv", "json"), "parquet")
    value: str | None = None
    key: str | None = None
    history: str | None = None

    def check(self) -> None:
        if self.keys > KEYS_MAX:
            raise UsageError(f"--keys={self.keys}: must be at most {KEYS_MAX}")
        if self.skew and not self.keys:
            raise UsageError("--skew needs --keys: it says how uneven they are drawn")
        if self.history is not None and (self.input is not None or self.size < 16):
            raise UsageError("--history needs made-up rows of 16 bytes or more, which have numbers")
        if self.input is None and (self.value or self.key):
            raise UsageError("--value and --key are columns of --input")

    def look(self, client: Client) -> None:
        if self.partitions:
            ensure_topics(client, {self.topic: self.partitions})
        partitions_of(client, self.topic)


def main(spark: SparkSession, arguments: Arguments) -> int:
    tasks = arguments.tasks or spark.sparkContext.defaultParallelism
    load = Load(
        {
            "kafka.bootstrap.servers": arguments.bootstrap,
            "kafka.compression.type": arguments.codec,
            "kafka.acks": arguments.acks,
            "kafka.batch.size": str(arguments.batch_size),
        },
        arguments.topic,
        rate=arguments.rate / tasks,
        history=arguments.history,
    )
    if arguments.history is not None:
        acks.begin(arguments.history)
    before = begins(arguments.bootstrap, arguments.topic)
    if arguments.input is None:
        reports = _generated(spark, arguments, load, tasks)
    else:
        reports = _given(spark, arguments, load)
    if arguments.history is not None:
        acks.complete(arguments.history)
    summary = summary_of(reports)
    found = Readers(spark, arguments.bootstrap, before).of(reports)
    emit({"pipeline": "produce", "topic": arguments.topic, **summary, **found.document()})
    if summary["failed"]:
        note(f"error: {summary['failed']} rows were not written: {summary['error']}")
        return FAILED
    if found.lost:
        note(f"error: {found.sentence(arguments.topic, acks=arguments.acks)}")
    return VIOLATION if found.lost else DONE


def summary_of(reports: list[Report]) -> dict[str, Any]:
    """Of all tasks together: from the first that began to the last that ended."""
    rows, failed = (sum(getattr(one, name) for one in reports) for name in ("rows", "failed"))
    begun = min((one.began for one in reports), default=0.0)
    seconds = max((one.ended for one in reports), default=0.0) - begun
    size = sum(one.size_bytes for one in reports)
    return {
        "rows": rows,
        "acknowledged": rows - failed,
        "failed": failed,
        "error": next((one.error for one in reports if one.error), None),
        "tasks": len(reports),
        "seconds": round(seconds, 3),
        "rows_per_s": round((rows - failed) / seconds) if seconds else 0,
        "mb_per_s": round(size / seconds / 1e6, 1) if seconds else 0.0,
        "task_cpu_s": round(sum(one.cpu_s for one in reports), 3),
        "latency_ms": Latencies.together(one.latencies for one in reports).percentiles_ms(),
    }


def share_of(rows: int, tasks: int, number: int) -> int:
    """
    >>> [share_of(10, 3, n) for n in range(3)]
    [4, 3, 3]
    """
    return rows // tasks + (number < rows % tasks)


def _generated(spark: SparkSession, arguments: Arguments, load: Load, tasks: int) -> list[Report]:
    shape = Shape(arguments.size, arguments.keys, arguments.skew, arguments.seed)
    numbers = spark.sparkContext.parallelize(range(tasks), tasks)
    return numbers.mapPartitions(partial(_make, load, shape, arguments.rows, tasks)).collect()


def _make(
    load: Load, shape: Shape, rows: int, tasks: int, numbers: Iterable[int]
) -> Iterator[Report]:
    for number in numbers:
        yield generate_and_send(load, shape, number, share_of(rows, tasks, number))


def _given(spark: SparkSession, arguments: Arguments, load: Load) -> list[Report]:
    rows = frame_of(spark, arguments.input or "", arguments.format, arguments.value, arguments.key)
    if arguments.tasks:
        rows = rows.repartition(arguments.tasks)
    # Not by mapInArrow: Spark refuses it where pandas is not installed.
    return rows.rdd.mapPartitionsWithIndex(partial(_write, load)).collect()


def _write(load: Load, number: int, rows: Iterable[Any]) -> Iterator[Report]:
    yield send_batches(load, number, batches_of(rows))
