"""What feeds an exactly-once sink fails, in one session of Spark."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from harness.clients.transaction_raw import end_of
from harness.processes.cluster import until
from harness.spark.plain import Place
from harness.spark.starts import NOT_STARTED, STARTS_MAX
from harness.spark.talk import FOLDER
from tidelog.clients.admin.group_offsets import stable_offset
from tidelog.kernel.ids import Partition
from tidelog.spark.checkpoints import query_id
from tidelog.spark.datasource import Done, StreamWriter, TidelogDataSource
from tidelog.spark.options import Mode, sink_options
from tidelog.spark.sending import RegisteredSource
from tidelog.spark.sessions import read_stream
from tidelog.spark.sink_markers import sink_marker
from tidelog.spark.tasks import Point

ROWS = 6_000
"""In two partitions; the last one of partition 1 is where it fails."""
_ROW_BYTES = 1_000
"""Enough that the sink's worker has rows in its hands long before the last ones come."""
_PATIENCE_S = 120

DIGITS = 6
LAST = b"%0*d" % (DIGITS, ROWS - 1)
Trouble = Callable[[str], Column]
"""Makes of a file's name a column like `value`, which fails as long as the file is there."""


def _stand_still(flag: str) -> None:
    """As long as the file is there."""
    until(lambda: not Path(flag).exists(), "the flag is gone", _PATIENCE_S)


def _raises(flag: str) -> Column:
    """In a user's function."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == LAST and Path(flag).exists():
            raise ValueError("a row that the function cannot take")
        return bytes(value)

    return f.udf(check, "binary")("value")


def _raises_once(flag: str) -> Column:
    """In a user's function, in the first attempt of its task."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == LAST and Path(flag).exists():
            Path(flag).unlink()
            raise ValueError("a row that the function cannot take at first")
        return bytes(value)

    return f.udf(check, "binary")("value")


def _dies_once(flag: str) -> Column:
    """The Python worker of a user's function, in the first attempt of its task."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == LAST and Path(flag).exists():
            Path(flag).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(value)

    return f.udf(check, "binary")("value")


def _raises_in_sql(flag: str) -> Column:
    last = f"cast('{LAST.decode()}' as binary)"
    is_last = f"substring(value, 1, {DIGITS}) = {last}" if Path(flag).exists() else "false"
    return f.expr(f"case when {is_last} then cast(raise_error('no') as binary) else value end")


def _stands_still(flag: str) -> Column:
    """In the middle of each task, until the query has been stopped."""

    def check(value: bytes) -> bytes:
        if int(value[:DIGITS]) >= ROWS // 2:
            Path(flag).with_suffix(".reached").touch()
            _stand_still(flag)
        return bytes(value)

    return f.udf(check, "binary")("value")


def _fails_beside_another(flag: str) -> Column:
    """In one task; the other one stands in the middle of its rows, and is ended with the query."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == LAST and Path(flag).exists():
            raise ValueError("a row that the function cannot take")
        number = int(value[:DIGITS])
        if number % 2 == 0 and number >= ROWS // 2:
            _stand_still(flag)
        return bytes(value)

    return f.udf(check, "binary")("value")


def _gate(name: str) -> Path:
    """If `armed` is there, the sink's first task waits before it begins."""
    return Path(os.environ[FOLDER]) / "gate" / name


def _hold_the_first_task(point: Point, _batch: int, partition: int) -> None:
    """Until the driver has given its job up."""
    if point is Point.GIVEN_UP:
        _gate("given-up").touch()
    elif point is Point.BEGIN and partition == 0 and _gate("armed").exists():
        _gate("waits").touch()
        until(_gate("given-up").exists, "the driver has given up", _PATIENCE_S)


class GatedWriter(StreamWriter):
    """The sink's writer, which says when its first task has ended."""

    def write(self, iterator: Iterator[Any]) -> Done:
        try:
            return super().write(iterator)
        finally:
            if _gate("waits").exists():
                _gate("over").touch()


class GatedSource(TidelogDataSource):
    """Format `tidelog`, whose first task waits at the gate."""

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,  # noqa: ARG002 -- Spark's
        overwrite: bool,  # noqa: ARG002, FBT001 -- Spark's
    ) -> DataSourceStreamArrowWriter:
        return GatedWriter(sink_options(self.options, Mode.STREAM), _hold_the_first_task)


def _fails_before_another_begins(flag: str) -> Column:
    """In one task, once the sink's other task is at the gate."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == LAST and Path(flag).exists():
            until(_gate("waits").exists, "the other task is about to begin", _PATIENCE_S)
            raise ValueError("a row that the function cannot take")
        return bytes(value)

    return f.udf(check, "binary")("value")


class Program:
    """Copies of one topic, each by a query of its own."""

    def __init__(self, spark: SparkSession, asked: dict[str, Any]) -> None:
        self.spark = spark
        self.bootstrap: str = asked["bootstrap"]
        self.folder = Path(asked["folder"])
        self.place = Place(self.bootstrap)
        self.source = self.place.topic(partitions=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for n in range(ROWS):
            row = (b"%0*d" % (DIGITS, n)).ljust(_ROW_BYTES, b"x")
            producer.produce(self.source, row, partition=n % 2)
        assert producer.flush(30) == 0

    def stream(self, name: str, trouble: Trouble) -> dict[str, Any]:
        """A stream that fails, and then is started again."""
        flag, sink = self._flag(name), self.place.topic(partitions=2)
        said = self._run(lambda: self._query(name, sink, trouble(str(flag))))
        found = {"said": said, "failed": self._seen(sink)}
        self._let_go(sink)
        flag.unlink(missing_ok=True)
        again = self._run(lambda: self._query(name, sink, trouble(str(flag))))
        return {**found, "again": again, "done": self._seen(sink), "plan": self._plan(name, sink)}

    def late(self) -> dict[str, Any]:
        """A stream that fails before one of its tasks has begun, and then is started again."""
        name, sink = "late", self.place.topic(partitions=2)
        flag = self._flag(name)
        self.spark.dataSource.register(GatedSource)
        _gate("armed").touch()
        value = _fails_before_another_begins(str(flag))
        said = self._run(lambda: self._query(name, sink, value))
        until(_gate("over").exists, "the task that began late has ended", _PATIENCE_S)
        is_open = [self._is_open(sink, number) for number in (0, 1)]
        for gone in (flag, _gate("armed")):
            gone.unlink()
        again = self._run(lambda: self._query(name, sink, f.col("value")))
        self.spark.dataSource.register(RegisteredSource)
        return {"said": said, "open": is_open, "again": again, "done": self._seen(sink)}

    def stopped(self) -> dict[str, Any]:
        """A stream that is stopped in the middle of its micro-batch, and then started again."""
        name, sink = "stop", self.place.topic(partitions=2)
        flag = self._flag(name)
        value, reached = _stands_still(str(flag)), flag.with_suffix(".reached")
        self._in_mid_batch(lambda: self._query(name, sink, value), reached).stop()
        found = {"failed": self._seen(sink)}
        flag.unlink()
        again = self._run(lambda: self._query(name, sink, f.col("value")))
        return {**found, "again": again, "done": self._seen(sink)}

    def batch(self) -> dict[str, Any]:
        """A batch write with a job's name that fails, and then is made again."""
        flag, sink = self._flag("job"), self.place.topic(partitions=2)
        said = self._write(sink, _raises_in_sql(str(flag)))
        found = {"said": said, "failed": self._seen(sink)}
        flag.unlink()
        again = [self._write(sink, _raises_in_sql(str(flag))) for _ in range(2)]
        other = self._write(sink, f.lit(b"other rows"))
        return {**found, "again": again, "other": other, "done": self._seen(sink)}

    def foreach_batch(self) -> dict[str, Any]:
        """Several micro-batches under one job's name."""
        sink = self.place.topic(partitions=2)
        batches = []

        def write(rows: DataFrame, number: int) -> None:
            batches.append(number)
            self._save(rows.select("value", "partition"), sink, "one-job-for-all")

        stream = self._stream("foreach", maxOffsetsPerTrigger=ROWS // 3)
        writer = stream.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(self.folder / "checkpoint-foreach")
        )
        said = self._run(writer.trigger(availableNow=True).start)
        return {"said": said, "batches": len(batches), "done": self._seen(sink)}

    # -- parts of it

    def _flag(self, name: str) -> Path:
        flag = self.folder / f"flag-{name}"
        flag.touch()
        return flag

    def _stream(self, name: str, **options: Any) -> DataFrame:
        return read_stream(
            self.spark,
            self.bootstrap,
            checkpoint=str(self.folder / f"checkpoint-{name}"),
            subscribe=self.source,
            startingOffsets="earliest",
            **options,
        )

    def _query(self, name: str, sink: str, value: Column) -> StreamingQuery:
        return (
            self._stream(name)
            .select(value.alias("value"), "partition")
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", sink)
            .option("tidelog.delivery", "exactly-once")
            .option("checkpointLocation", str(self.folder / f"checkpoint-{name}"))
            .trigger(availableNow=True)
            .start()
        )

    def _run(self, start: Callable[[], StreamingQuery]) -> str:
        """Start a query and wait for its end."""
        said = ""
        for _ in range(STARTS_MAX):
            said = _said(start().awaitTermination)
            if NOT_STARTED not in said:
                break
        return said

    def _in_mid_batch(self, start: Callable[[], StreamingQuery], reached: Path) -> StreamingQuery:
        """Start a query, and wait until its tasks have made that file."""
        for _ in range(STARTS_MAX):
            query = start()
            until(partial(_is_there_or_over, reached, query), "tasks are in mid-batch", _PATIENCE_S)
            if reached.exists():
                return query
        raise AssertionError("Spark does not start its Python processes in time")

    def _write(self, sink: str, value: Column) -> str:
        rows = (
            self.spark.read.format("tidelog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.source)
            .load()
            .select(value.alias("value"), "partition")
        )
        return _said(lambda: self._save(rows, sink, f"job-{sink}"))

    def _save(self, rows: DataFrame, sink: str, job: str) -> None:
        rows.write.format("tidelog").option("kafka.bootstrap.servers", self.bootstrap).option(
            "topic", sink
        ).option("tidelog.job.id", job).mode("append").save()

    def _seen(self, sink: str) -> list[int]:
        """How many rows readers of committed records find, and how many different ones."""
        values = self.place.values(subscribe=sink, kafka_isolation_level="read_committed")
        return [len(values), len(set(values))]

    def _plan(self, name: str, sink: str) -> bool:
        """Whether the sink's marker says which plan of Spark it is about."""
        query = query_id(str(self.folder / f"checkpoint-{name}"))
        client = self.place.client
        marker = sink_marker(client.run(stable_offset(client.view, query, (sink, Partition(0)))))
        return marker is not None and marker.last is not None and marker.last.plan is not None

    def _let_go(self, sink: str) -> None:
        """No open transaction holds readers back. Tasks that were told to end may still be about to
        abort theirs."""
        until(
            lambda: not any(self._is_open(sink, number) for number in (0, 1)),
            "transactions of tasks that failed are aborted",
            _PATIENCE_S,
        )

    def _is_open(self, sink: str, number: int) -> bool:
        stable, end = (end_of(self.bootstrap, sink, which, number) for which in (1, 0))
        return stable < end


def _is_there_or_over(path: Path, query: StreamingQuery) -> bool:
    return path.exists() or not query.isActive


def _said(run: Callable[[], Any]) -> str:
    """The last line of the error that ends it, or nothing."""
    try:
        run()
    except PySparkException as error:
        return _last(str(error).splitlines())
    return ""


def _last(lines: list[str]) -> str:
    told: Iterator[str] = (one.strip() for one in lines if "Error: " in one or "error" in one)
    return next(told, lines[0] if lines else "an error without a text")


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """What was found after each failure, and after the run that was to complete the work."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    shutil.rmtree(_gate(""), ignore_errors=True)
    _gate("").mkdir()
    program = Program(spark, asked)
    troubles = {
        "udf": _raises,
        "innocent": _fails_beside_another,
        "sql": _raises_in_sql,
        "retried": _raises_once,
        "worker": _dies_once,
    }
    found = {name: program.stream(name, trouble) for name, trouble in troubles.items()}
    found["late"] = program.late()
    found["stopped"] = program.stopped()
    found["job"] = program.batch()
    found["foreach batch"] = program.foreach_batch()
    return found
