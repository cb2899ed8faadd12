"""A comparison as a page for the docs: its table, its picture, its figures. No drawing library."""

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from comparison import HEAD, ROWS, Found, Row, lines, measured, notes, short

_PAGE: Final = "comparison"

_SHOWN: Final = (
    ("startup", "first_ack_s"),
    ("startup", "idle_pss_mb"),
    ("produce", "mb_per_s"),
    ("produce", "brokers_cpu_s_per_gb"),
    ("produce_lz4", "mb_per_s"),
    ("produce_lz4", "brokers_cpu_s_per_gb"),
    ("produce_100", "records_per_s"),
    ("produce_100", "brokers_cpu_s_per_gb"),
    ("large", "mb_per_s"),
    ("large", "brokers_cpu_s_per_gb"),
    ("small", "mb_per_s"),
    ("small", "brokers_cpu_s_per_gb"),
    ("consume", "mb_per_s"),
    ("consume", "brokers_cpu_s_per_gb"),
    ("consume_100", "records_per_s"),
    ("consume_100", "brokers_cpu_s_per_gb"),
    ("latency", "p50_ms"),
    ("latency_all", "p50_ms"),
    ("create", "create_many_s"),
    ("failover", "ack_gap_s"),
)
_COLOURS: Final = {"tidelog": "#0b7285", "kafka": "#adb5bd"}
_TOP, _ROW, _BAR, _LEFT, _WIDTH, _FULL = 44, 44, 15, 440, 940, 390
_FONT: Final = 'font-family="sans-serif" font-size="13" fill="#343a40"'


def picture(found: Found) -> str:
    """An SVG: for each figure two bars, the longer of them as long as there is room."""
    shown = [one for one in measured(found) if (one.row.question, one.row.figure) in _SHOWN]
    height = _TOP + _ROW * len(shown) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>tidelog beside Apache Kafka</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for at, one in enumerate(shown):
        label = f"{whole_label(one.row)}, {one.row.unit}"
        parts += _bars(_TOP + at * _ROW, label, {"tidelog": one.ours, "kafka": one.theirs})
    return "\n".join([*parts, "</svg>", ""])


def whole_label(row: Row) -> str:
    """An indented label belongs to the first of its question."""
    if not row.label.startswith(" "):
        return row.label
    first = next(other.label for other in ROWS if other.question == row.question)
    return f"{first}:{row.label[1:]}"


def _legend() -> Iterator[str]:
    for at, (name, text) in enumerate({"tidelog": "tidelog", "kafka": "Apache Kafka"}.items()):
        x = _LEFT + 110 * at
        yield f'<rect x="{x}" y="12" width="12" height="12" fill="{_COLOURS[name]}"/>'
        yield f'<text x="{x + 18}" y="23" {_FONT}>{text}</text>'


def _bars(top: int, label: str, values: dict[str, float]) -> Iterator[str]:
    yield f'<text x="{_LEFT - 10}" y="{top + 20}" text-anchor="end" {_FONT}>{escape(label)}</text>'
    longest = max(values.values()) or 1.0
    for at, (name, value) in enumerate(values.items()):
        width = max(1, round(_FULL * value / longest))
        y = top + at * (_BAR + 2)
        colour = _COLOURS[name]
        yield f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" fill="{colour}"/>'
        yield f'<text x="{_LEFT + width + 6}" y="{y + 12}" {_FONT}>{short(value)}</text>'


def page(found: Found) -> str:
    """Markdown: the picture, the table, and what must be known to read them."""
    name = name_of(found)
    return "\n".join(
        [
            "# tidelog beside Apache Kafka",
            "",
            f"Written by `{found['command']}`;",
            "[bench](../bench/README.md) says how to read it.",
            "",
            f"![bars of both, figure by figure]({name}.svg)",
            "",
            _row(("what", *HEAD[1:])),
            _row(("---",) * len(HEAD)),
            *(_row(cells) for cells in lines(found)),
            "",
            *(f"- {note}" for note in notes(found)),
            "",
            f"Every run's figures are in [{name}.json]({name}.json).",
            "",
        ]
    )


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.strip() for cell in cells)} |"


def name_of(found: Found) -> str:
    """Of its files: one broker's page is not written over by three brokers'."""
    brokers = found["settings"]["tidelog"]["brokers"]
    return _PAGE if brokers == 1 else f"{_PAGE}-{brokers}"


def write_pages(found: Found, folder: Path) -> None:
    texts = {
        ".json": json.dumps(found, indent=1) + "\n",
        ".svg": picture(found),
        ".md": page(found),
    }
    for suffix, text in texts.items():
        (folder / f"{name_of(found)}{suffix}").write_text(text, encoding="utf-8")
