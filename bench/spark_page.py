"""What spark_io.py printed as a page for the docs, with a picture of where a row's time goes."""

import argparse
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from measuring import Figures
from spark_io import STREAM_PARTS

NAME: Final = "spark-speed"
SIDES: Final = {
    "read_memory": "rows in a Python worker's memory, no cluster",
    "read_tidelog": "format `tidelog`",
    "read_connector": "format `kafka`, the official connector",
    "read_confluent": "a Python source on confluent-kafka",
    "write_noop": "rows are made, and go nowhere",
    "write_memory": "a Python worker takes them, no cluster",
    "write_tidelog": "format `tidelog`",
    "write_connector": "format `kafka`, the official connector",
    "write_confluent": "confluent-kafka in `foreachPartition`",
}
SMALL: Final = {
    "small_plain": "at least once",
    "small_exactly_once": "exactly once",
}
RATIOS: Final = {
    "read_by_connectors": "read: wall rate by the connector's",
    "read_by_confluents": "read: wall rate by the Python source's on confluent-kafka",
    "write_by_connectors": "write: wall rate by the connector's",
    "write_by_confluents": "write: wall rate by confluent-kafka's in `foreachPartition`",
    "exactly_once_by_plain": "a small write: wall rate exactly once by at least once",
}
PARTS: Final = {"jvm": "Spark's JVM", "python": "Python workers", "broker": "brokers"}
_COLOURS: Final = {"jvm": "#adb5bd", "python": "#0b7285", "broker": "#f08c00"}
_WIDTH: Final = 900
_LEFT: Final = 300
_BAR: Final = (20, 30)
"""A bar's height, and how far the next is below it."""
_TOP: Final = 40
_FONT: Final = 'font-family="sans-serif" font-size="12" fill="#343a40"'


class Bar(NamedTuple):
    """One side, and processor seconds by the million rows."""

    label: str
    parts: dict[str, float]


def parser() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("file", type=Path, metavar="FILE", help="what was printed")
    asked.add_argument("--pages", type=Path, required=True, metavar="DIR", help="where it goes")
    asked.add_argument("--note", action="append", default=[], help="what else must be known")
    return asked


def bars(said: Figures) -> list[Bar]:
    return [
        Bar(
            f"{name.partition('_')[0]}: {label.replace('`', '')}",
            {part: said[name][f"{part}_s"] for part in PARTS},
        )
        for name, label in SIDES.items()
        if name in said
    ]


def picture(said: Figures) -> str:
    """An SVG with a bar for each side, made of its parts."""
    shown = bars(said)
    longest = max(sum(bar.parts.values()) for bar in shown)
    scale = (_WIDTH - _LEFT - 60) / longest
    height = _TOP + len(shown) * _BAR[1] + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>processor seconds by the million rows</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, bar in enumerate(shown):
        lines += _drawn(bar, _TOP + number * _BAR[1], scale)
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    for number, (part, label) in enumerate(PARTS.items()):
        x = _LEFT + number * 140
        yield f'<rect x="{x}" y="10" width="12" height="12" fill="{_COLOURS[part]}"/>'
        yield f'<text x="{x + 18}" y="20" {_FONT}>{escape(label)}</text>'


def _drawn(bar: Bar, y: int, scale: float) -> Iterator[str]:
    yield "<g>"
    yield f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end" {_FONT}>{escape(bar.label)}</text>'
    x = float(_LEFT)
    for part, seconds in bar.parts.items():
        width = seconds * scale
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR[0]}" '
            f'fill="{_COLOURS[part]}"/>'
        )
        x += width
    yield f'<text x="{x + 6:.1f}" y="{y + 15}" {_FONT}>{sum(bar.parts.values()):.2f}</text>'
    yield "</g>"


def table(said: Figures, sides: dict[str, str], begins: str) -> Iterator[str]:
    """Of those sides that were measured."""
    parts = " | ".join(f"{label}, CPU s" for label in PARTS.values())
    yield f"| | rows a second | rows a CPU second | {parts} |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, label in sides.items():
        if name in said and name.startswith(begins):
            one = said[name]
            spent = " | ".join(f"{one[f'{part}_s']:.2f}" for part in PARTS)
            rates = f"{round(one['rows_per_s']):,} | {round(one['rows_per_cpu_s']):,}"
            yield f"| {label} | {rates} | {spent} |"


def _compared(said: Figures) -> Iterator[str]:
    yield "| | measured | goal |"
    yield "| --- | --- | --- |"
    for name, label in RATIOS.items():
        if name in said:
            yield f"| {label} | {said[name]:.2f} | at least {said['goals'][name]:g} |"
    if "batch_over_rate_s" in said:
        goal = said["goals"]["batch_over_rate_s"]
        yield (
            f"| a warm micro-batch of our source and sink: beyond one of `rate-micro-batch` to "
            f"`noop` | {said['batch_over_rate_s']:.2f} s | at most {goal:g} s |"
        )


def page(said: Figures, notes: Sequence[str] = ()) -> str:
    small = said["settings"]["small"]
    return "\n".join(
        [
            *_BEGINS.splitlines(),
            *_method(said),
            *(f"- {note}" for note in notes),
            "",
            *_compared(said),
            "",
            "## Where a row's time goes",
            "",
            f"![processor seconds by the million rows, side by side]({NAME}.svg)",
            "",
            "Processor seconds by the million rows. Reading, to `noop`:",
            "",
            *table(said, SIDES, "read"),
            "",
            "Writing rows that Spark makes:",
            "",
            *table(said, SIDES, "write"),
            "",
            f"Writing {small:,} rows, where each job's fixed cost is seen:",
            "",
            *table(said, SMALL, "small"),
            "",
            *_stream(said),
            *_ENDS.splitlines(),
            "",
        ]
    )


def _method(said: Figures) -> Iterator[str]:
    settings, machine = said["settings"], said["machine"]
    command = f"python bench/spark_io.py --jars FOLDER --rows {settings['rows']}"
    yield f"- `{command} --runs {len(said['runs'])}`, {said['date']},"
    yield f"  {machine['cpus']} processors, {machine['cpu']}, Linux {machine['kernel']}, Python"
    packages = ", ".join(f"{name} {number}" for name, number in settings["versions"].items())
    yield f"  {machine['python']}; {packages}"
    yield f"- {settings['rows']:,} rows of {settings['size']} bytes and a key, 4 partitions,"
    yield f"  brokers: {settings['brokers']}, Spark `{settings['master']}`; medians of the runs"
    if said["noisy"]:
        yield "- others used the machine: wall rates are a floor"


def _stream(said: Figures) -> Iterator[str]:
    if "our_batch_s" not in said:
        return
    yield "## A micro-batch"
    yield ""
    yield f"Warm, of 2,000 rows: {said['our_batch_s']:.2f} s with our source and sink,"
    yield f"{said['one_task_batch_s']:.2f} s where `tidelog.minOffsetsPerTask` makes two tasks one,"
    yield f"{said['rate_batch_s']:.2f} s from `rate-micro-batch` to `noop` before it. Ours, ms:"
    yield ""
    yield f"| {' | '.join(STREAM_PARTS)} |"
    yield f"|{' --- |' * len(STREAM_PARTS)}"
    took = [format(said[f"our_{name}_ms"], "g") for name in STREAM_PARTS]
    yield f"| {' | '.join(took)} |"
    yield ""


_BEGINS = """# How fast Spark reads and writes

Format `tidelog` beside Spark's official connector and beside confluent-kafka in Python, against
one cluster in the same run, each side in turn and warmed up. A side's processor seconds are those
of all its processes.
"""

_ENDS = """## What to make of it

- Most of a row's cost is Spark's: what its JVM takes to make rows and to turn them into Arrow and
  back. The rows without a cluster show it; what a row costs beyond them is ours.
- A task with Python costs some 20 ms of a processor before its first row, in Spark's own worker.
  Our part of a task of 500 rows is 3 ms to read and 2.5 ms to write. So a stream of small
  micro-batches is faster with fewer tasks: `tidelog.minOffsetsPerTask=20000` has one of them read
  several partitions.
- A writer keeps up to five requests to each broker under way, and goes on encoding meanwhile.
  Connections live as long as Spark's worker, over all its tasks.
- Exactly once costs a task five more requests (the coordinator, the transactional id, the marker
  read and written, the end), 3 to 5 ms where the machine is free, and the driver two.
- `tidelog.columns=key,value` leaves out of what is read what is not asked for."""


def run(asked: argparse.Namespace) -> None:
    said = json.loads(asked.file.read_text(encoding="utf-8"))
    texts = {
        f"{NAME}.md": page(said, asked.note),
        f"{NAME}.svg": picture(said),
        f"{NAME}.json": json.dumps(said, indent=1) + "\n",
    }
    for name, text in texts.items():
        (asked.pages / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run(parser().parse_args())
