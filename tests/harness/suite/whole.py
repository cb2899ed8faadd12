"""Whether a run has done all that it collected: what was never run must not look like a success."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from harness.suite.need import absent

_FAULTS: Final = pytest.StashKey[list[str]]()
_BROKEN: Final = "broken_at_its_end"
_NAMED_MAX: Final = 5


def faults(config: pytest.Config) -> list[str]:
    """What is wrong with the run as a whole, a sentence each. No second try of a test forgives it;
    whoever adds one also calls `fail`."""
    return config.stash.setdefault(_FAULTS, [])


def fail(session: pytest.Session, *sentences: str) -> None:
    """Let the run fail, whatever its tests did."""
    faults(session.config).extend(sentences)
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Whole:
    """In the process that hears of all tests: compares what was collected with what has ended."""

    def __init__(self) -> None:
        self._collected: set[str] = set()
        self._ended: set[str] = set()
        self._deaths = 0
        self._said: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in {"setup", "call"}:  # a worker's death has a name of its own
            self._ended.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self._deaths += bool(error)
        output: Mapping[str, str] = getattr(node, "workeroutput", None) or {}
        if _BROKEN in output:
            self._said.append(f"a worker could not end: {output[_BROKEN]}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self) -> None:
        """The test that it ran is told as failed."""
        self._deaths -= 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        never = sorted(self._collected - self._ended) if self._ended else []
        if never:
            names = ", ".join(never[:_NAMED_MAX])
            self._said.append(f"{len(never)} collected tests were never run: {names}")
        if self._deaths > 0:
            self._said.append(f"workers that died while they ran no test: {self._deaths}")
        self._said += [
            f"HARNESS_REQUIRE names {program}, which is not on this machine" for program in absent()
        ]
        if self._said:
            fail(session, *self._said)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._said:
            terminalreporter.section("the run is not whole")
        for sentence in self._said:
            terminalreporter.line(sentence)


class TellsItsEnd:
    """In each worker: xdist forgets what goes wrong after the last test."""

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        try:
            return (yield)
        except Exception as failure:
            vars(session.config)["workeroutput"][_BROKEN] = repr(failure)
            raise
