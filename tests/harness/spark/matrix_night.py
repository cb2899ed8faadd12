"""Runs many cells of the matrix, and can be interrupted: the results file tells what is done.

    PYTHONPATH=tests .venv/bin/python -m harness.spark.matrix_night tidelog /tmp/results.jsonl

runs the cells that the file does not have, and prints each one as it ends, and the table.
`--only` takes a part of them, so that two runs may share the work; `--table` runs nothing.
"""

import argparse
import re
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.processes.cluster import Cluster
from harness.spark.matrix import CORE, HOWS, PLANTED, POSSIBLE, Cell, How, What, table
from harness.spark.matrix_results import Result, Results
from harness.spark.matrix_run import Matrix, Sessions

CELLS: Final = {"tidelog": POSSIBLE, "planted": PLANTED, "kafka": CORE}
"""By the label of a run: all on tidelog, those with a planted fault, and those on Apache Kafka."""


A_NIGHT_MIN: Final = 720.0


def spread(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The same cells in an order in which each part has all kinds of them."""
    return sorted(cells, key=lambda cell: zlib.crc32(cell.name.encode()))


@contextmanager
def places(folder: Path, *, is_kafka: bool = False) -> Iterator[tuple[str, Sessions]]:
    """A cluster in this folder, and the sessions of Spark that work with it."""
    with ExitStack() as stack:
        if is_kafka:
            bootstrap = stack.enter_context(kafka_node(folder, TRANSACTIONS))
        else:
            bootstrap = stack.enter_context(Cluster(folder / "cluster")).bootstrap
        yield bootstrap, stack.enter_context(Sessions(folder / "sessions"))


def run(on: Matrix, cells: Sequence[Cell], results: Results, minutes: float = A_NIGHT_MIN) -> None:
    """As many of them as there is time for."""
    end_s = time.monotonic() + 60 * minutes
    for some in on.run(cells):
        for result in some:
            results.add(result)
            sys.stdout.write(f"{time.strftime('%T')} {on.label} {result.line}\n")
        sys.stdout.flush()
        if time.monotonic() > end_s:
            return


def report(label: str, results: Results) -> str:
    """The table, with what went wrong."""
    done = results.of(label)
    lines = [f"{one.cell.name}: {one.wrong}" for one in done if one.wrong]
    found = {one.cell: one.wrong for one in done}
    seconds = sum(one.seconds for one in done)
    title = f"{label}: {len(done)} of {len(CELLS[label])} cells in {seconds:.0f} s"
    return "\n".join([title, "", table(found.keys(), found), "", *lines])


def counts(results: Results) -> str:
    """What docs/spark.md says of a night: by what ends the work, and by how rows are written."""
    by_what = [_counted(one.value, results, partial(_is_of, one)) for one in What]
    by_how = [
        _counted(f"{how.form.value}, {how.delivery.value}", results, partial(_is_how, how))
        for how in HOWS
    ]
    names = "tidelog: right, run, of | planted fault: found, run, of | Apache Kafka: right, run, of"
    head = f"{{}} | {names} | seconds a cell"
    rule = " | ".join(["---"] * (len(CELLS) + 2))
    total = _counted("all", results, lambda _: True)
    first = [head.format("what ends the work"), rule, *by_what, total, ""]
    return "\n".join([*first, head.format("how"), rule, *by_how, total])


def _is_of(what: What, cell: Cell) -> bool:
    return cell.what is what


def _is_how(how: How, cell: Cell) -> bool:
    return cell.how == how


def _counted(title: str, results: Results, is_meant: Callable[[Cell], bool]) -> str:
    """One row. A planted fault is found by the cells that go wrong."""
    parts, seconds = [title], []
    for label in CELLS:
        cells = [*filter(is_meant, CELLS[label])]
        done = [one for one in results.of(label) if one.cell in cells]
        parts.append(f"{sum(map(_is_good, done))}, {len(done)}, {len(cells)}")
        seconds += [one.seconds for one in done]
    return " | ".join([*parts, f"{sum(seconds) / max(1, len(seconds)):.0f}"])


def _is_good(one: Result) -> bool:
    return one.is_found if one.label == "planted" else not one.wrong


def _end(_number: int, _frame: object) -> None:
    """In order: the cluster and the sessions end, too."""
    raise SystemExit("ended by a signal; the results file has what was run")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("label", choices=CELLS, help="which cells to run, and on which cluster")
    words.add_argument("results", type=Path, help="file of JSON lines that holds the results")
    words.add_argument("--only", default="", help="regular expression that names must match")
    words.add_argument("--wrong", action="store_true", help="also run again what went wrong")
    words.add_argument(
        "--minutes", type=float, default=A_NIGHT_MIN, help="begin no cell after this time"
    )
    words.add_argument("--table", action="store_true", help="only print the table")
    given = words.parse_args()
    signal.signal(signal.SIGTERM, _end)
    # A shell has what it starts in the background ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = Results(given.results)
    wanted = [one for one in spread(CELLS[given.label]) if re.search(given.only, one.name)]
    cells = results.missing(given.label, wanted, wrong=given.wrong)
    if cells and not given.table:
        with (
            tempfile.TemporaryDirectory(prefix="spark-matrix-") as folder,
            places(Path(folder), is_kafka=given.label == "kafka") as (bootstrap, sessions),
        ):
            on = Matrix(bootstrap, sessions, given.label, planted=given.label == "planted")
            run(on, cells, results, given.minutes)
    sys.stdout.write(f"\n{report(given.label, results)}\n\n{counts(results)}\n")


if __name__ == "__main__":
    main()
