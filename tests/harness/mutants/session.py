"""A session of pytest in this process that has collected tests, and runs them in forked children.

Collecting takes seconds and a fork milliseconds: all tests of a run share one collection, and what
a child breaks ends with it.
"""

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest

from harness.mutants.forked import OVER_TIME, OverTimeError, in_child, limited
from harness.suite.tidy_checks import ROOT

TESTS: Final = ROOT / "tests"
ONLY: Final = ("-n", "0", "-q", "-s", "--no-header", "-p", "no:cacheprovider", "--timeout=0")
SLOWER: Final = 10.0
"""A test that takes so many times what it took has met an endless loop."""
LEAST_S: Final = 0.5
DRAWN: Final = 25
EXAMPLES: Final = "doctests_test.py"
FAILURE_MAX: Final = 160


class Ran(NamedTuple):
    """What one test came to."""

    passed: bool
    seconds: float
    failure: str = ""


class Tests:
    """The tests that a session has collected, each with all its parameters."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self.items: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for one in items:
            self.items[short_name(one.nodeid)].append(one)
        self._sound: dict[str, bool] = {}

    def run(self, name: str, usual_s: float | None = None) -> Ran:
        """In this process, which must be a child, up to the first failure."""
        most_s = WHOLE_S if usual_s is None else LEAST_S + SLOWER * usual_s
        began = time.process_time()
        try:
            reports = limited(lambda: _until_one_fails(self.items[name]), most_s)
        except OverTimeError:
            return Ran(passed=False, seconds=most_s, failure=OVER_TIME)
        seconds = time.process_time() - began
        failed = [one for one in reports if one.failed]
        if failed:
            return Ran(passed=False, seconds=seconds, failure=_message(failed[0]))
        return Ran(
            passed=any(one.when == "call" and one.passed for one in reports), seconds=seconds
        )

    def is_sound(self, name: str) -> bool:
        """Whether the test passes in a child when nothing is changed."""
        if name not in self._sound:
            self._sound[name] = in_child(lambda tell: tell(self.run(name).passed)) == [True]
        return self._sound[name]


WHOLE_S: Final = 40.0
"""For a test that nobody has measured yet."""


def _until_one_fails(items: Iterable[pytest.Item]) -> list[pytest.TestReport]:
    from _pytest.runner import runtestprotocol  # noqa: PLC0415 -- the one way to run an item

    reports: list[pytest.TestReport] = []
    for item in items:
        reports += runtestprotocol(item, log=False, nextitem=None)
        if any(one.failed for one in reports):
            break
    return reports


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr)
    return " ".join(text.split())[:FAILURE_MAX]


def short_name(nodeid: str) -> str:
    """Names of test files are unique, and a file may move to another folder. Of the examples each
    module's are tests of their own, so the one that is about a function is found quickly."""
    path, _, test = nodeid.partition("::")
    file = path.rpartition("/")[2]
    return f"{file}::{test if file == EXAMPLES else test.partition('[')[0]}"


@dataclass
class Collecting:
    """A plugin: instead of running the tests, does something else with them."""

    work: Callable[[Tests], Any]
    leave_out: Callable[[pytest.Item], bool] = field(default=lambda _item: False)

    def pytest_configure(self) -> None:
        """Property tests draw the same cases each time; nothing is kept, nor made smaller."""
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 -- pytest is first

        settings.register_profile(
            "mutants",
            deadline=None,
            derandomize=True,
            database=None,
            max_examples=DRAWN,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[*HealthCheck],
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.work(Tests(one for one in session.items if not self.leave_out(one)))
        return True


def with_tests(
    paths: Sequence[str],
    work: Callable[[Tests], Any],
    leave_out: Callable[[pytest.Item], bool] = lambda _item: False,
) -> None:
    """Collect the tests of these paths, and do the work with them."""
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        options = [*ONLY, f"--basetemp={folder}/tests", "-o", "tmp_path_retention_policy=none"]
        ended = pytest.main([*options, *paths], plugins=[Collecting(work, leave_out)])
    if ended not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        sys.exit(f"pytest ended with {ended!r}")
