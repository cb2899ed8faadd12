"""The data source as Spark sees it: thin adapters around what reads and writes without Spark.

Objects of these classes are pickled and go to other processes: they hold options, never
connections. Each process finds its own by the options.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.clients.producer.sender import Identity
from tidelog.kernel.limits import MIB
from tidelog.spark.checkpoints import plan_digest, query_id
from tidelog.spark.columns import Column
from tidelog.spark.connections import client_of
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.initial_file import InitialFile
from tidelog.spark.offsets import Json, OffsetRange, gathered
from tidelog.spark.option_rows import AT_LEAST_ONCE, EXACTLY_ONCE, EXACTLY_ONCE_ATOMIC
from tidelog.spark.options import (
    Mode,
    OptionError,
    SinkOptions,
    SourceOptions,
    columns_of,
    sink_options,
    source_options,
)
from tidelog.spark.pushdown import Condition, Pushed, pushed_by
from tidelog.spark.reading import plan_ranges, read_range
from tidelog.spark.rows import check_columns
from tidelog.spark.sending import Sent
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.stream import Stream
from tidelog.spark.tasks import Point, Reached, SinkError, TaskInfo, Written, go_on
from tidelog.spark.workers import settle
from tidelog.spark.writing import write_at_least_once

WHOLE_BYTES_MAX = 64 * MIB
"""Of the rows of one micro-batch that go through the driver."""
_DDL = {
    Column.KEY: "binary",
    Column.VALUE: "binary",
    Column.TOPIC: "string",
    Column.PARTITION: "int",
    Column.OFFSET: "bigint",
    Column.TIMESTAMP: "timestamp",
    Column.TIMESTAMP_TYPE: "int",
    Column.HEADERS: "array<struct<key:string,value:binary>>",
}


class TidelogDataSource(Sent, DataSource):
    """Format `tidelog`."""

    reached: Reached = staticmethod(go_on)
    """Told of the steps of an exactly-once write."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        columns = columns_of(self.options)
        return ", ".join(f"`{one.value}` {_DDL[one]}" for one in columns.wanted)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's
        options = source_options(self.options, Mode.BATCH)
        return FilteredReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's
        return StreamReader(source_options(self.options, Mode.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 -- Spark's
        if overwrite:
            raise OptionError('a topic is never overwritten: say mode("append")')
        options = sink_options(self.options, Mode.BATCH)
        check_columns(_types(schema), topic=options.topic)
        return BatchWriter(options, type(self).reached)

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 -- Spark's
    ) -> DataSourceStreamArrowWriter:
        options = sink_options(self.options, Mode.STREAM)
        check_columns(_types(schema), topic=options.topic)
        settle()
        return StreamWriter(options, type(self).reached)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


class RangePartition(InputPartition):
    """Ranges of offsets on their way to the task that reads them."""

    def __init__(self, wanted: Sequence[OffsetRange]) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _tasks(options: SourceOptions, ranges: Iterable[OffsetRange]) -> list[RangePartition]:
    found = gathered(ranges, size_min=options.offsets_per_task_min)
    return [RangePartition(one) for one in found]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Where there is nothing to read, Spark has one task all the same."""
    if isinstance(partition, RangePartition):
        for one in partition.wanted:
            yield from read_range(one, options)
    settle()


class BatchReader(Sent, DataSourceReader):
    """Reads what there is, once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        return _tasks(self.options, plan_ranges(self.options, self.pushed))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self.options, partition)


_COMPARISONS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class FilteredReader(BatchReader):
    """Reads what filters leave; a class of its own, for Spark refuses it where filters are off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """All of them are given back: ranges may be wider than what is asked for."""
        self.pushed = pushed_by(_conditions(filters))
        return filters


def _conditions(filters: list[Filter]) -> Iterator[Condition]:
    for one in filters:
        comparison = _COMPARISONS.get(type(one))
        if comparison is not None:
            column, value = vars(one)["attribute"], vars(one)["value"]
            yield Condition(column[0] if len(column) == 1 else "", comparison, value)


class StreamReader(Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on; `stop` is not told reliably, so nothing waits for it."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._stream: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    @property
    def stream(self) -> Stream:
        """Of the process that plans."""
        if self._stream is None:
            options = self.options
            path = options.initial_offsets
            kept = None if path is None else InitialFile(path)
            assert options.connection is not None, "streams ask a cluster"
            self._stream = Stream(options, client_of(options.connection), kept)
        return self._stream

    def initialOffset(self) -> Json:  # noqa: N802 -- Spark's name
        return self.stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        limits = self.options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        return ReadAllAvailable() if limits.offsets_min is None else ReadMinRows(limits.offsets_min)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        self.stream.freeze()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 -- Spark's name
        return self.stream.latest(start, unlimited=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 -- Spark's name
        return self.stream.report()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        return _tasks(self.options, self.stream.ranges(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self.options, partition)

    def commit(self, end: Json) -> None:
        self.stream.committed(end)


@dataclass(frozen=True)
class Done(WriterCommitMessage):
    """What a task says to the driver."""

    query: str
    batch: int
    written: Written


def _task(batch: int, permit: Identity | None) -> TaskInfo:
    """Of the running task; the micro-batch is told by no argument. `batch`: where Spark names none,
    also in a batch write that is not part of foreachBatch."""
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written by tasks of Spark")
    named = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    number = batch if named is None else int(named)
    return TaskInfo(query, number, context.partitionId(), context.attemptNumber(), permit)


def _write(
    options: SinkOptions, reached: Reached, task: TaskInfo, batches: Iterable[Any]
) -> Written:
    client = client_of(options.connection)
    match options.delivery:
        case "exactly-once":
            sink = Sink.of(options, task.query)
            return Writer(client, options, sink, reached=reached).write(task, batches)
        case "exactly-once-atomic":
            return Written(task.partition, 0, content=_packed(batches))
        case _:
            return write_at_least_once(client, options, task, batches)


def _packed(batches: Iterable[Any]) -> bytes:
    """The rows of a task, to be written by the driver."""
    out = io.BytesIO()
    stream = None
    for batch in batches:
        stream = stream or pa.ipc.new_stream(out, batch.schema)
        stream.write_batch(batch)
        if out.tell() > WHOLE_BYTES_MAX:
            raise SinkError(_too_much(out.tell()))
    if stream is not None:
        stream.close()
    return out.getvalue()


def _too_much(size: int) -> str:
    return (
        f"tidelog.delivery={EXACTLY_ONCE_ATOMIC} takes micro-batches of at most {WHOLE_BYTES_MAX} "
        f"bytes, this one has {size}: bound it with maxOffsetsPerTrigger, or say {EXACTLY_ONCE}"
    )


def _unpacked(messages: Sequence[Written]) -> Iterator[Any]:
    for one in sorted(messages, key=lambda one: one.partition):
        if one.content:
            yield from pa.ipc.open_stream(one.content)


@dataclass(frozen=True)
class _Driver:
    """What the driver does once the tasks of a write are done, or have failed."""

    options: SinkOptions
    reached: Reached
    permit: Identity | None = None
    """Of the tasks of a job that is planned; None if the driver does not know the sink's name."""

    def planned(self) -> "_Driver":
        """What goes to the tasks of a job that Spark is planning."""
        sink = self._known_sink()
        if sink is None or self.permit is not None:
            return self
        return replace(self, permit=self._committer(sink).permit())

    def write(self, iterator: Iterator[Any], batch: int) -> Done:
        """In a task. `batch`: see `_task`."""
        task = _task(batch, self.permit)
        if task.batch < 0 and self.options.delivery != AT_LEAST_ONCE:
            raise SinkError("Spark does not say which micro-batch this is")
        written = _write(self.options, self.reached, task, iterator)
        settle()
        return Done(task.query, task.batch, written)

    def commit(self, messages: Sequence[Done | None]) -> None:
        if self.options.delivery == AT_LEAST_ONCE or not messages:
            return
        first = next((one for one in messages if one is not None), None)
        if first is None:
            raise SinkError("no task says that it is done: start the query again")
        written = [None if one is None else one.written for one in messages]
        self._commit(first, written)

    def _commit(self, first: Done, written: Sequence[Written | None]) -> None:
        """Of the micro-batch of which this task is one."""
        plan = plan_digest(self.options.checkpoint, first.batch)
        batch = Batch(first.query, first.batch, plan)
        committer = self._committer(Sink.of(self.options, first.query))
        self.reached(Point.DRIVER, first.batch, -1)
        if self.options.delivery == EXACTLY_ONCE:
            committer.finish(batch, written)
            return
        whole = [one for one in written if one is not None]
        size = sum(len(one.content) for one in whole)
        if size > WHOLE_BYTES_MAX:
            raise SinkError(_too_much(size))
        committer.write_whole(batch, _unpacked(whole), len(whole))

    def abort(self, messages: Sequence[Done | None]) -> None:
        queries = (one.query for one in messages if one is not None)
        sink = self._known_sink(next(queries, ""))
        if sink is not None:
            self._committer(sink).give_up(len(messages))

    def _known_sink(self, query: str = "") -> Sink | None:
        """The exactly-once sink, if an option names it, or the query has told its id, or it can be
        read in the checkpoint."""
        if self.options.delivery != EXACTLY_ONCE:
            return None
        query = query or query_id(self.options.checkpoint)
        is_known = self.options.job_id or self.options.sink_id or query
        return Sink.of(self.options, query) if is_known else None

    def _committer(self, sink: Sink) -> Committer:
        client = client_of(self.options.connection)
        return Committer(client, self.options, sink, reached=self.reached)


class _Planned(Sent):
    """A writer, which Spark pickles when it plans a job."""

    def __init__(self, options: SinkOptions, reached: Reached) -> None:
        self._driver = _Driver(options, reached)

    def __getstate__(self) -> dict[str, Any]:
        self._driver = self._driver.planned()  # Spark pickles it twice
        return self.__dict__


class BatchWriter(_Planned, DataSourceArrowWriter):
    """Writes a data frame: as micro-batch 0 of a job, or in foreachBatch as the one that it is."""

    def write(self, iterator: Iterator[Any]) -> Done:
        return self._driver.write(iterator, 0)

    def commit(self, messages: list[Any]) -> None:
        self._driver.commit(messages)

    def abort(self, messages: list[Any]) -> None:
        self._driver.abort(messages)


class StreamWriter(_Planned, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def write(self, iterator: Iterator[Any]) -> Done:
        return self._driver.write(iterator, -1)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 -- Spark's
        self._driver.commit(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 -- Spark's
        self._driver.abort(messages)
