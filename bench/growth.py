"""How cost grows, as a page for the docs: the lines that the programs for many of a thing print.

Each file holds such lines. A long sweep may be made in several goes, with the same settings: their
points are put together, and of a point that was measured twice the last one counts.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from measuring import Figures

NAME: Final = "growth"


class Curve(NamedTuple):
    """One figure over the number of things."""

    figure: str
    label: str
    unit: str
    goal: float | None = None


class Many(NamedTuple):
    """What one program varied, and its figures."""

    bench: str
    things: str
    curves: tuple[Curve, ...]
    tenfold: bool = True
    """The axis grows by powers of ten; else evenly, from none on."""


EVERY: Final = (
    Many(
        "many_brokers",
        "brokers",
        (
            Curve("first_ack_s", "start to the first record on 3 replicas", "s"),
            Curve("start_cpu_s", "start to the first record", "CPU s, all processes"),
            Curve("idle_pss_mb", "idle memory, all processes", "MB"),
            Curve("idle_cpu_percent", "idle cluster", "% of a core"),
            Curve("brokers_cpu_s_per_gb", "produce 1 KiB, 3 replicas", "CPU s a GB, all brokers"),
            Curve("mb_per_s", "produce 1 KiB, 3 replicas", "MB/s"),
            Curve("create_one_ms", "1 partition, 3 replicas, known to all", "ms"),
            Curve("create_many_s", "1,000 partitions, 3 replicas, known to all", "s"),
            Curve("stop_s", "clean stop", "s"),
        ),
        tenfold=False,
    ),
    Many(
        "many_partitions",
        "partitions",
        (
            Curve("start_s", "start after a clean stop", "s", 3.0),
            Curve("start_cpu_s", "start after a clean stop", "CPU s, all processes"),
            Curve("start_after_kill_s", "start after kill -9", "s"),
            Curve("idle_cpu_percent", "idle broker, all written to", "% of a core"),
            Curve("unused_cpu_percent", "idle broker, just started", "% of a core"),
            Curve("idle_broker_mb", "broker's memory, all written to", "MB"),
            Curve("unused_broker_mb", "broker's memory, just started", "MB"),
            Curve("create_s", "all created in one request", "s"),
            Curve("write_cpu_ms_each", "a record into each, 500 a request", "CPU ms each"),
        ),
    ),
    Many(
        "many_connections",
        "connections",
        (
            Curve("request_cpu_ms", "produce request, each from another", "CPU ms"),
            Curve("requests_per_s", "produce requests", "a second"),
            Curve("idle_cpu_percent", "idle cluster", "% of a core"),
            Curve("broker_mb", "broker's memory", "MB"),
        ),
    ),
)

_COLUMNS: Final = 3
_PANEL: Final = (310, 210)
_PLOT: Final = (46, 44, 244, 120)
"""Left, top, width and height inside a panel."""
_LINE: Final = "#0b7285"
_FAINT: Final = "#ced4da"
_FONT: Final = 'font-family="sans-serif" font-size="12" fill="#343a40"'


def parser() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("files", type=Path, nargs="+", metavar="FILE", help="what was printed")
    asked.add_argument("--pages", type=Path, required=True, metavar="DIR", help="where they go")
    asked.add_argument("--note", action="append", default=[], help="what else must be known")
    return asked


def read(files: Sequence[Path]) -> dict[str, Figures]:
    """What each program said."""
    found: dict[str, Figures] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            known = found.get(said["bench"])
            found[said["bench"]] = said if known is None else _together(known, said)
    return found


def _together(old: Figures, new: Figures) -> Figures:
    things = next(many.things for many in EVERY if many.bench == new["bench"])
    if old["settings"] != new["settings"]:
        raise SystemExit(f"{new['bench']} ran with different settings: they make no one curve")
    points = {point[things]: point for point in [*old["points"], *new["points"]]}
    fresh = {point[things] for point in new["points"]}
    runs = [run for run in old["runs"] if run[things] not in fresh]
    return {
        **new,
        "points": [points[count] for count in sorted(points)],
        "runs": [*runs, *new["runs"]],
    }


def measured(many: Many, said: Figures) -> list[Curve]:
    """Without what was left out of some point."""
    return [
        curve
        for curve in many.curves
        if all(point.get(curve.figure) is not None for point in said["points"])
    ]


def picture(many: Many, said: Figures) -> str:
    """An SVG with a panel for each figure, over the number of things."""
    curves = measured(many, said)
    rows = -(-len(curves) // _COLUMNS)
    width, height = _COLUMNS * _PANEL[0], rows * _PANEL[1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>what {many.things} cost</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for at, curve in enumerate(curves):
        x, y = at % _COLUMNS * _PANEL[0], at // _COLUMNS * _PANEL[1]
        points = [(point[many.things], point[curve.figure]) for point in said["points"]]
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(many, curve, points)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(many: Many, curve: Curve, points: Sequence[tuple[int, float]]) -> Iterator[str]:
    left, top, width, height = _PLOT
    bottom = top + height
    ceiling = _ceiling(max([value for _, value in points] + [curve.goal or 0.0]))
    widest = max(_along(many, count) for count, _ in points)

    def place(count: float, value: float) -> tuple[float, float]:
        x = left + width * _along(many, count) / max(widest, 1.0)
        return round(x, 1), round(bottom - height * value / ceiling, 1)

    yield f'<text x="8" y="20" {_FONT} font-weight="bold">{escape(curve.label)}</text>'
    yield f'<text x="8" y="36" {_FONT}>{escape(curve.unit)}</text>'
    yield f'<path d="M{left} {top}V{bottom}H{left + width}" fill="none" stroke="{_FAINT}"/>'
    for value in (0.0, ceiling):
        y = place(1, value)[1] + 4
        yield f'<text x="{left - 6}" y="{y}" text-anchor="end" {_FONT}>{short(value)}</text>'
    for count, _ in points:
        x = place(count, 0)[0]
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" {_FONT}>{count:,}</text>'
    if curve.goal is not None:
        y = place(1, curve.goal)[1]
        line = f'x1="{left}" y1="{y}" x2="{left + width}" y2="{y}"'
        yield f'<line {line} stroke="#c92a2a" stroke-dasharray="4 3"/>'
    places = [place(count, value) for count, value in points]
    joined = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
    for (x, y), (count, value) in zip(places, points, strict=True):
        said = f"{count:,} {many.things}: {short(value)} {curve.unit}"
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="{_LINE}"><title>{said}</title></circle>'
    x, y = places[-1]
    yield f'<text x="{x}" y="{y - 8}" text-anchor="end" {_FONT}>{short(points[-1][1])}</text>'


def _along(many: Many, count: float) -> float:
    return math.log10(count) if many.tenfold else count


def _ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, … with room for a text above the line."""
    if value <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(value))
    return next(step * factor for factor in (1, 2, 5, 10, 20) if step * factor >= 1.1 * value)


def short(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def page(found: dict[str, Figures], notes: Sequence[str] = ()) -> str:
    """Markdown: pictures, tables, and what must be known to read them."""
    parts = [
        "# How cost grows",
        "",
        "What more of a thing costs; the settings below each table say on how many brokers.",
        "[bench](../bench/README.md) says how it is measured. The dashed line is what we want to",
        "stay below.",
        "",
        *(f"- {note}" for note in notes),
        *[""][: len(notes)],
    ]
    for many in EVERY:
        if many.bench in found:
            parts += _section(many, found[many.bench])
    return "\n".join([*parts, f"Every run's figures are in [{NAME}.json]({NAME}.json).", ""])


def _section(many: Many, said: Figures) -> Iterator[str]:
    yield f"## {many.things.capitalize()}"
    yield ""
    yield f"![curves over the number of {many.things}]({NAME}-{many.things}.svg)"
    yield ""
    yield _row([many.things, *(f"{point[many.things]:,}" for point in said["points"])])
    yield _row(["---"] * (1 + len(said["points"])))
    for curve in measured(many, said):
        values = [short(point[curve.figure]) for point in said["points"]]
        yield _row([f"{curve.label}, {curve.unit}", *values])
    yield ""
    machine, settings = said["machine"], said["settings"]
    yield f"- `python bench/{many.bench}.py`, {said['date']}, {machine['cpus']} processors,"
    yield f"  {machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}"
    chosen = [f"{key} {value}" for key, value in settings.items() if key != "versions"]
    yield f"- settings: {', '.join(chosen)}"
    noisy = [run[many.things] for run in said["runs"] if run["noisy"]]
    if noisy:
        counts = ", ".join(f"{count:,}" for count in dict.fromkeys(noisy))
        yield f"- others used the machine in runs of {counts}: wall times there are a ceiling"
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_pages(found: dict[str, Figures], notes: Sequence[str], folder: Path) -> None:
    texts = {f"{NAME}.md": page(found, notes), f"{NAME}.json": json.dumps(found, indent=1) + "\n"}
    for many in EVERY:
        if many.bench in found:
            texts[f"{NAME}-{many.things}.svg"] = picture(many, found[many.bench])
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def run(asked: argparse.Namespace) -> None:
    write_pages(read(asked.files), asked.note, asked.pages)


if __name__ == "__main__":
    run(parser().parse_args())
