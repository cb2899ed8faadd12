"""Failed tests with real processes run once more, alone, one at a time, after all others.

On a busy machine one of thousands of tests with real processes and real clients may fail though
nothing is wrong. It must not refuse a change, and must not be hidden: what passes the second time
is told last, with the evidence of the first failure, and is written to a file.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from harness.suite.runs import environment
from harness.suite.whole import faults

FOLDERS: Final = ("tests/cluster/", "tests/compat/")
"""Where tests have real processes."""
PASSED_MAX: Final = 3
"""More of them are no accident."""
TRIED_MAX: Final = 10
"""With more failures something is broken: it would take long, and change nothing."""
TEST_SECONDS_MAX: Final = 1_800
EVIDENCE: Final = Path(".second-try.txt")

Failures = Mapping[str, str]
"""By test, what its failure printed."""


class SecondTry:
    """In the process that hears of all tests, where the whole suite is run (`--second-try`)."""

    def __init__(self, config: pytest.Config, run: Callable[[str], bool] | None = None) -> None:
        self._config = config
        self._run = run or self._runs_alone
        self._failures: dict[str, str] = {}
        self._causes: dict[str, str] = {}
        self._failed_twice: list[str] = []
        self._verdict: list[str] = []
        self._evidence = Path(config.rootpath) / EVIDENCE
        self._evidence.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            printed = [report.longreprtext, *(f"{name}\n{text}" for name, text in report.sections)]
            self._causes[report.nodeid] = cause_of(report)
            before = self._failures.get(report.nodeid)
            self._failures[report.nodeid] = "\n".join([before, *printed] if before else printed)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            faults(self._config).append(f"{report.nodeid} cannot be collected")

    @pytest.hookimpl(trylast=True)  # the workers have ended by then, and others have judged the run
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._failures:
            return
        wrong = faults(self._config)
        why = f"no second try: {wrong[0]}" if wrong else too_much(self._causes)
        if why:
            self._verdict = [why]
            return
        passed: dict[str, str] = {}
        try:
            self._try_all(passed)
        except KeyboardInterrupt:
            self._verdict.append("the second try was interrupted")
            session.exitstatus = pytest.ExitCode.INTERRUPTED
            self._tell(passed, 0)
            return
        causes = {self._causes[test] for test in passed}
        self._tell(passed, len(causes))
        if len(passed) == len(self._failures) and len(causes) <= PASSED_MAX:
            session.exitstatus = pytest.ExitCode.OK

    def _try_all(self, passed: dict[str, str]) -> None:
        for test, text in self._failures.items():
            if self._run(test):
                passed[test] = text
            else:
                self._failed_twice.append(test)

    def _tell(self, passed: Failures, causes: int) -> None:
        for test, evidence in passed.items():
            self._verdict += [f"passed at the second try: {test}", *evidence.splitlines(), ""]
        self._verdict += [f"failed twice: {test}" for test in self._failed_twice]
        if causes > PASSED_MAX:
            self._verdict.append(
                f"{causes} independent failures passed at the second try, more than {PASSED_MAX}:"
                " the run has failed"
            )
        if passed:
            # What a test printed may be no text.
            said = ("\n".join(self._verdict) + "\n").encode(errors="backslashreplace")
            self._evidence.write_bytes(said)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._verdict:
            terminalreporter.section("passed at the second try")
            for line in self._verdict:
                terminalreporter.line(line)

    def _runs_alone(self, test: str) -> bool:
        options = self._config.option
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
        command += ["--color=no", *(["--nightly"] if getattr(options, "nightly", False) else [])]
        # Of a pipe one would wait for the end, which a process that the test left keeps away.
        with tempfile.TemporaryFile() as printed:
            try:
                done = subprocess.run(
                    [*command, test],
                    cwd=self._config.rootpath,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    timeout=TEST_SECONDS_MAX,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
            printed.seek(0)
            return done.returncode == 0 and has_passed(printed.read().decode(errors="replace"))


def has_passed(printed: str) -> bool:
    """Whether the one test has passed by what pytest printed last: it may also have skipped."""
    return printed.rstrip().rpartition("\n")[2].startswith("1 passed")


def cause_of(report: pytest.TestReport) -> str:
    """Who failed: a test, or what all tests of a file share, which then fails them all at once."""
    if report.when != "setup":
        return report.nodeid
    said = report.longreprtext.rstrip().rpartition("\n")[2]
    return f"{report.nodeid.partition('::')[0]}: {said}"


def too_much(failures: Mapping[str, str]) -> str | None:
    """Why no second try would help; None where one may. `failures` has the cause of each."""
    elsewhere = [test for test in failures if not test.startswith(FOLDERS)]
    if elsewhere:
        return f"no second try: {elsewhere[0]} failed, which has no excuse"
    causes = len({*failures.values()})
    if causes > TRIED_MAX:
        return f"no second try: {causes} tests failed"
    return None
