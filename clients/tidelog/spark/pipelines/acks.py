"""What producers were told: the history of a load, as Parquet, for `verify`.

A history of which a part is missing looks as if records had never been sent. So it counts as
complete only when the driver knows that all tasks have ended well: until then a marker stands in
its folder, and a task's file has a name that no reader takes.
"""

import time
import uuid
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidelog.kernel.ids import TopicPartition
from tidelog.spark.pipelines.failures import PipelineError
from tidelog.spark.pipelines.generating import Numbers

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("at_ms", pa.int64()),
    ]
)
"""A row each; the offset is -1 where none is known, the status acked, failed, unknown or aborted.
"""
_ROWS_KEPT: Final = 1 << 18


_INCOMPLETE: Final = "_INCOMPLETE"
"""Spark reads no file whose name begins so."""


def begin(folder: str) -> None:
    """On the driver, before any task; PipelineError where a history is there already."""
    where, path = _place(folder)
    where.create_dir(path, recursive=True)
    if _names(where, path):
        raise PipelineError(
            f"--history={folder}: there is a history, or a part of one, already: choose another "
            "folder, because verify would take both for one load"
        )
    with where.open_output_stream(f"{path}/{_INCOMPLETE}"):
        """Empty: its name says it."""


def complete(folder: str) -> None:
    """On the driver, when all tasks have ended well."""
    where, path = _place(folder)
    where.delete_file(f"{path}/{_INCOMPLETE}")


def check_complete(folder: str) -> None:
    """PipelineError for a history whose load did not end."""
    try:
        names = _names(*_place(folder))
    except (OSError, ValueError):
        return  # a place that only Spark can read: no load of ours writes there
    if _INCOMPLETE in names:
        raise PipelineError(
            f"{folder}: the load that wrote this history did not end, so that the fate of some of "
            "its rows is not in it: load again, with another --history"
        )


class AckLog:
    """One task's part of it."""

    def __init__(self, folder: str, number: int) -> None:
        self._where, path = _place(folder)
        self._final = f"{path}/part-{number:05}.parquet"
        # Each attempt of a task has a file of its own.
        self._unfinished = f"{path}/_part-{number:05}-{uuid.uuid4().hex}"
        self._writer = pq.ParquetWriter(self._unfinished, SCHEMA, filesystem=self._where)
        self._kept: list[Any] = []
        self._rows = 0

    def add(self, numbers: Numbers, place: TopicPartition, base_offset: int, status: str) -> None:
        """A batch of rows, which have offsets from the base on."""
        count = len(numbers)
        offsets = np.full(count, -1) if base_offset < 0 else base_offset + np.arange(count)
        self._kept.append(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(numbers),
                    pa.repeat(place[0], count),
                    pa.repeat(pa.scalar(place[1], pa.int32()), count),
                    pa.array(offsets),
                    pa.repeat(status, count),
                    pa.repeat(time.time_ns() // 1_000_000, count),
                ],
                schema=SCHEMA,
            )
        )
        self._rows += count
        if self._rows >= _ROWS_KEPT:
            self._write()

    def close(self) -> None:
        """Once all rows of the task are in it. Without this the file keeps its unfinished name,
        under which it is also closed if an exception passes."""
        self._write()
        self._writer.close()
        self._where.move(self._unfinished, self._final)

    def _write(self) -> None:
        if self._kept:
            self._writer.write_table(pa.Table.from_batches(self._kept))
        self._kept, self._rows = [], 0


def _place(folder: str) -> tuple[Any, str]:
    if "://" in folder:
        where, path = fs.FileSystem.from_uri(folder)
        return where, path
    return fs.LocalFileSystem(), folder


def _names(where: Any, path: str) -> set[str]:  # noqa: ANN401 -- a file system
    if where.get_file_info(path).type is not fs.FileType.Directory:
        return set()
    return {one.base_name for one in where.get_file_info(fs.FileSelector(path))}
