"""A session of Spark that does a little of all that tests do, so that its JVM loads the classes.

Run as a program by `harness.spark.setup`, which keeps what is loaded for the JVMs of tests.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.spark.sessions import session


class Reader(DataSourceReader):
    """Three rows."""

    def read(self, _partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(3))


class StreamReader(DataSourceStreamReader):
    """Three rows in one micro-batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        return {"at": 0}

    def latestOffset(self, start: object, limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802 -- Spark's
        return {"at": 3}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(*partition.value))


class Writer(DataSourceWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        sum(1 for _ in iterator)
        return WriterCommitMessage()


class StreamWriter(DataSourceStreamWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        sum(1 for _ in iterator)
        return WriterCommitMessage()


class Source(DataSource):
    """Format `few`."""

    @classmethod
    def name(cls) -> str:
        return "few"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: StructType) -> Reader:  # noqa: ARG002 -- Spark's signature
        return Reader()

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: ARG002, N802 -- Spark's
        return StreamReader()

    def writer(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: ARG002, FBT001 -- Spark's
        return Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, FBT001, N802 -- Spark's
        return StreamWriter()


def batches(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format("few").load().withColumn("text", f.expr("cast(n as string)"))
    rows.write.mode("append").format("few").save()
    rows.write.parquet(str(folder / "files"))
    found = spark.read.parquet(str(folder / "files")).join(rows, "n").groupBy("n").count()
    found.orderBy("n").select(f.udf(lambda n: n + 1, "bigint")("n")).collect()


def streams(spark: SparkSession, folder: Path) -> None:
    def write(rows: DataFrame, _number: int) -> None:
        rows.count()

    writers = [
        spark.readStream.format("few").load().writeStream.format("few"),
        spark.readStream.format("few").load().writeStream.foreachBatch(write),
    ]
    for number, writer in enumerate(writers):
        placed = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        placed.trigger(availableNow=True).start().awaitTermination()


def main(folder: Path) -> None:
    spark = session("local[2]", conf={"spark.driver.memory": "1g"})
    spark.dataSource.register(Source)
    batches(spark, folder)
    streams(spark, folder)
    gateway: Any = spark.sparkContext._gateway
    process = gateway.proc
    spark.stop()
    gateway.shutdown()
    process.stdin.close()  # then it ends
    process.wait()  # until the archive is written


if __name__ == "__main__":
    main(Path(sys.argv[1]))
