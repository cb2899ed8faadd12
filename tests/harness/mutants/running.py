"""Which mutants a run tries, one after the other, and what it says of those that survive."""

import os
import random
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from harness.mutants.changes import Function, Module
from harness.mutants.live import Loaded
from harness.mutants.reach import Reached
from harness.mutants.record import Record
from harness.mutants.session import Tests, with_tests
from harness.mutants.trying import TESTS_S, Mutant, Outcome, Trial
from harness.suite import used
from harness.suite.tidy_checks import ROOT

SAMPLE: Final = 40
SAMPLE_S: Final = 60.0
"""Of processor time; a machine that is slower tries fewer mutants."""


def functions_of(modules: Iterable[Module]) -> list[Function]:
    return [one for module in modules for one in module.functions.values()]


def mutants_of(functions: Iterable[Function]) -> list[Mutant]:
    return [Mutant(one, text) for one in functions for text in one.changes]


def spread(mutants: Sequence[Mutant]) -> list[Mutant]:
    """Function after function, in an order in which each part of the list has some of all
    modules."""
    return sorted(
        mutants, key=lambda one: (zlib.crc32(one.function.key.encode()), one.function.key)
    )


def sampled(mutants: Sequence[Mutant], seed: str, count: int = SAMPLE) -> list[Mutant]:
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def seed_of_today() -> str:
    """Another one for each commit; where there is no repository, for each day."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        found = ""
    return os.environ.get("MUTANTS_SEED") or found or f"{datetime.now(tz=UTC):%F}"


def until(processor_s: float, take: Callable[[Outcome], object]) -> Callable[[Outcome], bool]:
    """Takes outcomes; false once the time is used up."""
    end_s = used.processor_s() + processor_s

    def goes_on(outcome: Outcome) -> bool:
        take(outcome)
        return used.processor_s() < end_s

    return goes_on


def until_minutes(minutes: float, take: Callable[[Outcome], object]) -> Callable[[Outcome], bool]:
    end_s = time.monotonic() + 60 * minutes

    def goes_on(outcome: Outcome) -> bool:
        take(outcome)
        return time.monotonic() < end_s

    return goes_on


def run(
    mutants: Sequence[Mutant],
    reached: Reached,
    record: Record,
    goes_on: Callable[[Outcome], bool],
    most_s: float = TESTS_S,
) -> None:
    """Try them in this process, which collects the tests that they need; those of a function that
    no test reaches are left out."""
    tests_for = {
        one: record.tests_for(one, reached.by_function[one.function.key])
        for one in mutants
        if one.function.key in reached.by_function
    }
    paths = reached.files_of(name for names in tests_for.values() for name in names)

    def work(tests: Tests) -> None:
        modules = {one.function.module for one in tests_for}
        trial = Trial(tests, Loaded(modules), reached.seconds, most_s)
        for mutant, names in tests_for.items():
            if not goes_on(trial.outcome(mutant, names)):
                return

    if paths:
        with_tests(paths, work)
