"""Changes single functions of the product on purpose, and names the changes that no test notices.

    PYTHONPATH=tests .venv/bin/python -m harness.mutants sample        # 40 of them, by the commit
    PYTHONPATH=tests .venv/bin/python -m harness.mutants all           # those not tried yet
    PYTHONPATH=tests .venv/bin/python -m harness.mutants keep          # in tests/mutants.json
    PYTHONPATH=tests .venv/bin/python -m harness.mutants survivors     # those kept there
    PYTHONPATH=tests .venv/bin/python -m harness.mutants reach         # writes tests/reached.json

`all` writes each outcome to a file (`--results`) and goes on from it when it is started again.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from harness.mutants.changes import Function
from harness.mutants.reach import FROM, Reached, is_drawn, modules, reaching
from harness.mutants.record import Record, Results
from harness.mutants.running import (
    SAMPLE,
    SAMPLE_S,
    functions_of,
    mutants_of,
    run,
    sampled,
    seed_of_today,
    spread,
    until,
    until_minutes,
)
from harness.mutants.session import Tests, with_tests
from harness.mutants.trying import TESTS_S
from harness.suite.tidy_checks import ROOT

RESULTS: Final = ROOT / ".mutants.jsonl"


def sample(given: argparse.Namespace) -> None:
    results = Results(given.results)
    mutants = sampled(mutants_of(_functions(given)), given.seed, given.count)
    run(mutants, Reached.read(), Record.read(), until(given.processor_s, results.add))
    for one in results.all:
        _say(one.sentence)


def all_of_them(given: argparse.Namespace) -> None:
    results, record = Results(given.results), Record.read()
    left = [one for one in spread(mutants_of(_functions(given))) if not results.has(one)]
    left = [one for at, one in enumerate(left) if at % given.of == given.part]
    _say(f"{len(left)} mutants to try")
    goes_on = until_minutes(given.minutes, results.add)
    run(left, Reached.read(), record, goes_on, given.tests_s)
    survivors = [one for one in results.all if not one.killed_by]
    _say(f"{len(results.all)} tried, {len(survivors)} survive")


def keep(given: argparse.Namespace) -> None:
    functions = functions_of(modules())
    Record.read().with_results(functions, Results(given.results).all).write()


def reach(given: argparse.Namespace) -> None:
    before = Reached.read() if given.tests else Reached({}, {})

    def work(tests: Tests) -> None:
        before.with_these(reaching(tests, _say)).write()

    with_tests(given.tests or FROM, work, is_drawn)


def survivors(given: argparse.Namespace) -> None:
    """Those that are recorded and not accepted."""
    record = Record.read()
    for function in _functions(given):
        known = record.functions.get(function.key)
        for text in known.survivors if known else ():
            change = function.changes.get(text)
            if change and text not in record.accepted.get(function.key, {}):
                file = function.module.file
                _say(f"{file}:{change.line}: {function.name}: {text}")


COMMANDS: Final = {
    "sample": sample,
    "all": all_of_them,
    "keep": keep,
    "reach": reach,
    "survivors": survivors,
}


def _functions(given: argparse.Namespace) -> list[Function]:
    return [one for one in functions_of(modules()) if given.only in one.key]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m harness.mutants")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--only", default="", help="Functions whose FILE:NAME contains this.")
    parser.add_argument("--tests", nargs="*", help="Record what these test files reach, not all.")
    parser.add_argument("--seed", default=seed_of_today(), help="Of the sample.")
    parser.add_argument("--count", type=int, default=SAMPLE, help="Mutants in the sample.")
    parser.add_argument("--processor-s", type=float, default=SAMPLE_S, help="Ends the sample.")
    parser.add_argument("--minutes", type=float, default=720.0, help="Ends a run over all.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="The file of outcomes.")
    parser.add_argument(
        "--tests-s", type=float, default=TESTS_S, help="Seconds of tests that one mutant meets."
    )
    parser.add_argument("--of", type=int, default=1, help="Share the mutants among so many runs.")
    parser.add_argument("--part", type=int, default=0, help="Which of them this run is.")
    given = parser.parse_args()
    COMMANDS[given.command](given)


if __name__ == "__main__":
    main()
