"""What a session of Spark does that a test cannot see without one: rows that the official connector
and the data source `tidelog` have read and written with the same program, and what Spark says of
mistakes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog.spark.first_pipeline import first_pipeline
from tidelog.spark.sessions import read_stream

ROWS = 300
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestampType", "headers"]


class Program:
    """What a user has written once, and runs with either format."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder

    def run(self, name: str, topics: dict[str, str]) -> dict[str, Any]:
        """A batch into a topic, a stream from there to another, and a batch that reads that."""
        source, sink = topics[f"{name}-in"], topics[f"{name}-out"]
        self._write(name, source)
        batches = self._copy(name, source, sink, self.folder / f"checkpoint-{name}")
        return {
            "batches": batches,
            "by kafka": self._read("kafka", sink),
            "by tidelog": self._read("tidelog", sink),
        }

    def carry_on(self, topics: dict[str, str]) -> dict[str, int]:
        """The stream of the connector, started again with ours on the checkpoint that it left."""
        source, sink = topics["kafka-in"], topics["kafka-out"]
        before = len(self._read("tidelog", sink))
        self._write("tidelog", source)
        batches = self._copy("tidelog", source, sink, self.folder / "checkpoint-kafka")
        return {"batches": batches, "rows": len(self._read("tidelog", sink)) - before}

    def _copy(self, name: str, source: str, sink: str, checkpoint: Path) -> int:
        """In how many micro-batches."""
        stream = (
            self.spark.readStream.format(name)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", json.dumps({source: {"0": 10, "1": -2}}))
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", "200")
            .load()
            .selectExpr("key", "value", "partition", "headers")
        )
        query = (
            stream.writeStream.format(name)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", sink)
            .option("includeHeaders", "true")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return len([one for one in query.recentProgress if one["numInputRows"]])

    def _write(self, name: str, topic: str) -> None:
        pair = "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)))"
        self.spark.range(0, ROWS, 1, 1).selectExpr(
            "if(id % 4 = 0, null, cast(id as string)) as key",
            "concat('value ', id) as value",
            "cast(id % 2 as int) as partition",
            f"if(id % 3 = 0, {pair}, null) as headers",
        ).write.format(name).option("kafka.bootstrap.servers", self.bootstrap).option(
            "includeHeaders", "true"
        ).option("topic", topic).mode("append").save()

    def _read(self, name: str, topic: str) -> list[list[Any]]:
        frame = self._batch(name, subscribe=topic, includeHeaders="true", minPartitions="3")
        rows = frame.select(*COLUMNS).orderBy("partition", "offset").collect()
        return [[_plain(value) for value in row] for row in rows]

    def _batch(self, name: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(name).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(
            **{key.replace("__", "."): one for key, one in options.items()}
        ).load()

    # -- what only ours has

    def exactly_once(self, source: str, sink: str, group: str) -> dict[str, Any]:
        checkpoint = str(self.folder / "checkpoint-exactly-once")
        stream = read_stream(
            self.spark,
            self.bootstrap,
            checkpoint=checkpoint,
            subscribe=source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=120,
            commitOffsetsToGroup=group,
            tidelog__columns="key,value,partition",
        )
        writer = (
            stream.writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        for delivery in ("exactly-once", "exactly-once-atomic"):
            writer.option("tidelog.delivery", delivery).start().awaitTermination()
        rows = self._batch("tidelog", subscribe=sink, kafka__isolation__level="read_committed")
        return {
            "rows": rows.count(),
            "distinct": rows.select("value").distinct().count(),
            "columns": stream.columns,
            "initial": json.loads((Path(checkpoint) / "tidelog-initial.json").read_text()),
        }

    def job(self, topic: str) -> int:
        """A batch write that is made twice under one name."""
        for _ in range(2):
            self.spark.range(0, 50, 1, 2).selectExpr("cast(id as string) as value").write.format(
                "tidelog"
            ).option("kafka.bootstrap.servers", self.bootstrap).option("topic", topic).option(
                "tidelog.job.id", f"job-{topic}"
            ).mode("append").save()
        return self._batch("tidelog", subscribe=topic).count()

    def filtered(self, topic: str) -> dict[str, Any]:
        frame = self._batch("tidelog", subscribe=topic, tidelog__pushdown="true")
        chosen = frame.where("partition = 1 and offset >= 20 and offset < 25")
        return {
            "offsets": [row["offset"] for row in chosen.collect()],
            "tasks": chosen.rdd.getNumPartitions(),
            "all tasks": self._batch("tidelog", subscribe=topic).rdd.getNumPartitions(),
        }

    def mistakes(self, topic: str) -> dict[str, str]:
        """What is said of each."""
        rows = self.spark.range(1).selectExpr("id as value")
        writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", self.bootstrap)
        wrong: dict[str, Callable[[], Any]] = {
            "option": lambda: self._batch("tidelog", subscribe=topic, startingOffset="5").count(),
            "type": lambda: writer.option("topic", topic).mode("append").save(),
            "overwrite": lambda: writer.option("topic", topic).mode("overwrite").save(),
            "topic": lambda: self._batch("tidelog", subscribe=f"{topic}-nix").count(),
        }
        return {name: _said(make) for name, make in wrong.items()}


def _said(make: Callable[[], Any]) -> str:
    try:
        make()
    except PySparkException as error:
        return str(error)
    return ""


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray | bytes):
        return bytes(value).decode()
    if isinstance(value, list):
        return [[_plain(one) for one in pair] for pair in value]
    return value


def read_files(spark: SparkSession) -> str:
    """What the session's JVM has of files in its memory."""
    gateway: Any = spark.sparkContext._gateway
    return Path(f"/proc/{gateway.proc.pid}/maps").read_text()


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """Of all that is tried."""
    program = Program(spark, asked["bootstrap"], Path(asked["folder"]))
    topics = asked["topics"]
    found = {name: program.run(name, topics) for name in ("kafka", "tidelog")}
    found["exactly once"] = program.exactly_once(
        topics["kafka-in"], topics["exactly-once"], asked["group"]
    )
    found["job"] = {"rows": program.job(topics["job"])}
    found["filtered"] = program.filtered(topics["kafka-in"])
    found["first"] = {
        "says": first_pipeline(spark, asked["bootstrap"], Path(asked["folder"]) / "first")
    }
    found["carried on"] = program.carry_on(topics)
    found["mistakes"] = program.mistakes(topics["job"])
    found["start"] = {"archive": "classes.jsa" in read_files(spark)}
    return found
