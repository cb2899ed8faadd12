"""The loop of a developer is short, whatever is recorded for single files."""

from pathlib import Path

import pytest

from harness.suite.runs import run_apart

PROJECT = """
from harness.suite.durations import Record, FileTime
from harness.suite.loop import Loop

RECORD = Record({"long_test.py": FileTime(30.0, 1.0), "short_test.py": FileTime(0.5, 0.5)})
Record.read = lambda: RECORD

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long")
    config.pluginmanager.register(Loop(config))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(PROJECT)
    (tmp_path / "long_test.py").write_text("def test_long(): pass\n")
    (tmp_path / "short_test.py").write_text("def test_short(): pass\n")
    (tmp_path / "new_test.py").write_text("def test_new(): pass\n")
    return tmp_path


def ran(project: Path, *words: str) -> set[str]:
    found = run_apart(project, "-v", "-n", "0", "-p", "no:cacheprovider", *words)
    rows = (line.split("::") for line in found.stdout.splitlines() if "PASSED" in line)
    return {name for name, *_ in rows}


@pytest.mark.slow
def test_the_loop_leaves_out_files_that_are_recorded_to_take_long(project: Path) -> None:
    assert ran(project, "-m", "not slow") == {"short_test.py", "new_test.py"}


@pytest.mark.slow
def test_a_run_of_everything_has_all_files(project: Path) -> None:
    assert ran(project) == {"short_test.py", "new_test.py", "long_test.py"}


@pytest.mark.slow
def test_a_file_that_is_named_is_run(project: Path) -> None:
    assert ran(project, "-m", "not slow", "long_test.py") == {"long_test.py"}
