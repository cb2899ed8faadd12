"""What the suite is known to find stays found: planted faults and named scenarios keep their tests.

`tests/plants.json` has the faults that are planted in the machines, with the seeds that find them.
`tests/scenarios.json` has the named scenarios, and the faults that are planted in real processes or
in the checks themselves.
"""

import json

import pytest

from harness.faults.planting import recorded, unknown_tests
from harness.suite.tidy_checks import ROOT

TESTS = ROOT / "tests"


def test_each_recorded_fault_has_its_test() -> None:
    known = [f"{file}::{test}" for file, tests in recorded().items() for test in tests]
    assert unknown_tests(known, TESTS) == []


def test_each_named_scenario_has_its_tests() -> None:
    scenarios = json.loads((TESTS / "scenarios.json").read_text(encoding="utf-8"))
    known = [one for tests in scenarios.values() for one in tests]
    assert unknown_tests(known, TESTS) == []
    assert {f"5.{number}" for number in range(1, 22)} <= scenarios.keys()


def test_no_fault_is_recorded_that_nothing_plants_any_more(
    request: pytest.FixtureRequest,
) -> None:
    """Whole files that this run has collected are compared with the table."""
    options = request.config.option
    if options.keyword or options.markexpr:
        pytest.skip("only some of the tests were collected")
    planting: dict[str, set[str]] = {}
    for item in request.session.items:
        if "planting" in getattr(item, "fixturenames", ()):
            planting.setdefault(item.path.name, set()).add(item.name)
    rows = {file: set(tests) for file, tests in recorded().items() if file in planting}
    assert rows == planting, "remove the rows of tests that are gone from tests/plants.json"
