"""Rows of one kind: objects for programs, a table for people."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

Row = Mapping[str, object]


class Column(NamedTuple):
    """A column of the table, made of a row."""

    heading: str
    cell: Callable[[Row], object]


def plain(*names: str) -> tuple[Column, ...]:
    """Columns that show fields as they are; the heading is the field's name."""
    return tuple(Column(name.upper().replace("_", " "), _field(name)) for name in names)


def _field(name: str) -> Callable[[Row], object]:
    return lambda row: row.get(name)


class Sheet(Struct):
    """Rows are made as they are asked for; iterate them once."""

    kind: str
    """What one row is; programs see it as `type`."""
    columns: tuple[Column, ...]
    rows: Iterable[Row]
    title: str = ""

    def documents(self) -> Iterator[dict[str, object]]:
        """For programs."""
        return ({"type": self.kind, **row} for row in self.rows)

    def cells(self) -> Iterator[list[object]]:
        """For people."""
        return ([column.cell(row) for column in self.columns] for row in self.rows)

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns]
