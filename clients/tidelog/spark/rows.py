"""What a writer is given, as columns that can be encoded: checked once, cast batch by batch."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from tidelog.kernel.limits import MIB
from tidelog.spark.columns import HEADER_TYPE
from tidelog.spark.grouping import grouped

GATHERED_BYTES: Final = 2 * MIB
"""Then rows are sent: enough that partitions get record batches that are full, and no more."""
WRITTEN: Final[Mapping[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADER_TYPE,
    "timestamp": pa.timestamp("ms", "UTC"),
}
"""The columns that are written, in any order; others are left out, as the connector does."""
_FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""Spark's names of the types that may be given."""


class RowError(ValueError):
    """Rows that cannot be written; the text says what is wrong with them."""


def check_columns(types: Mapping[str, str], *, topic: str | None) -> None:
    """Refuse a schema that no row of can be written; `types` has Spark's names by column."""
    if "value" not in types:
        raise RowError(f"the column value is missing: there are {', '.join(types)}")
    if topic is None and "topic" not in types:
        raise RowError("say where rows go: with the option topic, or a column of that name")
    for name, fitting in _FITTING.items():
        given = types.get(name)
        if given is not None and given not in fitting:
            raise RowError(f"the column {name} is {given}: it must be {' or '.join(fitting)}")


def gathered(batches: Iterable[Any], *, bytes_min: int = GATHERED_BYTES) -> Iterator[Any]:
    """The same rows in larger batches: of Spark's many small ones each would be shared out among
    all partitions, and make record batches that are far from full."""
    for held in grouped(batches, attrgetter("nbytes"), size_min=bytes_min):
        yield from _as_one(held)


def _as_one(held: list[Any]) -> list[Any]:
    """Or a few, where Arrow cannot have that much in one."""
    if len(held) == 1:
        return held
    found: list[Any] = pa.Table.from_batches(held).combine_chunks().to_batches()
    return found


def written_columns(batch: Any, *, with_headers: bool) -> Any:  # noqa: ANN401 -- a RecordBatch
    """Only those that are written, each in its one type."""
    names = [
        name
        for name in WRITTEN
        if name in batch.schema.names and (with_headers or name != "headers")
    ]
    arrays = [batch.column(name).cast(WRITTEN[name], safe=False) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)
