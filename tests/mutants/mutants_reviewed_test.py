"""Mistakes that somebody asked about have a test that notices each of them."""

import os
import subprocess
import sys

import pytest

from harness.mutants.reviewed import REVIEWED
from harness.suite.tidy_checks import ROOT


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_mistake_that_was_asked_about_is_noticed_by_its_tests() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "harness.mutants.reviewed"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    assert not ran.returncode, ran.stdout + ran.stderr


def test_a_mistake_that_nothing_can_notice_says_why() -> None:
    assert all(bool(one.noticed_by) != bool(one.why_not) for one in REVIEWED.values())


@pytest.mark.parametrize("name", REVIEWED)
def test_what_would_be_changed_stands_in_the_function_as_it_is_now(name: str) -> None:
    assert REVIEWED[name].code().co_qualname == REVIEWED[name].function
