"""Tests with real processes have a second try, which is told; three of them fail no run."""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import pytest

from harness.suite.runs import run_apart
from harness.suite.second_try import EVIDENCE, PASSED_MAX, TRIED_MAX, SecondTry, cause_of
from harness.suite.tidy_checks import ROOT

CONFTEST = """
from harness.suite.second_try import SecondTry

def pytest_addoption(parser):
    parser.addoption("--second-try", action="store_true")

def pytest_configure(config):
    if config.getoption("--second-try") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config))
"""
FAILS_FIRST = """
from pathlib import Path

def test_{name}():
    been = Path(__file__).with_suffix(".been")
    was_here = been.exists()
    been.touch()
    print("printed by {name}")
    assert was_here, "the first time"
"""
FAILS = """
def test_{name}():
    assert False, "each time"
"""
PASSES = """
def test_{name}():
    pass
"""


def project(folder: Path, tests: Mapping[str, str]) -> Path:
    """Test files by path, each with one test."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for path, text in tests.items():
        file = folder / f"tests/{path}_test.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=file.stem.removesuffix("_test")))
    return folder


@pytest.mark.slow
def test_what_passes_the_second_time_is_told_and_fails_nothing(tmp_path: Path) -> None:
    tests = {"unit/sound": PASSES, "cluster/odd0": FAILS_FIRST, "compat/odd1": FAILS_FIRST}
    found = run_apart(project(tmp_path, tests), "--second-try", "-n", "2", "tests")
    assert found.returncode == 0, found.stdout
    told = found.stdout.partition("= passed at the second try =")[2]
    for test in ("tests/cluster/odd0_test.py::test_odd0", "tests/compat/odd1_test.py::test_odd1"):
        assert f"passed at the second try: {test}" in told
        assert f"printed by {test[-4:]}" in told
    assert told.count("AssertionError: the first time") >= 2
    assert (tmp_path / EVIDENCE).read_text().count("passed at the second try: ") == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    tests = {"cluster/bad": FAILS, "cluster/odd": FAILS_FIRST}
    found = run_apart(project(tmp_path, tests), "--second-try", "-n", "0", "tests")
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "failed twice: tests/cluster/bad_test.py::test_bad" in found.stdout
    assert "passed at the second try: tests/cluster/odd_test.py::test_odd" in found.stdout


class Ended:
    """A run with these failures, of which these fail again."""

    def __init__(
        self,
        folder: Path,
        failed: Iterable[str],
        again: Collection[str] = (),
        interrupted_at: str = "",
    ) -> None:
        self.exitstatus: int = pytest.ExitCode.TESTS_FAILED
        self.tried: list[str] = []
        self.lines: list[str] = []
        self.interrupted_at = interrupted_at
        config = SimpleNamespace(rootpath=folder, stash=pytest.Stash())
        tries = SecondTry(cast(pytest.Config, config), lambda test: self._passes(test, again))
        for test in failed:
            tries.pytest_runtest_logreport(failure_of(test))
        tries.pytest_sessionfinish(cast(pytest.Session, self))
        tries.pytest_terminal_summary(cast(pytest.TerminalReporter, self))

    def _passes(self, test: str, again: Collection[str]) -> bool:
        self.tried.append(test)
        if test == self.interrupted_at:
            raise KeyboardInterrupt
        return test not in again

    def section(self, title: str) -> None:
        self.lines.append(title)

    def line(self, text: str) -> None:
        self.lines.append(text)


def failure_of(test: str, when: Literal["setup", "call"] = "call") -> pytest.TestReport:
    said = f"{test} has failed" if when == "call" else "the broker cannot be reached"
    return pytest.TestReport(test, (test, 0, test), {}, "failed", said, when)


def test_a_fixture_that_fails_all_tests_of_its_file_counts_once() -> None:
    shared = {cause_of(failure_of(test, "setup")) for test in named("cluster", PASSED_MAX + 1)}
    assert shared == {"tests/cluster/x_test.py: the broker cannot be reached"}
    own = {cause_of(failure_of(test)) for test in named("cluster", PASSED_MAX + 1)}
    assert own == {*named("cluster", PASSED_MAX + 1)}


def named(folder: str, count: int) -> list[str]:
    return [f"tests/{folder}/x_test.py::test_{at}" for at in range(count)]


def test_each_failed_test_is_tried_once(tmp_path: Path) -> None:
    failed = named("cluster", PASSED_MAX)
    run = Ended(tmp_path, [*failed, failed[0]])  # one failed in its end, too
    assert (run.exitstatus, run.tried) == (pytest.ExitCode.OK, failed)


def test_more_than_three_that_pass_the_second_time_fail_the_run(tmp_path: Path) -> None:
    run = Ended(tmp_path, named("compat", PASSED_MAX + 1))
    assert run.exitstatus == pytest.ExitCode.TESTS_FAILED
    assert run.lines[-1].endswith("more than 3: the run has failed")
    assert (tmp_path / EVIDENCE).exists()


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    failed = named("cluster", 2)
    run = Ended(tmp_path, failed, again=failed[:1])
    assert run.exitstatus == pytest.ExitCode.TESTS_FAILED
    assert run.lines[-1] == f"failed twice: {failed[0]}"


def test_a_second_try_that_is_interrupted_tells_what_it_knows(tmp_path: Path) -> None:
    failed = named("cluster", 3)
    run = Ended(tmp_path, failed, interrupted_at=failed[1])
    assert (run.exitstatus, run.tried) == (pytest.ExitCode.INTERRUPTED, failed[:2])
    assert f"passed at the second try: {failed[0]}" in run.lines
    assert "the second try was interrupted" in run.lines
    assert not [line for line in run.lines if line.startswith("failed twice")]
    assert (tmp_path / EVIDENCE).exists()


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (named("unit", 1), "no second try: tests/unit/x_test.py::test_0 failed"),
        (named("cluster", 1) + named("tidy", 1), "no second try: tests/tidy/x_test.py"),
        (named("cluster", TRIED_MAX + 1), f"no second try: {TRIED_MAX + 1} tests failed"),
    ],
    ids=["elsewhere", "also elsewhere", "very many"],
)
def test_where_no_second_try_would_help_there_is_none(
    tmp_path: Path, failed: list[str], said: str
) -> None:
    run = Ended(tmp_path, failed)
    assert (run.exitstatus, run.tried) == (pytest.ExitCode.TESTS_FAILED, [])
    assert run.lines[-1].startswith(said)


def test_a_run_without_failures_says_nothing_and_removes_old_evidence(tmp_path: Path) -> None:
    evidence = tmp_path / EVIDENCE
    evidence.write_text("old")
    assert Ended(tmp_path, []).lines == []
    assert not evidence.exists()


CI_README = """<!-- command: test -->
```sh
{command}
```
"""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "code"), [("echo new > .second-try.txt", 0), ("false", 1)])
def test_ci_prints_the_evidence_of_this_run_and_of_no_other(
    tmp_path: Path, command: str, code: int
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    (tmp_path / "README.md").write_text(CI_README.format(command=command))
    (tmp_path / EVIDENCE).write_text("old")
    for program in ("strace", "kcat"):  # it would install what is missing
        (tmp_path / program).touch(0o755)
    ran = subprocess.run(
        [tmp_path / ".ci/run"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stdout == f"+ {command}\n" + ("new\n" if code == 0 else "")
