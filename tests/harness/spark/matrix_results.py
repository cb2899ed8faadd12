"""What became of the cells of the matrix: a file of JSON lines, one for each cell that was run.

A run that is interrupted goes on with the cells that the file does not have.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.spark.matrix import Cell, Delivery, Form, How, What, When

NOT_STRUCK: Final = "it was never struck"
NOT_RUN: Final = "the cell could not be run"


class Result(NamedTuple):
    """What became of one cell."""

    label: str
    """Which run of the matrix it is part of: a cell is run on several clusters."""
    cell: Cell
    wrong: str
    """Empty if all rows are there as they should be."""
    seconds: float

    @property
    def is_found(self) -> bool:
        """Whether a planted fault shows: a cell that was not struck says nothing about it."""
        return bool(self.wrong) and not self.wrong.startswith((NOT_STRUCK, NOT_RUN))

    @property
    def line(self) -> str:
        """For people who wait for the end."""
        return f"{self.seconds:6.1f} s  {self.cell.name}  {self.wrong or 'right'}"


class Results:
    """The file. Of a cell that was run more than once the last line counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, result: Result) -> None:
        """One write for each line: several runs may share the file."""
        label, cell, wrong, seconds = result
        said = {"label": label, "cell": cell.words, "outcome": wrong, "seconds": seconds}
        with self.path.open("a") as file:
            file.write(json.dumps(said) + "\n")

    def of(self, label: str) -> list[Result]:
        """Of the cells of one run, each once."""
        found = {one.cell: one for one in self._all() if one.label == label}
        return [*found.values()]

    def missing(self, label: str, cells: Iterable[Cell], *, wrong: bool) -> list[Cell]:
        """The cells that are still to be run; if `wrong`, also those that went wrong."""
        done = {one.cell for one in self.of(label) if not (wrong and one.wrong)}
        return [cell for cell in cells if cell not in done]

    def _all(self) -> Iterator[Result]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            said = json.loads(line)
            yield Result(
                said["label"], cell_of(said["cell"]), said["outcome"], float(said["seconds"])
            )


def cell_of(words: Collection[Any]) -> Cell:
    """The cell with these words."""
    what, when, form, delivery = words
    return Cell(What[what], When[when], How(Form[form], Delivery[delivery]))
