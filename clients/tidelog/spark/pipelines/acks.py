"""What producers were told: the history of a load, as Parquet, for `verify`."""

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidelog.kernel.ids import TopicPartition
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


class AckLog:
    """One task's part of it."""

    def __init__(self, folder: str, number: int) -> None:
        where, path = fs.FileSystem.from_uri(folder) if "://" in folder else _local(folder)
        where.create_dir(path, recursive=True)
        self._writer = pq.ParquetWriter(
            f"{path}/part-{number:05}.parquet", SCHEMA, filesystem=where
        )
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
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._kept:
            self._writer.write_table(pa.Table.from_batches(self._kept))
        self._kept, self._rows = [], 0


def _local(folder: str) -> tuple[Any, str]:
    return fs.LocalFileSystem(), folder
