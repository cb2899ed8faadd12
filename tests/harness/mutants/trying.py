"""Puts one change into the loaded product, in a child, and sees whether a test notices it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import Final, NamedTuple

import msgspec

from harness.mutants.changes import Function
from harness.mutants.forked import BROKEN, Tell, in_child
from harness.mutants.live import Loaded
from harness.mutants.session import Tests

TESTS_S: Final = 2.0
"""By what is recorded, the tests that one mutant meets take no longer together."""
TESTS_LEAST: Final = 5
UNKNOWN_S: Final = 0.5
"""For a test without a record."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one mutant: by which test it was killed, or how many it survived."""

    function: str
    digest: str
    line: int
    change: str
    killed_by: str = ""
    failure: str = ""
    survived: int = 0

    @property
    def sentence(self) -> str:
        file, _, name = self.function.partition(":")
        end = f"killed by {self.killed_by}" if self.killed_by else f"survives {self.survived} tests"
        return f"{file}:{self.line}: {name}: {self.change}: {end}"


class Mutant(NamedTuple):
    """One change of one function."""

    function: Function
    text: str

    def outcome(self, killed_by: str = "", failure: str = "", survived: int = 0) -> Outcome:
        line = self.function.changes[self.text].line
        key, digest = self.function.key, self.function.digest
        return Outcome(key, digest, line, self.text, killed_by, failure, survived)


class Trial:
    """Tries mutants with the tests of one session."""

    def __init__(
        self,
        tests: Tests,
        loaded: Loaded,
        seconds: Mapping[str, float],
        most_s: float = TESTS_S,
    ) -> None:
        self._tests = tests
        self._loaded = loaded
        self._seconds = seconds
        self._most_s = most_s

    def outcome(self, mutant: Mutant, names: Sequence[str]) -> Outcome:
        """Of the tests those that are collected are run in this order, until one fails."""
        function, text = mutant
        met = list(self._affordable([one for one in names if one in self._tests.items]))
        killed = self.killed(function, lambda: function.changed(function.changes[text]), met)
        return mutant.outcome(*killed) if killed else mutant.outcome(survived=len(met))

    def _affordable(self, names: Sequence[str]) -> Iterator[str]:
        spent = 0.0
        for at, name in enumerate(names):
            spent += self._seconds.get(name, UNKNOWN_S)
            if spent > self._most_s and at >= TESTS_LEAST:
                return
            yield name

    def killed(
        self, function: Function, code: Callable[[], CodeType], names: Sequence[str]
    ) -> tuple[str, str] | None:
        """The first test that fails with this code, and how. One that fails also if nothing is
        changed does not count."""
        left = list(names)
        while left:
            told = in_child(partial(self._run, function, code, left))
            what, text = told[-1]
            assert what != BROKEN, f"cannot change {function.key}: {text}"
            if what == "survived":
                return None
            name = next(name for kind, name in reversed(told) if kind == "runs")
            if self._tests.is_sound(name):
                return name, text if what == "failed" else "it ended the process, or never ended"
            left = left[left.index(name) + 1 :]
        return None

    def _run(
        self, function: Function, code: Callable[[], CodeType], names: Sequence[str], tell: Tell
    ) -> None:
        self._loaded.replace(function, code())
        for name in names:
            tell(["runs", name])
            ran = self._tests.run(name, self._seconds.get(name, UNKNOWN_S))
            if not ran.passed:
                tell(["failed", ran.failure])
                return
        tell(["survived", ""])
