"""Where each row goes: by its own columns, else by its key, as Kafka's Java client decides it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.clients.producer.partitioner import partition_of_key
from tidelog.kernel.ids import Partition
from tidelog.spark.rows import RowError

Numbers = npt.NDArray[np.int64]


class Part(NamedTuple):
    """Rows of one partition, in their order."""

    topic: str
    partition: Partition
    rows: Any


class Router:
    """Invariant: rows with the same destination keep their order.

    Rows without key and partition go on together, each Arrow batch to the next partition; the
    first differs by task, so that many tasks do not all begin at one.
    """

    def __init__(
        self, topic: str | None, partition_count: Callable[[str], int], *, first: int = 0
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._next = first

    def parts(self, batch: Any) -> Iterator[Part]:  # noqa: ANN401 -- a RecordBatch
        """The rows of an Arrow batch by topic and partition."""
        for topic, rows in self._by_topic(batch):
            partitions = self._partitions(topic, rows)
            self._next += 1
            if partitions[0] == partitions[-1] and (partitions == partitions[0]).all():
                yield Part(topic, Partition(int(partitions[0])), rows)
                continue
            order = np.argsort(partitions, kind="stable")
            sorted_rows = rows.take(pa.array(order))
            numbers, starts = np.unique(partitions[order], return_index=True)
            ends = [*starts[1:], len(partitions)]
            for number, start, end in zip(numbers, starts, ends, strict=True):
                part = sorted_rows.slice(int(start), int(end - start))
                yield Part(topic, Partition(int(number)), part)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 -- as above
        if not batch.num_rows:
            return
        if self._topic is not None:
            yield self._topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise RowError("a row has no topic: neither the column nor the option topic says it")
        for topic in pc.unique(column).to_pylist():
            yield topic, batch.filter(pc.equal(column, topic))

    def _partitions(self, topic: str, rows: Any) -> Numbers:  # noqa: ANN401 -- as above
        count = self._partition_count(topic)
        chosen: Numbers = np.full(rows.num_rows, -1, np.int64)
        if "partition" in rows.schema.names:
            chosen = rows.column("partition").fill_null(-1).to_numpy(zero_copy_only=False)
            chosen = chosen.astype(np.int64)
            odd = chosen[(chosen >= count) | (chosen < -1)]
            if odd.size:
                raise RowError(f"a row is for {topic}-{odd[0]}, but there are {count} partitions")
        open_ = chosen < 0
        if open_.any() and "key" in rows.schema.names:
            keys = rows.column("key").filter(pa.array(open_))
            chosen[open_] = _by_key(keys, count)
        chosen[chosen < 0] = self._next % count
        return chosen


def _by_key(keys: Any, count: int) -> Numbers:  # noqa: ANN401 -- an Arrow array
    """-1 where there is none."""
    found = [-1 if key is None else partition_of_key(key, count) for key in keys.to_pylist()]
    return np.array(found, np.int64)
