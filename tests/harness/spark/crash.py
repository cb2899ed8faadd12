"""A stream of Spark that copies a topic exactly once, and is struck where it is told; a program.

Whoever reaches a step of the sink, a task or the process that finishes a micro-batch, ends the
victim by SIGKILL, and itself.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from harness.spark.few_rows import FEW_ROWS
from harness.spark.starts import NOT_STARTED, STARTS_MAX
from tidelog.spark.datasource import StreamReader, TidelogDataSource
from tidelog.spark.offsets import Json
from tidelog.spark.options import Mode, source_options
from tidelog.spark.sessions import read_stream, session
from tidelog.spark.tasks import Point

BLOWS = "SPARK_CRASH_BLOWS"
"""Those that are dealt, as JSON."""
MARKS = "SPARK_CRASH_MARKS"
"""A folder of one file for each blow that was dealt, with the victim's pid: none is dealt twice."""
LATE_ROWS = "SPARK_CRASH_LATE_ROWS"
"""How many rows come right after a stream that begins at latest was told where that is."""
PLANNED = "planned"
"""A micro-batch is noted, and its tasks are asked for."""


class Blow(NamedTuple):
    """Where which process dies."""

    point: str
    batch: int
    victim: str = "driver"
    """driver, executor: the JVM. worker: only the Python process that got there, which Spark
    starts anew where it was a task's."""
    partition: int = 1
    """Of the task; not the first, which has been done by then where tasks follow each other. The
    driver's own steps have -1, and 0 where it writes the micro-batch itself."""

    @property
    def mark(self) -> str:
        return "-".join(str(one) for one in self)

    def deal(self) -> None:
        """Once, by whoever comes first."""
        pid = self._victim()
        if _is_first(self.mark, str(pid)):
            os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def _victim(self) -> int:
        """An executor is the nearest JVM above a task, the driver is the one above that, if any."""
        if self.victim == "worker":
            return os.getpid()
        machines = list(_machines())
        return machines[-1] if self.victim == "driver" else machines[0]


def _is_first(mark: str, text: str = "") -> bool:
    """Of all processes, to have got there."""
    try:
        with (Path(os.environ[MARKS]) / mark).open("x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _machines() -> Iterator[int]:
    """The ancestors that are Java, the nearest first."""
    pid = os.getppid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            yield pid
        pid = int(rest.split()[1])


def strike(point: str, batch: int, partition: int) -> None:
    """In whichever process has got there."""
    for one in json.loads(os.environ[BLOWS]):
        blow = Blow(*one)
        if (blow.point, blow.batch, blow.partition) == (point, batch, partition):
            blow.deal()


def reached(point: Point, batch: int, partition: int) -> None:
    """By the sink."""
    strike(point.value, batch, partition)


def write_numbers(bootstrap: str, topic: str, count: int) -> None:
    """Into its two partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=n % 2)
    assert producer.flush(30) == 0


class DyingReader(StreamReader):
    """The first micro-batch is planned before any task runs."""

    def initialOffset(self) -> Json:  # noqa: N802 -- Spark's name
        found = super().initialOffset()
        rows = int(os.environ[LATE_ROWS])
        if rows and _is_first("late"):
            assert self.options.connection is not None
            host, port = self.options.connection.bootstrap[0]
            (topic,) = found
            write_numbers(f"{host}:{port}", topic, rows)
        return found

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        strike(PLANNED, 0, -1)
        return super().partitions(start, end)


class DyingSource(TidelogDataSource):
    """The source whose readers and writers tell `strike` of each step."""

    reached = staticmethod(reached)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's
        return DyingReader(source_options(self.options, Mode.STREAM))


def source_of(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    """From the beginning, which is kept beside the checkpoint; or from latest, which is not."""
    options = {
        "subscribe": asked["source"],
        "startingOffsets": asked["starting"],
        "maxOffsetsPerTrigger": asked["batch"],
    }
    if asked["starting"] == "earliest":
        return read_stream(spark, asked["bootstrap"], checkpoint=asked["checkpoint"], **options)
    stream = spark.readStream.format("tidelog").option(
        "kafka.bootstrap.servers", asked["bootstrap"]
    )
    return stream.options(**options).load()


def copy(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Until the stream ends."""
    for left in reversed(range(STARTS_MAX)):
        try:
            _started(spark, asked).awaitTermination()
        except StreamingQueryException as error:
            if NOT_STARTED in str(error) and left:
                continue
            raise
        return


def _started(spark: SparkSession, asked: dict[str, Any]) -> StreamingQuery:
    return (
        source_of(spark, asked)
        .select("key", "value", "partition")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", asked["bootstrap"])
        .option("topic", asked["sink"])
        .option("tidelog.delivery", asked["delivery"])
        .option("checkpointLocation", asked["checkpoint"])
        .trigger(**asked["trigger"])
        .start()
    )


def answers(spark: SparkSession, asked: dict[str, Any]) -> bool:
    """Go on with what others have begun, and nobody strikes."""
    copy(spark, asked)
    return True


def main(asked: dict[str, Any]) -> None:
    conf = {**FEW_ROWS, "spark.driver.memory": "1g", "spark.executor.memory": "512m"}
    spark = session(asked["master"], app="crash", conf=conf)
    spark.dataSource.register(DyingSource)
    copy(spark, asked)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
