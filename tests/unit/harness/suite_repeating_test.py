"""A test that fails now and then is found by running it often, beside busy processors."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.suite.repeating import AtNight, busy, without_repetition
from harness.suite.runs import run_apart
from harness.suite.whole import faults

CONFTEST = """
from harness.suite.repeating import Failures, Repeating

def pytest_configure(config):
    config.pluginmanager.register(Repeating(4))
    config.pluginmanager.register(Failures(4))
"""
TESTS = """
from pathlib import Path

import pytest

def test_fails_once():
    with Path(__file__).with_suffix(".been").open("a") as been:
        been.write(".")
        count = been.tell()
    assert count != 2

@pytest.mark.parametrize("size", [1, 2])
def test_sound(size):
    pass
"""


@pytest.mark.slow
def test_each_test_runs_so_often_and_its_failures_are_counted(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "odd_test.py").write_text(TESTS)
    found = run_apart(tmp_path, "-q", "-n", "0", "odd_test.py")
    assert "1 failed, 11 passed" in found.stdout
    assert "   1 odd_test.py::test_fails_once" in found.stdout


@pytest.mark.parametrize(
    ("nodeid", "test"),
    [
        ("a_test.py::test_x[run3]", "a_test.py::test_x"),
        ("a_test.py::test_x[run3-1-b]", "a_test.py::test_x[1-b]"),
        ("a_test.py::test_x[1-run12]", "a_test.py::test_x[1]"),
        ("a_test.py::test_x", "a_test.py::test_x"),
        ("a_test.py::test_x[runs]", "a_test.py::test_x[runs]"),
    ],
)
def test_all_runs_of_a_test_count_for_it(nodeid: str, test: str) -> None:
    assert without_repetition(nodeid) == test


def test_processors_are_busy_and_then_let_go() -> None:
    with busy(2) as pids:
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "then"),
    [
        (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
    ],
)
def test_a_night_goes_on_only_if_nobody_has_interrupted_it(
    tmp_path: Path, ended: pytest.ExitCode, then: pytest.ExitCode
) -> None:
    """In a folder without tests what goes on fails at once."""
    source = pytest.Config.ArgsSource.TESTPATHS
    config = SimpleNamespace(rootpath=tmp_path, stash=pytest.Stash(), args_source=source)
    session = SimpleNamespace(exitstatus=ended, config=config)
    night = AtNight(cast(pytest.Config, config))
    night.pytest_sessionfinish(cast(pytest.Session, session))
    assert session.exitstatus == then
    assert len(faults(cast(pytest.Config, config))) == (ended is pytest.ExitCode.OK)
