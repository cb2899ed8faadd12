"""Test files are shared out by what they took, and one that takes much longer fails the run."""

import re
from pathlib import Path

import pytest

from harness.suite.durations import (
    ALLOWANCE_S,
    BUDGET_WALL_S,
    MAY_GROW,
    RECORD,
    SHORT_S,
    FileTime,
    Record,
    grown,
    longest_first,
    updated,
)
from harness.suite.runs import run_apart
from harness.suite.sharing import TOGETHER, unit_of
from harness.suite.tidy_checks import ROOT

FILES = ("a_test.py", "b_test.py", "c_test.py")


def record(*processor: float) -> Record:
    return Record({name: FileTime(1.0, one) for name, one in zip(FILES, processor, strict=True)})


def test_a_file_that_uses_half_more_than_recorded_is_named() -> None:
    limit = 20 * MAY_GROW + ALLOWANCE_S
    assert grown(record(20, 20, 20), record(20, limit, 20)) == []
    (said,) = grown(record(20, 20, 20), record(20, limit + 1, 20))
    assert said.startswith("b_test.py: 61.0 s of processor time, 20.0 s recorded")


def test_a_machine_that_is_slow_for_all_files_fails_none_of_them() -> None:
    assert grown(record(20, 20, 20), record(60, 60, 60)) == []
    (said,) = grown(record(20, 20, 20), record(60, 60, 125))
    assert said.startswith("c_test.py")


def test_a_machine_that_is_faster_forbids_nothing_that_was_recorded() -> None:
    assert grown(record(20, 20, 20), record(10, 10, 20)) == []


def test_short_files_and_new_ones_may_grow_as_one_that_takes_a_few_seconds() -> None:
    limit = SHORT_S * MAY_GROW + ALLOWANCE_S
    new = Record(
        {name: took for name, took in record(20, 20, 0).files.items() if "c" not in name[:1]}
    )
    for before in (record(20, 20, SHORT_S - 1), record(20, 20, 0), new):
        assert grown(before, record(20, 20, limit)) == []
        (said,) = grown(before, record(20, 20, limit + 1))
        assert said.startswith("c_test.py: 38.5 s of processor time, ")
    assert grown(Record(), record(20, 20, 20)) == []


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    assert Record.read(path) == Record()
    written = Record({"a_test.py": FileTime(1.5, 2.5)}, {"a_test.py::test_x": 12.0})
    written.write(path)
    assert Record.read(path) == written


def test_a_run_of_some_files_leaves_what_is_recorded_of_the_others(tmp_path: Path) -> None:
    for name in FILES[:2]:
        (tmp_path / name).touch()
    before = Record(record(1, 2, 3).files, {"a_test.py::x": 11.0, "b_test.py::y": 12.0})
    now = Record({"b_test.py": FileTime(9.0, 9.0)}, {"b_test.py::z": 13.0})
    after = updated(before, now, tmp_path)
    assert after.files == {"a_test.py": FileTime(1.0, 1.0), "b_test.py": FileTime(9.0, 9.0)}
    assert after.alone == {"a_test.py::x": 11.0, "b_test.py::z": 13.0}


def test_units_come_longest_first_and_those_nobody_knows_before_all() -> None:
    known = Record(
        {"a_test.py": FileTime(30, 1), "b_test.py": FileTime(12, 1)}, {"a_test.py::test_x": 20.0}
    )
    units = ["b_test.py", "a_test.py", "a_test.py::test_x", "new_test.py"]
    assert longest_first(units, known) == [
        "new_test.py",
        "a_test.py::test_x",
        "b_test.py",
        "a_test.py",
    ]


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("a_test.py::test_x[1]", "a_test.py::test_x[1]"),
        ("a_test.py::test_x[2]", "a_test.py"),
        ("a_test.py::Group::test_y", "a_test.py"),
    ],
)
def test_a_test_goes_with_its_file_unless_it_takes_long(test: str, unit: str) -> None:
    assert unit_of(test, {"a_test.py::test_x[1]": 20.0}) == unit


def test_files_that_share_a_jvm_go_together_and_their_seconds_add_up() -> None:
    for shared, files in TOGETHER.items():
        one, other = sorted(files)[:2]
        assert unit_of(f"{one}::test_x", {f"{one}::test_x": 50.0}) == shared
        known = Record({one: FileTime(30, 1), other: FileTime(30, 1), "a_test.py": FileTime(50, 1)})
        assert longest_first(["a_test.py", shared], known, TOGETHER) == [shared, "a_test.py"]


@pytest.mark.parametrize("shared", TOGETHER)
def test_all_files_that_take_a_shared_jvm_go_together(shared: str) -> None:
    tests = (ROOT / "tests").rglob("*_test.py")
    takes = {one for one in tests if re.search(rf"{shared}: \w", one.read_text())}
    assert {str(one.relative_to(ROOT)) for one in takes} == TOGETHER[shared]


PROJECT = """
from harness.suite.durations import Record, FileTime
from harness.suite.sharing import Sharing, Sorting

RECORD = Record({"few_test.py": FileTime(30.0, 1.0), "many_test.py": FileTime(5.0, 1.0)})
Record.read = lambda: RECORD

def pytest_configure(config):
    config.pluginmanager.register(Sorting() if hasattr(config, "workerinput") else Sharing())
"""


@pytest.mark.slow
def test_a_worker_begins_with_what_takes_longest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PROJECT)
    many = "".join(f"def test_many{at}(): pass\n" for at in range(20))
    (tmp_path / "many_test.py").write_text(many)
    (tmp_path / "few_test.py").write_text("def test_few(): pass\n")
    found = run_apart(tmp_path, "-v", "-n", "1", "--dist=loadfile")
    ran = [line for line in found.stdout.splitlines() if "PASSED" in line]
    assert "few_test.py" in ran[0]
    assert len(ran) == 21


def test_the_record_has_only_files_that_are_there_and_keeps_to_the_budget() -> None:
    known = Record.read()
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    tests = {name for name in there if name.endswith("_test.py") or "/test_" in name}
    assert not known.files.keys() - tests, "these are gone: pytest --record-durations"
    assert known.wall_s <= BUDGET_WALL_S
    assert RECORD.exists()
