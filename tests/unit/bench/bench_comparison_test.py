"""From what a comparison measured to what is read: medians, ratios, goals, table, page, picture."""

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from compare import called
from comparison import (
    QUESTIONS,
    ROWS,
    Answer,
    Found,
    asked_unless_told,
    goals,
    lines,
    notes,
    ratio,
    read,
    side_by_side,
    table,
)
from harness.suite.tidy_checks import ROOT
from measuring import Figures
from pages import page, picture, whole_label, write_pages

RUN = {"other_share": 0.0, "client_cpu_s_per_gb": 2.0, "limited_by": "broker"}


def answer(ours: Figures, theirs: Figures) -> Answer:
    return side_by_side({"tidelog": [{**RUN, **ours}], "kafka": [{**RUN, **theirs}]}, 0.1)


def found(*, replication: int = 1, brokers: int = 1) -> Found:
    produced = answer(
        {"mb_per_s": 1300.0, "brokers_cpu_s_per_gb": 0.5},
        {"mb_per_s": 650.0, "brokers_cpu_s_per_gb": 1.0, "limited_by": "client"},
    )
    return {
        "bench": "compare",
        "date": "2026-11-18",
        "command": "bench/compare --brokers 1",
        "settings": {
            "replication": replication,
            "noise": 0.1,
            "kafka": {"version": "4.3.1", "heap each": "512m"},
            "tidelog": {"version": "0.1.0", "brokers": brokers},
            "both": {"partitions": 6},
            "client": {"acks": "all"},
            "producer": {},
            "consumer": {},
        },
        "machine": {"cpus": 2, "cpu": "a & b", "kernel": "6.18", "python": "3.11"},
        "questions": {"large": produced},
    }


def test_both_sides_are_compared_by_their_medians() -> None:
    runs = {
        "tidelog": [{"mb_per_s": value} for value in (1.0, 300.0, 900.0)],
        "kafka": [{"mb_per_s": 200.0}],
    }
    assert side_by_side(runs, 0.1)["tidelog_by_kafka"] == {"mb_per_s": 1.5}
    assert ratio(1.0, 0.0) is None
    assert ratio(None, 2.0) is None


def test_a_noisy_run_is_marked_and_does_not_count() -> None:
    ours = [{"x": 2.0, "other_share": 0.05}, {"x": 50.0, "other_share": 0.3}]
    got = side_by_side({"tidelog": ours, "kafka": [{"x": 1.0}]}, 0.1)
    assert got["tidelog"]["x"] == 2.0
    assert [run["noisy"] for run in got["runs"]["tidelog"]] == [False, True]


def test_the_table_holds_both_figures_the_ratio_and_whether_it_was_reached() -> None:
    assert list(lines(found())) == [
        (
            "produce, prebuilt requests of 1 MB",
            "1300",
            "650",
            "MB/s",
            "2.00",
            "≥ 1.50",
            "broker / client",
        ),
        ("  brokers' processor time", "0.5", "1", "CPU s/GB", "0.50", "≤ 0.25 missed", ""),
    ]


@pytest.mark.parametrize(("ours", "said"), [(1.4, ""), (1.6, " missed")])
def test_a_goal_with_a_unit_is_of_our_own_figure_whatever_kafka_needs(
    ours: float, said: str
) -> None:
    figures = found(replication=3)
    both = ({"brokers_cpu_s_per_gb": ours}, {"brokers_cpu_s_per_gb": 1.0})
    figures["questions"] = {"produce": answer(*both)}
    assert next(lines(figures))[5] == f"≤ 1.5 CPU s/GB{said}"


def test_a_run_says_apart_what_the_idle_side_used() -> None:
    assert "Others, the idle other side among them, used" in "\n".join(notes(found()))
    with_share = found()
    with_share["questions"] = {"large": answer({"x": 1.0, "idle_side_share": 0.081}, {"x": 1.0})}
    assert "Others, the idle other side (up to 8.1%) not among them" in "\n".join(notes(with_share))


def test_three_brokers_are_asked_what_concerns_replicas() -> None:
    assert asked_unless_told(3) >= {"create", "failover", "produce_lz4", "consume_100"}
    assert asked_unless_told(1) >= {"large", "latency", "memory"}
    for replication in (1, 3):
        asked = asked_unless_told(replication)
        assert {question for question, _ in goals(replication)} <= asked <= set(QUESTIONS)


def test_what_was_not_asked_has_no_row() -> None:
    assert "start to the first" not in table(found())


def test_the_settings_of_both_sides_the_machine_and_the_noise_stand_below_the_table() -> None:
    below = "\n".join(notes(found()))
    for said in ("heap each 512m", "version 0.1.0", "partitions 6", "acks all", "2 processors"):
        assert said in below
    assert "0 of 2 runs had more than 10%" in below


@pytest.mark.parametrize("replication", [1, 3])
def test_every_goal_is_of_a_row(replication: int) -> None:
    assert goals(replication).keys() <= {(row.question, row.figure) for row in ROWS}


def test_an_indented_label_is_whole_where_it_stands_alone() -> None:
    for row in ROWS:
        assert whole_label(row).strip() == whole_label(row)
    assert whole_label(ROWS[6]) == "produce, confluent-kafka: brokers' processor time"


def test_the_picture_has_two_bars_for_each_figure_by_their_proportion() -> None:
    drawn = ET.fromstring(picture(found()))  # noqa: S314 -- our own text
    bars = [
        (one.get("fill"), int(one.get("width", "")))
        for one in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if one.get("height") == "15"
    ]
    ours, theirs = bars[0][0], bars[1][0]
    assert bars == [(ours, 390), (theirs, 195), (ours, 195), (theirs, 390)]


def test_a_stored_document_gives_the_same_table_and_pages(tmp_path: Path) -> None:
    write_pages(found(), tmp_path)
    again = read(tmp_path / "comparison.json")
    assert table(again) == table(found())
    assert (tmp_path / "comparison.md").read_text(encoding="utf-8") == page(again)
    assert (tmp_path / "comparison.svg").read_text(encoding="utf-8") == picture(again)


def test_the_page_of_three_brokers_leaves_that_of_one_alone(tmp_path: Path) -> None:
    write_pages(found(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write_pages(found(brokers=3, replication=3), tmp_path)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert "(comparison-3.svg)" in (tmp_path / "comparison-3.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("comparison*.json")), ids=str)
def test_the_pages_in_docs_are_made_of_the_figures_beside_them(path: Path) -> None:
    stored = read(path)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page(stored)
    assert path.with_suffix(".svg").read_text(encoding="utf-8") == picture(stored)


def test_the_command_is_kept_without_the_places_of_files() -> None:
    words = ["--brokers", "1", "--pages", "docs", "--runs", "3", "--jars", "/some/where"]
    assert called(words) == "bench/compare --brokers 1 --runs 3"


def test_a_document_of_another_shape_is_refused_by_its_name_and_field(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(msgspec.json.encode({**found(), "date": 7}))
    with pytest.raises(SystemExit, match=r"odd\.json is no document .*date"):
        read(path)
