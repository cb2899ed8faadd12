"""A session of Spark for spark_io.py: does what a line asks, and answers with its seconds.

It is a program of its own, so that what Spark uses is its processes' and nobody else's.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_sources import MemorySource, PlainSource, produce_rows
from tidelog.spark.sessions import session

_PATIENCE_S = 120.0
_BATCHES = 16
"""Of a stream, of which the first ones warm it up."""
_WARM_UP = 6
_RATE = {"rowsPerBatch": "2000", "numPartitions": "2"}


class Jobs:
    """What can be asked for."""

    def __init__(self, spark: SparkSession, bootstrap: str, value_bytes: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._value_bytes = value_bytes

    def do(self, asked: dict[str, Any]) -> Any:  # noqa: ANN401 -- an answer is anything of JSON
        name = asked.pop("do")
        jobs: dict[str, Callable[..., Any]] = {
            "read": self.read,
            "write": self.write,
            "foreach": self.foreach,
            "stream": self.stream,
        }
        return jobs[name](**asked)

    def read(self, *, format: str, topic: str, **options: str) -> float:  # noqa: A002 -- Spark's word
        """To nowhere; the seconds it took."""
        reader = self._spark.read.format(format).option("kafka.bootstrap.servers", self._bootstrap)
        rows = reader.option("subscribe", topic).options(**options).load()
        return _seconds(rows.write.format("noop").mode("overwrite").save)

    def write(self, *, format: str, topic: str, rows: int, **options: str) -> float:  # noqa: A002 -- as above
        """Rows that Spark makes; with format noop it only makes them."""
        writer = self._rows(rows).write.format(format).options(**options)
        if format == "noop":
            return _seconds(writer.mode("overwrite").save)
        writer = writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic)
        return _seconds(writer.mode("append").save)

    def foreach(self, *, topic: str, rows: int) -> float:
        """By hand, with confluent-kafka in each task."""
        produce = partial(produce_rows, self._bootstrap, topic)
        return _seconds(partial(self._rows(rows).foreachPartition, produce))

    def stream(self, *, topic: str, **options: str) -> list[dict[str, float]]:
        """A stream of small micro-batches: of our source and sink, or, without a topic, of Spark's
        own to nowhere. What each warm one took in all, and in its parts, in milliseconds."""
        with tempfile.TemporaryDirectory() as checkpoint:
            made = self._of_ours(topic, options) if topic else self._of_sparks()
            writer = made.writeStream.format("tidelog" if topic else "noop")
            if topic:
                writer = writer.option("kafka.bootstrap.servers", self._bootstrap)
                writer = writer.option("topic", f"{topic}-out")
            query = writer.option("checkpointLocation", checkpoint).start()
            return _warm_batches(query)

    def _of_ours(self, topic: str, options: dict[str, str]) -> DataFrame:
        reader = self._spark.readStream.format("tidelog").options(
            **{
                "kafka.bootstrap.servers": self._bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": _RATE["rowsPerBatch"],
                **options,
            }
        )
        return reader.load().select("key", "value")

    def _of_sparks(self) -> DataFrame:
        return self._spark.readStream.format("rate-micro-batch").options(**_RATE).load()

    def _rows(self, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, 4).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(rpad(cast(id as string), {self._value_bytes}, 'x') as binary) as value",
        )


def _warm_batches(query: StreamingQuery) -> list[dict[str, float]]:
    end = time.monotonic() + _PATIENCE_S
    while len(query.recentProgress) < _BATCHES:
        if time.monotonic() > end or not query.isActive:
            raise SystemExit(f"the stream has ended or stands still: {query.exception()}")
        time.sleep(0.1)
    query.stop()
    return [dict(one.durationMs) for one in query.recentProgress[_WARM_UP:_BATCHES]]


def _seconds(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def main(asked: dict[str, Any]) -> None:
    conf = {"spark.driver.memory": "2g", "spark.jars": asked["jars"]}
    spark = session(asked["master"], app="spark_io", conf=conf)
    spark.dataSource.register(PlainSource)
    spark.dataSource.register(MemorySource)
    jobs = Jobs(spark, asked["bootstrap"], asked["size"])
    sys.stdout.write('"ready"\n')
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(jobs.do(json.loads(line))) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
