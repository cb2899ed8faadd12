"""From what spark_io.py prints to a page and a picture."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from measuring import Figures
from spark_io import GOALS, STREAM_PARTS, ratios
from spark_page import PARTS, RATIOS, SIDES, SMALL, page, parser, picture, run

SVG = "{http://www.w3.org/2000/svg}"


def said(*, without: str = "") -> Figures:
    sides = {
        name: {
            "rows_per_s": 1000.0 * number,
            "rows_per_cpu_s": 500.0 * number,
            "jvm_s": 1.0,
            "python_s": 0.5 * number,
            "broker_s": 0.25,
        }
        for number, name in enumerate([*SIDES, *SMALL], 1)
        if not without or not name.endswith(without)
    }
    return {
        **sides,
        **ratios(sides),
        "goals": GOALS,
        "noisy": True,
        "date": "2026-11-19",
        "settings": {
            "rows": 5000,
            "size": 100,
            "small": 100,
            "master": "local[2]",
            "brokers": 1,
            "versions": {"pyspark": "4.2.0"},
        },
        "machine": {"cpus": 2, "cpu": "a & b", "kernel": "6.18", "python": "3.11"},
        "runs": [{}],
    }


def test_a_bar_is_as_long_as_what_its_side_has_spent() -> None:
    root = ET.fromstring(picture(said()))  # noqa: S314 -- our own text
    bars = root.findall(f"{SVG}g")
    assert len(bars) == len(SIDES)
    for number, bar in enumerate(bars, 1):
        jvm, python, broker = (float(one.get("width", "")) for one in bar.iter(f"{SVG}rect"))
        assert python == pytest.approx(jvm * 0.5 * number, rel=0.01)
        assert broker == pytest.approx(jvm * 0.25, rel=0.01)
        first, second, third = (float(one.get("x", "")) for one in bar.iter(f"{SVG}rect"))
        assert (second - first, third - second) == pytest.approx((jvm, python), abs=0.2)


def test_the_page_has_a_row_for_each_side_and_each_goal() -> None:
    text = page(said(), ["on a ship"])
    assert "| format `tidelog` | 2,000 | 1,000 | 1.00 | 1.00 | 0.25 |" in text
    assert "| exactly once | 11,000 | 5,500 | 1.00 | 5.50 | 0.25 |" in text
    assert f"| {RATIOS['read_by_connectors']} | 0.67 | at least 1 |" in text
    assert "- on a ship\n" in text
    assert "others used the machine" in text
    assert "micro-batch" not in text.partition("## What to make")[0]
    assert all(label in text for label in PARTS.values())


def test_the_page_has_a_streams_parts_where_they_were_measured() -> None:
    parts = {f"our_{name}_ms": number for number, name in enumerate(STREAM_PARTS, 10)}
    took = {"our_batch_s": 0.5, "rate_batch_s": 0.4, "one_task_batch_s": 0.45}
    text = page({**said(), **parts, **took, "batch_over_rate_s": 0.1})
    assert "| 10 | 11 | 12 | 13 | 14 |" in text
    assert "| 0.10 s | at most 0.15 s |" in text


def test_a_side_that_was_not_measured_has_no_row() -> None:
    shown = said(without="_connector")
    assert picture(shown).count("<g>") == len(SIDES) - 2
    assert "official connector" not in page(shown).partition("## ")[2]
    assert RATIOS["read_by_connectors"] not in page(shown)


def test_pages_are_written(tmp_path: Path) -> None:
    file = tmp_path / "printed"
    file.write_text(json.dumps(said()))
    run(parser().parse_args([str(file), "--pages", str(tmp_path)]))
    names = {path.name for path in tmp_path.iterdir()} - {"printed"}
    assert names == {"spark-speed.md", "spark-speed.svg", "spark-speed.json"}
