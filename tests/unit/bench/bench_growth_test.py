"""From what the programs for many of a thing print to pictures, tables, and notes."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from growth import EVERY, Many, page, parser, picture, read, run, short
from measuring import Figures

STEPS = {True: 2, False: 110}
"""From 10 to 1,000 it is so many times as far as from 1 to 10."""
SVG = "{http://www.w3.org/2000/svg}"


def line(many: Many, *, noisy: bool = False) -> Figures:
    points = [
        {many.things: count, **{curve.figure: at + 0.5 for curve in many.curves}}
        for at, count in enumerate((1, 10, 1_000))
    ]
    return {
        "bench": many.bench,
        "date": "2026-11-18",
        "points": points,
        "settings": {"brokers": 1, "versions": {}},
        "machine": {"cpus": 2, "cpu": "a & b", "kernel": "6.18", "python": "3.11"},
        "runs": [{**point, "noisy": noisy} for point in points],
    }


@pytest.mark.parametrize("many", EVERY, ids=lambda many: many.things)
def test_every_figure_has_a_panel_with_all_its_points(many: Many) -> None:
    root = ET.fromstring(picture(many, line(many)))  # noqa: S314 -- our own text
    panels = root.findall(f"{SVG}g")
    assert len(panels) == len(many.curves)
    for panel, curve in zip(panels, many.curves, strict=True):
        assert (panel.findtext(f"{SVG}text") or "") == curve.label
        places = [
            (float(one.get("cx", "")), float(one.get("cy", "")))
            for one in panel.iter(f"{SVG}circle")
        ]
        assert [x for x, _ in places] == sorted({x for x, _ in places}), "more is to the right"
        assert [y for _, y in places] == sorted({y for _, y in places}, reverse=True)
        steps = STEPS[many.tenfold]
        assert (places[1][0] - places[0][0]) * steps == pytest.approx(
            places[2][0] - places[1][0], abs=0.2 * steps
        )


def test_the_page_has_a_row_for_each_figure_and_says_what_was_noisy() -> None:
    text = page({many.bench: line(many, noisy=True) for many in EVERY})
    for many in EVERY:
        assert f"growth-{many.things}.svg" in text
        for curve in many.curves:
            assert f"| {curve.label}, {curve.unit} | 0.5 | 1.5 | 2.5 |" in text
    assert "others used the machine in runs of 1, 10, 1,000" in text
    assert "others used" not in page({EVERY[0].bench: line(EVERY[0])})


def test_points_measured_in_several_goes_are_put_together(tmp_path: Path) -> None:
    many, whole = EVERY[0], line(EVERY[0])
    first, second, third = whole["points"]
    goes = [
        {**whole, "points": [third, {**first, "stop_s": 99}], "runs": whole["runs"]},
        {**whole, "points": [second, first], "runs": whole["runs"][:2]},
    ]
    file = tmp_path / "said"
    file.write_text("".join(json.dumps(go) + "\n" for go in goes))
    (said,) = read([file]).values()
    assert said["points"] == [first, second, third]
    assert sorted(run[many.things] for run in said["runs"]) == [1, 10, 1_000]
    file.write_text(f"{json.dumps(whole)}\n{json.dumps({**whole, 'settings': {}})}\n")
    with pytest.raises(SystemExit, match="different settings"):
        read([file])


def test_a_figure_that_a_point_lacks_has_no_panel() -> None:
    many, said = EVERY[0], line(EVERY[0])
    del said["points"][1]["idle_cpu_percent"]
    assert picture(many, said).count("<g ") == len(many.curves) - 1
    assert "idle cluster" not in page({many.bench: said})


def test_pages_are_written(tmp_path: Path) -> None:
    many, file = EVERY[0], tmp_path / "said"
    file.write_text(json.dumps(line(many)))
    run(parser().parse_args([str(file), "--pages", str(tmp_path), "--note", "on a ship"]))
    assert "- on a ship\n\n## " in (tmp_path / "growth.md").read_text()
    names = {path.name for path in tmp_path.iterdir()} - {"said"}
    assert names == {"growth.md", "growth.json", f"growth-{many.things}.svg"}


def test_figures_are_short() -> None:
    shown = [short(value) for value in (0.0, 0.0123456, 1.5, 12.34, 123.4, 12_345.6)]
    assert shown == ["0", "0.0123", "1.5", "12.3", "123", "12,346"]
