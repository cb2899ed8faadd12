"""Format `tidelog` whose work is ended where a cell of the matrix says so.

Each process of Spark reads the cell from a file. What ends the work from outside (a signal,
another task) strikes while a task stands still at the cell's moment: the task makes a file, and
goes on when there is another one.
"""

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from harness.processes.cluster import until
from harness.spark.matrix import COMMANDS, DRIVER_ENDS, Cell, Form, What, When
from harness.spark.matrix_results import cell_of
from harness.spark.plain import batch_of
from harness.spark.talk import FOLDER
from tidelog.clients.client import Client
from tidelog.clients.producer.transaction import end_transaction
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.spark.connections import client_of
from tidelog.spark.datasource import (
    BatchReader,
    BatchWriter,
    Done,
    StreamReader,
    StreamWriter,
    TidelogDataSource,
)
from tidelog.spark.exactly_once import Writer
from tidelog.spark.options import Mode, SinkOptions, SourceOptions, sink_options, source_options
from tidelog.spark.sink_commit import Sink
from tidelog.spark.tasks import Point, TaskInfo, Written, go_on
from tidelog.tools.supervisor.proc import is_gone

SHUFFLES = "SPARK_LOCAL_DIRS"
OPTION: Final = "matrix.order"
"""Of a frame that is read or written: the name of the order that its tasks obey."""
COMMANDED: Final = "commanded"
"""The name of the order of commands, of which one runs at a time."""
ROWS: Final = 1_000
"""Of the source, in two partitions; a replay's are in more."""
MIDDLE_ROWS: Final = 100
"""So many rows of a task are before its middle."""
CHUNK_ROWS: Final = 25
PATIENCE_S: Final = 600
"""For whatever a cell waits for; a busy machine takes minutes to start a session of Spark."""
_OUTSIDE: Final = (What.NEIGHBOUR, What.STOP, *DRIVER_ENDS)
_IN_TASKS: Final = (What.WORKER, What.STAGE, What.SPECULATION)
"""What strikes once in the sink itself."""


class StruckError(Exception):
    """What a data source raises that cannot go on."""


class Order:
    """A cell that is to be struck, and the files that are made about it."""

    def __init__(self, folder: Path, name: str, cell: Cell, *, planted: bool) -> None:
        self.folder = folder
        self.name = name
        """Its own: a cell may be run on several clusters, and with the planted fault."""
        self.cell = cell
        self.planted = planted

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Order":
        """As a request or the file has it."""
        cell = cell_of(said["cell"])
        return cls(Path(os.environ[FOLDER]), said["name"], cell, planted=said["planted"])

    @classmethod
    def named(cls, name: str) -> "Order | None":
        """The one with this name; None if nothing is to be struck, or no longer."""
        path = Path(os.environ[FOLDER]) / f"{name}.order"
        try:
            return cls.of(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None

    @property
    def said(self) -> dict[str, Any]:
        return {"name": self.name, "cell": self.cell.words, "planted": self.planted}

    @property
    def called(self) -> str:
        """The name by which processes of Spark ask for it: a program's frames can carry a name of
        their own, but a command takes no option of tests, so there is one name for all commands."""
        return COMMANDED if self.cell.how.form in COMMANDS else self.name

    def give(self) -> None:
        """To all processes."""
        told = self.folder / f"{self.called}.new"
        told.write_text(json.dumps(self.said))
        told.rename(self.folder / f"{self.called}.order")

    def take_back(self) -> None:
        (self.folder / f"{self.called}.order").unlink(missing_ok=True)

    @property
    def is_current(self) -> bool:
        found = Order.named(self.called)
        return found is not None and found.name == self.name

    @property
    def held(self) -> Path:
        """Made by a task that stands still at the cell's moment."""
        return self.folder / f"{self.name}.held"

    @property
    def goes_on(self) -> Path:
        """Made when it need not stand still any longer."""
        return self.folder / f"{self.name}.goes-on"

    @property
    def struck(self) -> Path:
        return self.folder / f"{self.name}.struck"

    def is_first(self) -> bool:
        """Of all processes that want to strike."""
        try:
            self.struck.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def stand_still(self) -> None:
        """The first one that gets there."""
        with suppress(FileExistsError):
            self.held.touch(exist_ok=False)
            self.struck.touch()
            until(self.goes_on.exists, "the task may go on", PATIENCE_S)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """A task of the sink, though Spark may no longer know of it."""
        file = self.folder / f"{self.name}.at-work.{os.getpid()}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def is_at_work(self) -> bool:
        """Whether any task is that has not been killed."""
        pids = [int(one.suffix[1:]) for one in self.folder.glob(f"{self.name}.at-work.*")]
        return not all(map(is_gone, pids))

    def fail_beside_the_one_that_stands(self) -> None:
        until(self.held.exists, "another task stands still", PATIENCE_S)
        raise StruckError("this task fails")


# -- before the sink


def _upstream(name: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The rows that a source reads, until the cell strikes."""
    order, given = Order.named(name), 0
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            _of_source(order, When.FIRST if given == 0 else When.MIDDLE, given)
            chunk = batch.slice(start, CHUNK_ROWS)
            yield chunk
            given += chunk.num_rows
    if given:
        _of_source(order, When.LAST, given)


def _of_source(order: Order | None, when: When, given: int) -> None:
    """At this moment of a task of the source."""
    if order is None or when is not order.cell.when:
        return
    if when is When.MIDDLE and given < MIDDLE_ROWS:
        return
    context, what = TaskContext.get(), order.cell.what
    is_second = context is not None and context.partitionId() == 1
    if what is What.NEIGHBOUR and is_second:
        order.fail_beside_the_one_that_stands()
    elif what is What.NEIGHBOUR or (what in _OUTSIDE and is_second):
        order.stand_still()
    elif is_second:
        _end_source(order)


def _end_source(order: Order) -> None:
    if order.cell.what is What.SOURCE:
        order.struck.touch()
        raise StruckError("the source cannot be read")
    if order.cell.what is What.UPSTREAM and order.is_first():
        os.kill(os.getpid(), signal.SIGKILL)


class StruckReader(BatchReader):
    def __init__(self, options: SourceOptions, order: str) -> None:
        super().__init__(options)
        self.order = order

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _upstream(self.order, super().read(partition))


class StruckStreamReader(StreamReader):
    def __init__(self, options: SourceOptions, order: str) -> None:
        super().__init__(options)
        self.order = order

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _upstream(self.order, super().read(partition))


# -- in the sink


def _downstream(
    order: Order | None, options: SinkOptions, batches: Iterator[Any], batch: int
) -> Iterator[Any]:
    """The rows that a task of the sink is given; it strikes what a source cannot."""
    given = 0
    strike = partial(_in_task, order, options, batch)
    for one in batches:
        if given == 0:
            strike(When.FIRST)
        given += one.num_rows
        yield one
        if given >= MIDDLE_ROWS or _is_wide(order):
            strike(When.MIDDLE)
    if given:
        strike(When.LAST)


def _is_wide(order: Order | None) -> bool:
    """Its first rows are enough: the next ones are beyond what sockets hold."""
    return order is not None and order.cell.what in {What.SHUFFLE, What.STAGE}


def _in_task(order: Order | None, options: SinkOptions, batch: int, when: When) -> None:
    """At this moment of a task of the sink."""
    if order is None or when is not order.cell.when:
        return
    what = order.cell.what
    if what in _OUTSIDE and order.cell.how.form is Form.REPLAY:
        _in_task_of_replay(order)
    elif what is What.SHUFFLE:
        order.struck.touch()
        _lose_shuffle_files()
    elif what in _IN_TASKS and order.is_first():
        _once_in_task(what, options, batch)


def _once_in_task(what: What, options: SinkOptions, batch: int) -> None:
    if what is What.WORKER:
        os.kill(os.getpid(), signal.SIGKILL)
    elif what is What.STAGE:
        _lose_shuffle_files()
    else:
        _overtake(options, *_whose(batch))


def _in_task_of_replay(order: Order) -> None:
    """No source of ours is before it, where a task could stand still."""
    if order.cell.what is What.NEIGHBOUR and not order.is_first():
        order.fail_beside_the_one_that_stands()
    order.stand_still()


def _lose_shuffle_files() -> None:
    for path in Path(os.environ[SHUFFLES]).rglob("shuffle_*.data"):
        path.unlink(missing_ok=True)


def _whose(batch: int) -> tuple[str, int, Sequence[int]]:
    """Query, micro-batch and number of the running task."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    number = context.getLocalProperty("streaming.sql.batchId")
    return query, batch if number is None else int(number), [context.partitionId()]


def _overtake(options: SinkOptions, query: str, batch: int, parts: Sequence[int]) -> None:
    """What another attempt does that is ended in the middle of its rows."""
    with _another_client(options) as client:
        for part in parts:
            sink = Sink.of(options, query)
            rows = batch_of([b"of an attempt that loses"], partition=[0], topic=[sink.marker[0]])
            Writer(client, options, sink).write(TaskInfo(query, batch, part, 1), [rows])


@contextmanager
def _another_client(options: SinkOptions) -> Iterator[Client]:
    """As another process has it."""
    transport = Transport(ConnectionSettings())
    client = Client(transport, options.connection.bootstrap)
    client.connect()
    try:
        yield client
    finally:
        transport.close()


# -- on the driver


class _Struck:
    """What both kinds of writers add."""

    options: SinkOptions
    named: str
    """The order's."""
    query = ""

    @property
    def order(self) -> Order | None:
        return Order.named(self.named)

    def steps(self) -> Callable[[Point, int, int], None]:
        def reached(point: Point, batch: int, _partition: int) -> None:
            if point is Point.BETWEEN:
                self.strike(When.BETWEEN, batch)

        return reached

    def strike(self, when: When, batch: int) -> None:
        """In the process that commits."""
        order = self.order
        if order is None or order.cell.when is not when:
            return
        what = order.cell.what
        if what is What.WORKER and order.is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        elif what is What.SPECULATION and order.is_first():
            _overtake(self.options, self.query, batch, (0, 1))
        elif what in _OUTSIDE:
            order.stand_still()

    def written(self, writer: BatchWriter | StreamWriter, rows: Iterator[Any], batch: int) -> Done:
        order = self.order
        given = _downstream(order, self.options, rows, batch)
        if order is None or not order.planted:
            return writer.write(given)
        with order.at_work():
            done = writer.write(given)
            return _committed_at_once(self.options, done)

    @property
    def lets_go(self) -> bool:
        """The sink with the planted fault leaves what it has open as it is."""
        order = self.order
        return order is None or not order.planted

    def told(self, messages: Iterable[Done | None]) -> int:
        """Remember whose micro-batch it is; its number."""
        first = next(one for one in messages if one is not None)
        self.query = first.query
        return first.batch


class StruckBatchWriter(_Struck, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, named: str) -> None:
        self.options = options
        self.named = named
        self._of_tasks = BatchWriter(options, go_on)  # sent to them with their permit

    @property
    def _writer(self) -> BatchWriter:
        return BatchWriter(self.options, self.steps())

    def write(self, iterator: Iterator[Any]) -> Done:
        return self.written(self._of_tasks, iterator, 0)

    def commit(self, messages: list[Any]) -> None:
        batch = self.told(messages)
        self._writer.commit(messages)
        self.strike(When.NOTED, batch)

    def abort(self, messages: list[Any]) -> None:
        if self.lets_go:
            self._writer.abort(messages)


class StruckStreamWriter(_Struck, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, named: str) -> None:
        self.options = options
        self.named = named
        self._of_tasks = StreamWriter(options, go_on)  # sent to them with their permit

    @property
    def _writer(self) -> StreamWriter:
        return StreamWriter(self.options, self.steps())

    def write(self, iterator: Iterator[Any]) -> Done:
        return self.written(self._of_tasks, iterator, -1)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 -- Spark's
        batch = self.told(messages)
        self._writer.commit(messages, batchId)
        self.strike(When.NOTED, batch)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 -- Spark's
        if self.lets_go:
            self._writer.abort(messages, batchId)


def _committed_at_once(options: SinkOptions, done: Done) -> Done:
    """The planted fault: a task that commits its transaction when its input ends."""
    written = done.written
    if written.open is None:
        return done
    client = client_of(options.connection)
    name, identity, bumps = written.open.transaction
    client.run(end_transaction(client.view, name, identity, committed=True, bumps=bumps))
    kept: Written = replace(written, open=None)
    return replace(done, written=kept)


class StruckSource(TidelogDataSource):
    """Format `tidelog` under the order that an option names, or that of commands."""

    def __init__(self, options: dict[str, str]) -> None:
        self.order = options.get(OPTION, COMMANDED)
        super().__init__({name: value for name, value in options.items() if name != OPTION})

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's
        return StruckReader(source_options(self.options, Mode.BATCH), self.order)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's
        return StruckStreamReader(source_options(self.options, Mode.STREAM), self.order)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001 -- Spark's
        return StruckBatchWriter(sink_options(self.options, Mode.BATCH), self.order)

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,  # noqa: ARG002 -- Spark's
        overwrite: bool,  # noqa: ARG002, FBT001 -- Spark's
    ) -> DataSourceStreamArrowWriter:
        return StruckStreamWriter(sink_options(self.options, Mode.STREAM), self.order)
