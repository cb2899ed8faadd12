"""Which tests reach which function of the product, and how long each takes: recorded by a command.

Each test runs in a child of its own, as it does when a mutant is tried, so what it reaches by
fixtures counts too. Only tests that pass that way are recorded.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from harness.mutants.changes import Module
from harness.mutants.forked import Tell, in_child
from harness.mutants.live import Loaded
from harness.mutants.session import TESTS, Tests
from harness.suite.tidy_checks import ROOT

FOLDERS: Final = (
    "node/tidelog/node/log",
    "node/tidelog/node/replica",
    "node/tidelog/node/groups",
    "node/tidelog/node/transactions",
    "coordinator/tidelog/coordinator",
)
"""What decides about acknowledged records, groups and transactions."""
FROM: Final = (
    "tests/unit/clients/kernel/doctests_test.py",
    "tests/unit/coordinator",
    "tests/unit/harness",
    "tests/unit/node",
    "tests/unit/scenarios",
    "tests/property",
)
RECORD: Final = TESTS / "reached.json"
SHORTEST_S: Final = 0.01
"""A test takes no less, with the fork."""

Reaching = tuple[str, float, list[str]]
"""A test, its seconds of processor time, and the functions that it reaches."""


def modules(folders: Iterable[str] = FOLDERS) -> list[Module]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Module.read(str(path.relative_to(ROOT)), ROOT) for path in paths]


def is_drawn(item: pytest.Item) -> bool:
    """Histories are drawn for as long as there is time, so they kill a mutant on one machine and
    not on another."""
    return "histories" in getattr(item, "fixturenames", ())


def reaching(tests: Tests, tell: Callable[[str], object]) -> Iterator[Reaching]:
    """Run all tests. The functions of this process say from then on when they are called."""
    seen: set[str] = set()
    within = modules()
    loaded = Loaded(within)
    for module in within:
        loaded.let_note(module, seen.add)
    for at, name in enumerate(sorted(tests.items)):

        def run(told: Tell, name: str = name) -> None:
            seen.clear()
            ran = tests.run(name)
            told([ran.passed, ran.seconds, sorted(seen)])

        for passed, seconds, keys in in_child(run):
            if passed and keys:
                yield name, seconds, keys
            elif not passed:
                tell(f"not recorded, it does not pass alone: {name}")
        if at % 100 == 0:
            tell(f"{at} of {len(tests.items)} tests")


@dataclass(frozen=True)
class Reached:
    """The recorded map."""

    seconds: dict[str, float]
    """Of processor time, by test."""
    by_function: dict[str, list[str]]
    """The tests that reach a function: first the quick ones that reach little else, for these are
    about it. Of many tests that go through half of the product only a few can be tried."""

    @cached_property
    def paths(self) -> dict[str, str]:
        """Of the test files, by their names, below the root."""
        files = {file_of(one) for one in self.seconds}
        return {
            path.name: str(path.relative_to(ROOT))
            for path in TESTS.rglob("*.py")
            if path.name in files
        }

    def files_of(self, tests: Iterable[str]) -> list[str]:
        """Where these tests are now; those of a file that is gone are nowhere."""
        names = {file_of(one) for one in tests}
        return sorted(self.paths[name] for name in names & self.paths.keys())

    @classmethod
    def of(cls, found: Iterable[Reaching]) -> "Reached":
        found = list(found)
        seconds = {name: round(took, 3) for name, took, _ in found}
        cost = {name: (SHORTEST_S + took) * len(keys) for name, took, keys in found}
        by_function: defaultdict[str, list[str]] = defaultdict(list)
        for name, _, keys in sorted(found, key=lambda one: (cost[one[0]], one[0])):
            for key in keys:
                by_function[key].append(name)
        return cls(seconds, dict(by_function))

    def with_these(self, found: Iterable[Reaching]) -> "Reached":
        """These in place of what was recorded of the same test files, and all others as before."""
        found = list(found)
        files = {file_of(name) for name, _, _ in found}
        others = (one for one in self.rows if file_of(one[0]) not in files)
        return Reached.of([*others, *found])

    @property
    def rows(self) -> Iterator[Reaching]:
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for key, names in self.by_function.items():
            for name in names:
                keys[name].append(key)
        return ((name, took, keys[name]) for name, took in self.seconds.items())

    @classmethod
    def read(cls, path: Path = RECORD) -> "Reached":
        table = json.loads(path.read_text(encoding="utf-8"))
        tests = [
            (f"{file}::{test}", took, list[str]())
            for file, names in table["tests"].items()
            for test, took in names.items()
        ]
        for file, functions in table["functions"].items():
            for name, ranges in functions.items():
                for at in _numbers(ranges):
                    tests[at][2].append(f"{file}:{name}")
        return cls.of(tests)

    def write(self, path: Path = RECORD) -> None:
        """Tests are numbered in their order in the table."""
        tests: dict[str, dict[str, float]] = {}
        for one in sorted(self.seconds):
            file, _, test = one.partition("::")
            tests.setdefault(file, {})[test] = self.seconds[one]
        order = [f"{file}::{test}" for file, names in tests.items() for test in names]
        number = {one: at for at, one in enumerate(order)}
        functions: dict[str, dict[str, str]] = {}
        for key, names in sorted(self.by_function.items()):
            file, _, function = key.partition(":")
            ranges = _ranges(sorted(number[one] for one in names))
            functions.setdefault(file, {})[function] = ranges
        table: dict[str, Any] = {"tests": tests, "functions": functions}
        path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _ranges(numbers: list[int]) -> str:
    """As a printer is told its pages: `3-7,9`."""
    starts = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    parts = [numbers[a:b] for a, b in pairwise([0, *starts, len(numbers)])]
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in parts)


def _numbers(ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def file_of(test: str) -> str:
    return test.partition("::")[0]
