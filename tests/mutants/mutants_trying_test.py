"""A mutant is killed by the test that notices it, and by nothing else."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from harness.mutants.trying import Outcome
from harness.suite.tidy_checks import ROOT

pytestmark = pytest.mark.slow

PRODUCT = """
    class Tide:
        def __init__(self, height):
            self.height = height

        @property
        def is_high(self):
            return self.height >= 3

    def falls(heights):
        while heights and heights[-1] > 0:
            heights.pop()
        return heights
"""
ABOUT_HIGH = """
    from tides import Tide

    def test_a_tide_of_three_is_high():
        assert Tide(3).is_high

    def test_a_tide_of_two_is_not():
        assert not Tide(2).is_high
"""
ABOUT_FALLS = """
    from tides import falls

    def test_all_falls_until_it_is_low():
        assert falls([0, 1]) == [0]
        assert falls([1]) == []
"""


def outcomes(folder: Path, *tests: str, product: str = PRODUCT) -> dict[str, Outcome]:
    """Of each mutant of the product, by its words, which no two of them share."""
    (folder / "source").mkdir()
    (folder / "source/tides.py").write_text(dedent(product))
    for number, text in enumerate(tests):
        (folder / f"test_toy_{number}.py").write_text(dedent(text))
    ran = subprocess.run(
        [sys.executable, "-m", "harness.mutants.toy", str(folder)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    found = [msgspec.json.decode(line, type=Outcome) for line in lines]
    by_change = {one.change: one for one in found if one.change != "returns at once"}
    assert by_change
    return by_change


HIGHER = "`self.height >= 3` becomes `self.height > 3`"
LOWER = "`self.height >= 3` becomes `self.height < 3`"


def test_a_mutant_is_killed_by_the_test_that_fails_with_it(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ABOUT_HIGH)[HIGHER]
    assert found.killed_by == "test_toy_0.py::test_a_tide_of_three_is_high"
    assert found.failure.startswith("assert False")
    assert found.line == 8


def test_a_test_that_asserts_nothing_kills_nothing(tmp_path: Path) -> None:
    found = outcomes(
        tmp_path,
        """
        from tides import Tide

        def test_a_tide_is_high():
            Tide(3).is_high
        """,
    )
    assert found[HIGHER].killed_by == found[LOWER].killed_by == ""
    assert found[HIGHER].survived == 1


def test_a_function_without_tests_has_survivors(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ABOUT_FALLS)
    assert found[HIGHER].killed_by == ""


def test_a_mutant_without_an_end_is_killed(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ABOUT_FALLS)["`heights.pop()` is removed"]
    assert found.killed_by
    assert found.failure.endswith("takes far longer than usual")


def test_a_mutant_that_ends_the_process_is_killed(tmp_path: Path) -> None:
    found = outcomes(
        tmp_path,
        """
        from tides import ends

        def test_it_goes_on():
            ends(0)
        """,
        product="""
        import os

        def ends(code):
            if code:
                os._exit(code)
        """,
    )
    assert found["condition `code` is turned round"].killed_by


def test_a_test_that_fails_without_a_mutant_kills_none(tmp_path: Path) -> None:
    broken = """
        def test_that_fails_anyway():
            assert 1 == 2
    """
    found = outcomes(tmp_path, broken, ABOUT_HIGH)
    assert found[HIGHER].killed_by == "test_toy_1.py::test_a_tide_of_three_is_high"


def test_a_mutant_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ABOUT_HIGH, ABOUT_FALLS)
    killers = {one.function.partition(":")[2]: one.killed_by for one in found.values()}
    assert killers == {
        "Tide.__init__": "test_toy_0.py::test_a_tide_of_three_is_high",
        "Tide.is_high": "test_toy_0.py::test_a_tide_of_three_is_high",
        "falls": "test_toy_1.py::test_all_falls_until_it_is_low",
    }
