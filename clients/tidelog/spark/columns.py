"""The columns of a topic: names, order and types are those of Spark's own Kafka source."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa


class Column(StrEnum):
    """What can be known of a record; the order is that of a table with all of them."""

    KEY = "key"
    VALUE = "value"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"


HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""One record's headers: a name may come twice, so they are no map."""

TYPES = {
    Column.KEY: pa.binary(),
    Column.VALUE: pa.binary(),
    Column.TOPIC: pa.string(),
    Column.PARTITION: pa.int32(),
    Column.OFFSET: pa.int64(),
    Column.TIMESTAMP: pa.timestamp("us", "UTC"),
    Column.TIMESTAMP_TYPE: pa.int32(),
    Column.HEADERS: HEADER_TYPE,
}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are wanted, in the order of the table; what is not wanted costs nothing."""

    wanted: tuple[Column, ...]

    def __post_init__(self) -> None:
        assert len(set(self.wanted)) == len(self.wanted), self.wanted

    @classmethod
    def of(cls, names: Iterable[str]) -> "Columns":
        """By their names; ValueError where one is none of ours, or comes twice."""
        wanted = tuple(Column(name) for name in names)
        if len(set(wanted)) < len(wanted):
            raise ValueError(f"columns {', '.join(wanted)}: each may come once")
        return cls(wanted)

    def __contains__(self, column: Column) -> bool:
        return column in self.wanted

    def schema(self) -> Any:  # noqa: ANN401 -- a pyarrow.Schema: that package has no types
        """What Spark asks of each Arrow batch."""
        return pa.schema([pa.field(column.value, TYPES[column]) for column in self.wanted])


PLAIN = Columns(tuple(column for column in Column if column is not Column.HEADERS))
"""What the official connector gives unless headers are asked for."""
ALL = Columns(tuple(Column))
