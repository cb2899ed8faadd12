"""Where each row goes: by its own columns, else by its key, as Kafka's Java client decides it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tidelog.kernel.ids import Partition
from tidelog.spark.arrow import NO_KEY, partitions_of, split_by_partition
from tidelog.spark.rows import RowError

Numbers = npt.NDArray[np.int32]


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
            for number, part in split_by_partition(rows, partitions).items():
                yield Part(topic, Partition(number), part)

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
        chosen: Numbers = np.full(rows.num_rows, NO_KEY, np.int32)
        if "partition" in rows.schema.names:
            chosen = np.array(rows.column("partition").fill_null(NO_KEY))
            odd = chosen[(chosen >= count) | (chosen < NO_KEY)]
            if odd.size:
                raise RowError(
                    f"a row has partition {odd[0]}, but topic {topic!r} has partitions 0 to "
                    f"{count - 1}; leave the column null to choose by key"
                )
        if "key" in rows.schema.names:
            undecided = chosen == NO_KEY
            if undecided.any():
                by_key = partitions_of(rows.column("key"), count)
                chosen = np.where(undecided, by_key, chosen)
        return np.where(chosen == NO_KEY, np.int32(self._next % count), chosen)
