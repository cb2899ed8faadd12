"""How long each test file takes: recorded by one command, read by who shares out the work.

`pytest --record-durations` writes what it runs into `tests/durations.json`. Every other whole
run compares itself with that record, by processor time: wall time says more about who else uses the
machine.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Final, cast

import msgspec
import pytest

from harness.suite.used import MAKING, processor_s
from harness.suite.whole import fail

RECORD: Final = Path(__file__).resolve().parents[2] / "durations.json"
PROCESSOR: Final = "processor_s"
"""Under this name each test reports what it and the processes it waited for used."""
BUDGET_WALL_S: Final = 4 * 720
"""Four workers for twelve minutes. The aim is six."""
ALONE_S: Final = 10.0
"""A test that takes as long is given out by itself, not with its file."""
SHORT_S: Final = 5.0
"""A file that takes less, or has no record yet, may grow as one that takes this: of a short one the
start-up costs what it does."""
MAY_GROW: Final = 1.5
ENDED: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""Of a run that was interrupted nobody knows what its tests take."""
ALLOWANCE_S: Final = 30.0
"""Checks of types start with empty caches on a new machine, and of files that share a JVM the first
one pays for its start."""


class FileTime(msgspec.Struct, frozen=True):
    """Seconds of one test file."""

    wall: float
    processor: float


class Record(msgspec.Struct, frozen=True):
    """What one whole run took."""

    files: dict[str, FileTime] = {}
    alone: dict[str, float] = {}
    """Tests that take so long that another worker should have the rest of their file."""

    @classmethod
    def read(cls, path: Path = RECORD) -> "Record":
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, path: Path = RECORD) -> None:
        text = json.dumps(msgspec.to_builtins(self), indent=1, sort_keys=True)
        path.write_text(text + "\n")

    @property
    def wall_s(self) -> float:
        return sum(one.wall for one in self.files.values())


def updated(before: Record, now: Record, root: Path) -> Record:
    """What is recorded after a run of some of the files: of the others what was, if they are still
    there."""
    others = {
        name: one
        for name, one in before.files.items()
        if name not in now.files and (root / name).exists()
    }
    alone = {test: took for test, took in before.alone.items() if file_of(test) in others}
    return Record({**others, **now.files}, {**alone, **now.alone})


def grown(before: Record, now: Record) -> list[str]:
    """Files that used half more processor time than recorded, a sentence each.

    A slower machine is slow for all files: their median says how slow.
    """
    recorded = {name: one.processor for name, one in before.files.items() if name in now.files}
    ratios = [
        now.files[name].processor / took for name, took in recorded.items() if took >= SHORT_S
    ]
    if not ratios:
        return []
    slower = max(1.0, median(ratios))
    found = []
    for name in sorted(now.files):
        took, used = recorded.get(name), now.files[name].processor
        if used > max(took or 0.0, SHORT_S) * MAY_GROW * slower + ALLOWANCE_S:
            found.append(
                f"{name}: {used:.1f} s of processor time,"
                f" {'nothing' if took is None else f'{took:.1f} s'} recorded"
                f" (this machine: {slower:.2f} times as slow)"
            )
    return found


class Measured:
    """In a process that runs tests: the processor time of each, beside its outcome."""

    def __init__(self) -> None:
        self._before = _processor_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "teardown":
            now = _processor_s()
            item.user_properties.append((PROCESSOR, now - self._before))
            self._before = now
        return (yield)


class Recording:
    """In the process that hears of all tests: adds up, and compares or writes in the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wall: defaultdict[str, float] = defaultdict(float)
        self._processor: defaultdict[str, float] = defaultdict(float)
        self._grown: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._wall[report.nodeid] += report.duration
        if report.when == "teardown":
            used = [value for name, value in report.user_properties if name == PROCESSOR]
            self._processor[report.nodeid] += sum(cast(list[float], used))

    def measured(self) -> Record:
        """Of the run so far."""
        wall, processor = _by_file(self._wall), _by_file(self._processor)
        files = {
            name: FileTime(round(wall[name], 2), round(processor.get(name, 0.0), 2))
            for name in wall
        }
        alone = {name: round(took, 1) for name, took in self._wall.items() if took >= ALONE_S}
        return Record(files, alone)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        now, before = self.measured(), Record.read()
        if self._config.getoption("--record-durations"):
            if session.exitstatus in ENDED:
                updated(before, now, self._config.rootpath).write()
        elif now.files.keys() >= before.files.keys() and not self._config.getoption("--nightly"):
            self._grown = grown(before, now)
            if self._grown:
                fail(session, *self._grown)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._grown:
            return
        terminalreporter.section("files that take much longer than recorded")
        for sentence in self._grown:
            terminalreporter.line(sentence)
        terminalreporter.line(
            "Make them cheaper, or record what they take now: pytest --record-durations"
        )


def _processor_s() -> float:
    """Without what made tools that a new machine lacks."""
    return processor_s() - MAKING.seconds


def _by_file(tests: Mapping[str, float]) -> dict[str, float]:
    files: defaultdict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        files[file_of(name)] += seconds
    return dict(files)


def file_of(test: str) -> str:
    return test.split("::", 1)[0]


def longest_first(
    units: Iterable[str], record: Record, together: Mapping[str, Collection[str]] = {}
) -> list[str]:
    """Units of work, a file or a test or some files that go together, by what is recorded for them.
    One without a record comes first: nobody knows how long it takes."""

    def seconds(unit: str) -> float:
        if unit in together:
            return _recorded(together[unit], record)
        return _alone(unit, record)

    return sorted(units, key=lambda unit: (-seconds(unit), unit))


def _recorded(files: Collection[str], record: Record) -> float:
    return sum(took.wall for name, took in record.files.items() if name in files)


def _alone(unit: str, record: Record) -> float:
    """Of a test, or of a file without the tests that are given out alone."""
    if unit in record.alone:
        return record.alone[unit]
    if unit not in record.files:
        return float("inf")
    inside = (took for test, took in record.alone.items() if file_of(test) == unit)
    return record.files[unit].wall - sum(inside)
