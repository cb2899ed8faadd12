"""Small mistakes in what decides about acknowledged records: do the tests notice them?

Each run tries another sample, by the commit. `--nightly` tries all that its file of results does
not have yet (`MUTANTS_RESULTS`), so a night goes on where the one before ended.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.mutants.judging import PROPERTY, judged
from harness.mutants.reach import modules
from harness.mutants.record import Record, Results
from harness.mutants.running import functions_of, seed_of_today
from harness.suite.tidy_checks import ROOT

pytestmark = pytest.mark.slow

Tell = Callable[[str, object], None]


def mutants(*arguments: str) -> None:
    """In a process of its own: it collects tests, and forks."""
    subprocess.run(
        [sys.executable, "-m", "harness.mutants", *arguments],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.timeout(900)
def test_the_tests_notice_the_mutants_of_today_s_sample(
    tmp_path: Path, record_property: Tell
) -> None:
    seed, file = seed_of_today(), tmp_path / "results.jsonl"
    mutants("sample", "--seed", seed, "--results", str(file))
    outcomes = Results(file).all
    functions = {one.key: one for one in functions_of(modules())}
    record = Record.read()
    failures, told = judged(outcomes, functions, record)
    killed = sum(bool(one.killed_by) for one in outcomes)
    clean = sum(record.is_clean(functions[one.function]) for one in outcomes)
    count = (
        f"{killed} of {len(outcomes)} killed; {clean} of these are in functions that must have no"
        f" survivor; the same again: MUTANTS_SEED={seed}"
    )
    record_property(PROPERTY, json.dumps([count, *told]))
    assert outcomes, "no mutant was tried"
    assert not failures, "\n".join(failures)


@pytest.mark.timeout(0)
def test_the_tests_notice_every_mutant_in_a_night(record_property: Tell, *, nightly: bool) -> None:
    if not nightly:
        pytest.skip("only with --nightly")
    file = Path(os.environ.get("MUTANTS_RESULTS", ROOT / ".mutants.jsonl"))
    mutants("all", "--results", str(file), "--tests-s", "20")
    functions = {one.key: one for one in functions_of(modules())}
    now = [
        one
        for one in Results(file).all
        if one.function in functions and functions[one.function].digest == one.digest
    ]
    failures, told = judged(now, functions, Record.read())
    record_property(PROPERTY, json.dumps([f"{len(now)} tried", *told]))
    assert not failures, "\n".join(failures)
