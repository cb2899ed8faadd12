"""What a run of mutants proves, and what it only tells.

A survivor of a function that was shown clean, and whose text is the same since, means that its
tests have become weaker: that fails. Every other survivor is told, for it proves nothing about the
change that is being tested.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from harness.mutants.changes import Function
from harness.mutants.record import Record
from harness.mutants.trying import Mutant, Outcome

PROPERTY: Final = "mutants"


class Verdict(NamedTuple):
    """Of some outcomes."""

    failures: list[str]
    told: list[str]


def judged(
    outcomes: Iterable[Outcome], functions: Mapping[str, Function], record: Record
) -> Verdict:
    failures, told = [], []
    for one in outcomes:
        function = functions[one.function]
        if one.killed_by or record.is_accepted(Mutant(function, one.change)):
            continue
        if record.is_clean(function):
            failures.append(f"{one.sentence}; before, one of these noticed it: {_of(one, record)}")
        else:
            told.append(one.sentence)
    return Verdict(failures, told)


def _of(outcome: Outcome, record: Record) -> str:
    return ", ".join(record.functions[outcome.function].killed_by)


class Told:
    """A plugin that prints at the end of a run of tests what was told."""

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [
            line
            for report in [*terminalreporter.getreports("passed"), *_failed(terminalreporter)]
            for name, value in report.user_properties
            if name == PROPERTY
            for line in json.loads(value)
        ]
        if lines:
            terminalreporter.section("mutants")
        for line in lines:
            terminalreporter.line(line)


def _failed(terminalreporter: Any) -> list[Any]:
    return [*terminalreporter.getreports("failed")]
