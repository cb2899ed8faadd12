"""Tries all mutants of the functions in a folder with the tests in it, and prints the outcomes.

    PYTHONPATH=tests .venv/bin/python -m harness.mutants.toy FOLDER

FOLDER/source/tides.py is the product. All tests in FOLDER are tried with each mutant.
"""

import sys
from pathlib import Path

import msgspec

from harness.mutants.changes import Module
from harness.mutants.live import Loaded
from harness.mutants.running import functions_of, mutants_of
from harness.mutants.session import Tests, with_tests
from harness.mutants.trying import Trial
from harness.suite.tidy_checks import ROOT


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder / "source"))
    mutants = mutants_of(functions_of([Module.read("source/tides.py", folder)]))

    def work(tests: Tests) -> None:
        loaded = Loaded({one.function.module for one in mutants})
        trial = Trial(tests, loaded, dict.fromkeys(tests.items, 0.0))
        for one in mutants:
            outcome = trial.outcome(one, sorted(tests.items))
            sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")

    with_tests([f"--rootdir={ROOT}", f"-c{ROOT}/pyproject.toml", str(folder)], work)


if __name__ == "__main__":
    main()
