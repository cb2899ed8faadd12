"""A session of Spark that works through cells of the matrix as it is asked to; run as a program.

It takes a request a line: cells, whether each is to be struck, and where to. It answers how each
run ended. Cells that end the driver have no answer.
"""

import importlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pyspark.sql.functions as f
from pyspark.sql import Column, DataFrame, SparkSession

import tidelog.spark.sessions as made_by
from harness.processes.cluster import until
from harness.spark.matrix import IN_SHUFFLES, Delivery, Form, What, When
from harness.spark.matrix_strikes import MIDDLE_ROWS, OPTION, PATIENCE_S, ROWS, Order, StruckSource
from harness.spark.talk import answer, requests
from tidelog.spark.pipelines.arguments import parse
from tidelog.spark.pipelines.topics import connect
from tidelog.spark.sessions import read_stream, session

DIGITS: Final = 6
"""Of the row's number, with which its value begins."""
WIDE_BYTES: Final = 32_000
"""Where rows must not fit into what sockets hold."""
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
CONF: Final = {
    "spark.driver.memory": "1g",
    # After a lost shuffle file the executor of local mode cannot register again, and would end.
    "spark.executor.heartbeat.maxFailures": "1000000",
    "spark.python.daemon.module": "harness.spark.matrix_daemon",
    _BATCH_ROWS: "25",
    "spark.stage.maxConsecutiveAttempts": "2",
}
LAKE: Final = "lake"
"""The folder of what is replayed, in the matrix's."""
FEW_TASKS: Final = 2
"""At a time, if a session runs one cell after the other."""
PIECES: Final = 6
"""Tasks after a shuffle: of two at a time, the last two find a file lost that was lost again when
the ones before them had begun. As many partitions has what is replayed."""
_HEADER_BYTES: Final = 8
"""Of the header of a page in Parquet."""
_STOP_S: Final = 0.5
"""For the stop of a query to get to its tasks, while one of them stands still."""


def master(tasks: int) -> str:
    """With so many tasks at a time. A task is tried twice, as is a stage."""
    return f"local[{tasks},2]"


def first_row(when: When) -> int:
    """At which one a function or an expression strikes: of partition 1, which has the odd ones."""
    return {When.FIRST: 1, When.MIDDLE: 2 * MIDDLE_ROWS + 1}.get(when, ROWS - 1)


class CommandError(Exception):
    """A pipeline has failed, and said why."""


class Work:
    """One cell, with the names of what it reads and writes."""

    def __init__(self, spark: SparkSession, asked: dict[str, Any]) -> None:
        self.spark = spark
        self.order = Order.of(asked)
        self.cell = self.order.cell
        self.folder = self.order.folder
        self.bootstrap: str = asked["bootstrap"]
        self.source: str = asked["source"]
        self.sink: str = asked["sink"]
        self.is_struck: bool = asked["struck"]

    def run(self) -> str:
        """How it ended: empty if in order."""
        runs = {Form.STREAM: self._stream, Form.FOREACH: self._stream, Form.BATCH: self._batch}
        run = runs.get(self.cell.how.form, self._command)
        if not self.is_struck:
            return _said(run)
        self.order.give()
        try:
            with self._cancelled():
                return _said(run)
        finally:
            self.order.take_back()
            self.order.goes_on.touch()
            # The planted fault is found if its transaction ends before another attempt aborts it.
            until(lambda: not self.order.is_at_work(), "no task is at work", PATIENCE_S)

    # -- what is written

    def _value(self) -> Column:
        value = f.col("value")
        if not self.is_struck:
            return self._widened(value)
        row = b"%0*d" % (DIGITS, first_row(self.cell.when))
        if self.cell.what is What.FUNCTION:
            return f.udf(_raising(self.order, row), "binary")(value)
        if self.cell.what is What.SQL:
            self.order.struck.touch()
            is_it = f"substring(value, 1, {DIGITS}) = cast('{row.decode()}' as binary)"
            raised = "cast(raise_error('an error in SQL') as binary)"
            return f.expr(f"case when {is_it} then {raised} else value end")
        return self._widened(value)

    def _widened(self, value: Column) -> Column:
        is_wide = self.cell.what in IN_SHUFFLES and self.cell.when is When.MIDDLE
        return f.concat(value, f.lit(bytes(WIDE_BYTES))) if is_wide else value

    def _rows(self, source: DataFrame) -> DataFrame:
        rows = source.select(self._value().alias("value"), "partition")
        if self.cell.what not in IN_SHUFFLES:
            return rows
        return rows.repartition(2 if self.cell.when is When.MIDDLE else PIECES, "value")

    # -- the programs

    @property
    def _checkpoint(self) -> str:
        return str(self.folder / f"checkpoint-{self.order.name}")

    def _stream(self) -> None:
        rows = read_stream(
            self.spark,
            self.bootstrap,
            checkpoint=self._checkpoint,
            subscribe=self.source,
            startingOffsets="earliest",
            **self._ordered,
        )
        if self.cell.how.form is Form.STREAM:
            writer = self._options(self._rows(rows).writeStream.format("tidelog"))
        else:
            writer = rows.writeStream.foreachBatch(lambda some, _: self._save(self._rows(some)))
        query = (
            writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()
        )
        if self.is_struck and self.cell.what is What.STOP:
            self._stop(query.stop, lambda: not query.isActive)
        query.awaitTermination()

    def _stop(self, stop: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """While a task stands still; who stops a query waits until it is stopped."""
        held = self.order.held
        until(lambda: held.exists() or is_over(), "a task stands still", PATIENCE_S)
        stopping = threading.Thread(target=stop)
        stopping.start()
        stopping.join(_STOP_S)
        self.order.goes_on.touch()
        stopping.join()

    def _batch(self) -> None:
        rows = self.spark.read.format("tidelog").options(
            **{"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.source},
            **self._ordered,
        )
        self._save(self._rows(rows.load()))

    def _save(self, rows: DataFrame) -> None:
        writer = self._options(rows.write.format("tidelog"))
        if self.cell.how.delivery is not Delivery.AT_LEAST:
            writer = writer.option("tidelog.job.id", self.order.name)
        writer.mode("append").save()

    def _options(self, writer: Any) -> Any:
        delivery = self.cell.how.delivery.value
        return writer.options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "topic": self.sink,
                "tidelog.delivery": delivery,
                # What a driver leaves open stays open until the next one comes.
                "kafka.transaction.timeout.ms": str(1_000 * PATIENCE_S),
            },
            **self._ordered,
        )

    @property
    def _ordered(self) -> dict[str, str]:
        """The option that has tasks obey the order; a run that goes on must know none."""
        return {OPTION: self.order.name if self.is_struck else ""}

    @contextmanager
    def _cancelled(self) -> Iterator[None]:
        """The jobs of a batch, if the cell says so, as soon as a task stands still."""
        if self.cell.what is not What.STOP or self.cell.how.form is not Form.BATCH:
            yield
            return
        cancel = self.spark.sparkContext.cancelAllJobs
        is_over = threading.Event()
        canceller = threading.Thread(target=partial(self._stop, cancel, is_over.is_set))
        canceller.start()
        try:
            yield
        finally:
            is_over.set()
            canceller.join()

    def _command(self) -> None:
        """As it is run by its name, but in this session."""
        form = self.cell.how.form
        words = command_words(self.order, self.bootstrap, self.source, self.sink)
        program: Any = importlib.import_module(f"tidelog.spark.pipelines.{form.value}")
        arguments: Any = parse(program.Arguments, words)
        arguments.look(connect(self.bootstrap))
        is_damaged = self.is_struck and form is Form.REPLAY and self.cell.what is What.SOURCE
        with _damaged(self.folder / LAKE, self.order) if is_damaged else nullcontext():
            code: int = program.main(self.spark, arguments)
        if code:
            raise CommandError(f"Error: the exit code is {code}")


def command_words(order: Order, bootstrap: str, source: str, sink: str) -> list[str]:
    """The words of a command line behind the pipeline's name."""
    if order.cell.how.form is Form.MIRROR:
        return [
            f"--bootstrap={bootstrap}",
            f"--to={bootstrap}",
            f"--topics={source}",
            f"--prefix={sink.removesuffix(source)}",
            f"--name={order.name}",
            f"--checkpoint={order.folder / f'checkpoint-{order.name}'}",
        ]
    words = [f"--bootstrap={bootstrap}", f"--topic={sink}", f"--source={order.folder / LAKE}"]
    is_once = order.cell.how.delivery is Delivery.ONCE
    return [*words, f"--job-id={order.name}"] if is_once else words


def _raising(order: Order, row: bytes) -> Callable[[bytes], bytes]:
    """A user's function that cannot take this row, as long as the cell is struck."""

    def check(value: bytes) -> bytes:
        if bytes(value[:DIGITS]) == row and order.is_current:
            order.struck.touch()
            raise ValueError("a row that the function cannot take")
        return bytes(value)

    return check


@contextmanager
def _damaged(lake: Path, order: Order) -> Iterator[None]:
    """One of the files that a replay reads: the header before its values, so that all else of it,
    which is read before there is a sink, can be read."""
    path = max(lake.glob("*.parquet"), key=lambda one: one.stat().st_size)
    whole = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    place = next(one.data_page_offset for one in columns if one.path_in_schema == "value")
    path.write_bytes(whole[:place] + bytes(_HEADER_BYTES) + whole[place + _HEADER_BYTES :])
    (lake / f".{path.name}.crc").unlink(missing_ok=True)
    order.struck.touch()
    try:
        yield
    finally:
        path.write_bytes(whole)


def _said(run: Callable[[], None]) -> str:
    """The first line of the error that ends it, or nothing."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 -- the test is told of it
        lines = [line for line in str(error).splitlines() if "Error: " in line]
        return f"{type(error).__name__}: {(lines or [str(error)])[-1][:300]}"
    return ""


def _fill_lake(spark: SparkSession, bootstrap: str, source: str, lake: Path) -> None:
    """What replays read: the rows of the source, in more partitions."""
    if lake.exists():
        return
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": source,
        "includeHeaders": "true",
    }
    rows = spark.read.format("tidelog").options(**options).load()
    number = f.substring(f.col("value").cast("string"), 1, DIGITS).cast("int")
    placed = rows.withColumn("partition", number % PIECES)
    placed.coalesce(1).write.parquet(f"{lake}.new")
    shutil.move(f"{lake}.new", lake)


def replay_topic(spark: SparkSession, base: str) -> str:
    """A name under which each task of a replay has one partition."""
    places = f"count(distinct pmod(hash(name, place), {PIECES})) = {PIECES}"
    names = spark.range(1_000).selectExpr(f"concat('{base}-', id) as name")
    pairs = names.crossJoin(spark.range(PIECES).selectExpr("cast(id as int) as place"))
    found = pairs.groupBy("name").agg(f.expr(places).alias("fits")).where("fits").sort("name")
    return str(found.first()["name"])  # type: ignore[index]  # some name of a thousand fits


def run_all(works: Sequence[Work]) -> list[str]:
    """How each of them ended. A driver that is to be killed has all of them stand still at once."""
    if len(works) == 1 or not works[0].is_struck:
        return [one.run() for one in works]
    said: dict[str, str] = {}
    threads = [_standing_still(one, said) for one in works]
    for one in threads:
        one.join()
    return [said.get(one.order.name, "it was ended") for one in works]


def _standing_still(work: Work, said: dict[str, str]) -> threading.Thread:
    """One that has come to its moment: the next one is started only then, so that they do not take
    the machine from each other."""

    def run() -> None:
        # Makes the session the active one of this thread: a write looks up its format there.
        work.spark.createDataFrame([], "id int")
        said[work.order.name] = work.run()
        sys.stderr.write(f"{work.order.name} has ended: {said[work.order.name]}\n")

    # A driver that is told to end does not wait for it.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    held = work.order.held
    until(lambda: held.exists() or not thread.is_alive(), "a task stands still", PATIENCE_S)
    return thread


def named_sinks(spark: SparkSession, works: Sequence[Work]) -> list[str]:
    """Where each of them writes to, and that what replays read is there."""
    if any(one.cell.how.form is Form.REPLAY for one in works):
        _fill_lake(spark, works[0].bootstrap, works[0].source, works[0].folder / LAKE)
    return [
        replay_topic(spark, one.sink) if one.cell.how.form is Form.REPLAY else one.sink
        for one in works
    ]


def answers(spark: SparkSession, asked: dict[str, Any]) -> list[str]:
    """How each cell ended, in a session that others use as well."""
    spark.dataSource.register(StruckSource)
    spark.conf.set(_BATCH_ROWS, CONF[_BATCH_ROWS])
    return _answers(spark, asked)


def _answers(spark: SparkSession, asked: dict[str, Any]) -> list[str]:
    works = [Work(spark, one) for one in asked["works"]]
    return named_sinks(spark, works) if asked["names"] else run_all(works)


def main() -> None:
    vars(made_by)["RegisteredSource"] = StruckSource  # every session is made with this one
    spark = session(master(int(sys.argv[1])), app="matrix", conf=CONF)
    answer({"ready": True})
    for asked in requests():
        found = _answers(spark, asked)
        spark.conf.get("spark.app.name")  # ends this program if its JVM has ended
        answer({"answers": found})
    spark.stop()


if __name__ == "__main__":
    main()
