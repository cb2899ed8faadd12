"""What may end the work of a sink of Spark, when, and how the sink writes: a table of cells.

    PYTHONPATH=tests .venv/bin/python -m harness.spark.matrix

prints it. `spark/matrix_run.py` runs cells.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from itertools import product
from typing import Final, NamedTuple


class What(Enum):
    """What ends the work."""

    FUNCTION = "a user's function raises"
    SQL = "raise_error in SQL"
    SOURCE = "another data source's read fails"
    SHUFFLE = "a lost shuffle file, whenever it is made again"
    STAGE = "a lost shuffle file: the stage is tried again"
    UPSTREAM = "kill -9 of a Python worker before the sink"
    NEIGHBOUR = "another task fails, this one is cancelled"
    STOP = "query.stop(), or the cancelled job of a batch"
    SIGINT = "SIGINT of the driver"
    SIGTERM = "SIGTERM of the driver"
    JVM = "kill -9 of the driver's JVM"
    PYTHON = "kill -9 of the driver's Python"
    WORKER = "kill -9 of the sink's own Python worker"
    SPECULATION = "another attempt of the same task, which loses"


class When(Enum):
    """When that happens."""

    FIRST = "before the first row"
    MIDDLE = "in the middle"
    LAST = "after the last row"
    BETWEEN = "between two ends of transactions"
    NOTED = "before Spark's own commit"


class Form(Enum):
    """Which program writes."""

    STREAM = "stream"
    BATCH = "batch"
    FOREACH = "foreachBatch"
    MIRROR = "mirror"
    REPLAY = "replay"


class Delivery(Enum):
    """As tidelog.delivery; a batch that is written exactly once has a job's id."""

    ONCE = "exactly-once"
    ATOMIC = "exactly-once-atomic"
    AT_LEAST = "at-least-once"


class How(NamedTuple):
    """A way to write."""

    form: Form
    delivery: Delivery


FORMS: Final = (Form.STREAM, Form.BATCH, Form.FOREACH)
COMMANDS: Final = (Form.MIRROR, Form.REPLAY)
HOWS: Final = (
    *(How(form, delivery) for form, delivery in product(FORMS, Delivery)),
    How(Form.MIRROR, Delivery.ONCE),
    How(Form.REPLAY, Delivery.ONCE),
    How(Form.REPLAY, Delivery.AT_LEAST),
)
DRIVER_ENDS: Final = (What.SIGINT, What.SIGTERM, What.JVM, What.PYTHON)
"""After these another driver must go on."""
OF_THE_INPUT: Final = (
    What.FUNCTION,
    What.SQL,
    What.SOURCE,
    What.SHUFFLE,
    What.STAGE,
    What.UPSTREAM,
    What.NEIGHBOUR,
)
"""These end the input of a task, which therefore has not succeeded."""
IN_SHUFFLES: Final = (What.SHUFFLE, What.STAGE)
ON_THE_DRIVER: Final = (When.BETWEEN, When.NOTED)
MADE_BY_USERS: Final = (What.FUNCTION, What.SQL)


class Cell(NamedTuple):
    """One of the table."""

    what: What
    when: When
    how: How

    @property
    def words(self) -> list[str]:
        """As files and requests have it."""
        return [self.what.name, self.when.name, self.how.form.name, self.how.delivery.name]

    @property
    def name(self) -> str:
        """As a file and a topic may be named."""
        return "-".join(self.words).lower().replace("_", "-")

    @property
    def kills_driver(self) -> bool:
        return self.what in DRIVER_ENDS

    @property
    def spoils_session(self) -> bool:
        """After a lost shuffle file Spark's local mode loses each result of a task that is larger
        than 1 MiB, and such are those of exactly-once-atomic."""
        return self.what in IN_SHUFFLES and self.how.delivery is Delivery.ATOMIC


ALL: Final = tuple(Cell(*one) for one in product(What, When, HOWS))


def impossible(cell: Cell) -> str | None:
    """Why this cell cannot exist; None if it can."""
    return _by_time(cell) or _by_delivery(cell) or _by_program(cell)


def _by_time(cell: Cell) -> str | None:
    if cell.what in OF_THE_INPUT and cell.when in ON_THE_DRIVER:
        return "all tasks have their whole input by then"
    if cell.what in IN_SHUFFLES and cell.when is When.LAST:
        return "a file that is lost after its last row was read is not missed"
    if cell.what is What.STOP and cell.how.form is Form.BATCH and cell.when in ON_THE_DRIVER:
        return "a batch has no job left that could be cancelled"
    return None


def _by_delivery(cell: Cell) -> str | None:
    delivery = cell.how.delivery
    if cell.when is When.BETWEEN and delivery is Delivery.ATOMIC:
        return "there is one transaction"
    if cell.when is When.BETWEEN and delivery is Delivery.AT_LEAST:
        return "there are no transactions"
    if cell.what is What.SPECULATION and delivery is not Delivery.ONCE:
        return "attempts have no name in the cluster that they could take from each other"
    return None


def _by_program(cell: Cell) -> str | None:
    form = cell.how.form
    if form in COMMANDS and cell.what in MADE_BY_USERS:
        return "the command runs no function and no expression of a user"
    if form in COMMANDS and cell.what is What.STOP:
        return "a command is stopped by a signal"
    if form is Form.MIRROR and cell.what in IN_SHUFFLES:
        return "a mirror has no shuffle"
    if form is Form.REPLAY:
        return _by_sorting(cell)
    return None


def _by_sorting(cell: Cell) -> str | None:
    """A replay reads Parquet in the JVM, and sorts before it writes."""
    if cell.what is What.UPSTREAM:
        return "a replay has no Python worker before its sink"
    if cell.what in {What.SOURCE, *IN_SHUFFLES} and cell.when is not When.FIRST:
        return "a replay sorts: its sink gets the first row after all rows were read"
    return None


POSSIBLE: Final = tuple(cell for cell in ALL if impossible(cell) is None)

_STREAM, _BATCH, _FOREACH = (How(form, Delivery.ONCE) for form in FORMS)
_ATOMIC = How(Form.STREAM, Delivery.ATOMIC)
_MIRROR = How(Form.MIRROR, Delivery.ONCE)
IN_EVERY_RUN: Final = (
    Cell(What.FUNCTION, When.LAST, _STREAM),
    Cell(What.SQL, When.MIDDLE, _BATCH),
    Cell(What.UPSTREAM, When.MIDDLE, _FOREACH),
    Cell(What.NEIGHBOUR, When.MIDDLE, _STREAM),
    Cell(What.STOP, When.MIDDLE, _ATOMIC),
    Cell(What.STOP, When.BETWEEN, _STREAM),
)
"""Causes that one session of Spark survives, so that a run of the suite pays for one."""
CORE: Final = tuple(cell for cell in POSSIBLE if cell.how in {_STREAM, _BATCH, _MIRROR})
"""What also runs on Apache Kafka."""
PLANTED: Final = tuple(
    cell
    for cell in POSSIBLE
    if cell.how.delivery is Delivery.ONCE and cell.when is not When.BETWEEN
)
"""Where there is a transaction that a task could commit too early; then the driver ends none."""


def table(cells: Collection[Cell], found: Mapping[Cell, str] | None = None) -> str:
    """How many cells each cause has at each moment, of all ways to write: those that were run and
    were right, of those that were asked for, of those that can exist."""
    of_causes = {what.value: [one for one in POSSIBLE if one.what is what] for what in What}
    lines = [
        "what ends the work | " + " | ".join(one.value for one in When) + " | all",
        " | ".join(["---"] * (len(When) + 2)),
        *(_line(title, row, cells, found) for title, row in of_causes.items()),
        _line("all", POSSIBLE, cells, found),
    ]
    return "\n".join(lines)


def _line(
    title: str,
    row: Collection[Cell],
    cells: Collection[Cell],
    found: Mapping[Cell, str] | None,
) -> str:
    parts = [[cell for cell in row if cell.when is when] for when in When]
    return " | ".join([title, *(_count(part, cells, found) for part in [*parts, row])])


def _count(row: Collection[Cell], cells: Collection[Cell], found: Mapping[Cell, str] | None) -> str:
    if not row:
        return "-"
    asked = [cell for cell in row if cell in cells]
    if found is None:
        return f"{len(asked)} of {len(row)}"
    right = sum(1 for cell in asked if found.get(cell) == "")
    return f"{right} right, {len(asked)} run, of {len(row)}"


def documented() -> str:
    """The table as docs/spark.md has it: cells of every run of the suite, and all of them."""
    lines = ["what ends the work | in every run | with `--nightly`", "--- | --- | ---"]
    for what in What:
        each = sum(1 for cell in IN_EVERY_RUN if cell.what is what)
        lines.append(f"{what.value} | {each} | {sum(1 for cell in POSSIBLE if cell.what is what)}")
    return "\n".join([*lines, f"all | {len(IN_EVERY_RUN)} | {len(POSSIBLE)}"])


def reasons() -> Iterator[str]:
    """Why cells cannot exist, and how many."""
    counts = Counter(filter(None, map(impossible, ALL)))
    yield from (f"{count} cells: {reason}" for reason, count in counts.most_common())


def main() -> None:
    """Print how much of the table every run of the suite runs, and what is not in it."""
    out = sys.stdout.write
    out(f"{len(ALL)} cells, of which {len(POSSIBLE)} can exist; {len(IN_EVERY_RUN)} run each time,")
    out(f" all of them with --nightly, and {len(CORE)} on Apache Kafka.\n\n")
    out(f"{table(IN_EVERY_RUN)}\n\nThese cannot exist:\n\n")
    for reason in reasons():
        out(f"- {reason}\n")


if __name__ == "__main__":
    main()
