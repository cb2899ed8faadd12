"""Every test many times beside busy processors: what fails once in twenty runs is seen here."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from harness.suite.durations import ENDED
from harness.suite.runs import environment
from harness.suite.second_try import FOLDERS
from harness.suite.whole import fail

NIGHTLY_REPEATS = 20
NIGHTLY_BUSY = 2
REPETITION = "repetition"


class Repeating:
    """In every process of the run (`--repeat N`): each test N times."""

    def __init__(self, times: int) -> None:
        self._times = times

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.fixturenames.append(REPETITION)
        ids = [f"run{at}" for at in range(self._times)]
        metafunc.parametrize(REPETITION, range(self._times), ids=ids)


class Failures:
    """In the process that hears of all tests: how often each one failed, worst first."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._failed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[without_repetition(report.nodeid)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"failures in {self._times} runs of each test")
        for test, times in self._failed.most_common():
            terminalreporter.line(f"{times:4} {test}")
        if not self._failed:
            terminalreporter.line("none")


class AtNight:
    """At the end of a whole run with `--nightly`: all tests with real processes many times."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
            return  # somebody asked for a few of the tests
        if session.exitstatus not in ENDED:
            return  # or has had enough of them
        options = [f"--repeat={NIGHTLY_REPEATS}", f"--busy={NIGHTLY_BUSY}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *FOLDERS],
            cwd=self._config.rootpath,
            env=environment(),
            check=False,
        )
        if done.returncode:
            fail(session, f"of {NIGHTLY_REPEATS} runs of each test with real processes some failed")


def without_repetition(nodeid: str) -> str:
    """The test, whichever of its runs this was."""
    name, bracket, parameters = nodeid.partition("[")
    kept = [one for one in parameters.removesuffix("]").split("-") if not _is_repetition(one)]
    return f"{name}[{'-'.join(kept)}]" if bracket and kept else name


def _is_repetition(parameter: str) -> bool:
    return parameter.startswith("run") and parameter[3:].isdecimal()


class Busy:
    """Processors that compute all the time, from the first test to the last."""

    def __init__(self, count: int) -> None:
        self._running = busy(count)

    def pytest_sessionstart(self) -> None:
        self._running.__enter__()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._running.__exit__(None, None, None)


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """So many processes, each of which keeps a processor busy; they end with this one."""
    line = "import os, sys\nme = os.getppid()\nwhile os.getppid() == me:\n    sum(range(100_000))"
    started = [subprocess.Popen([sys.executable, "-c", line]) for _ in range(count)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
