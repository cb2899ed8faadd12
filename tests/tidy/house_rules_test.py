"""What no off-the-shelf checker knows: lengths, docstrings, sleeps, mocks, silenced findings."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.suite import tidy_checks
from harness.suite.tidy_checks import ROOT, python_files, text_files

Check = Callable[[str, str], list[str]]

CODE_CHECKS: list[Check] = [
    tidy_checks.bare_suppressions,
    tidy_checks.long_file,
    tidy_checks.long_functions,
    tidy_checks.missing_docstring,
    tidy_checks.mocks,
    tidy_checks.sleeps,
    tidy_checks.tests_nobody_runs,
]
TEXT_CHECKS: list[Check] = [tidy_checks.machine_names, tidy_checks.unowned_markers]


def test_the_rules_see_the_tree() -> None:
    """Of no files nothing could be complained."""
    this = Path(__file__).resolve()
    assert {this, ROOT / "tests/conftest.py"} <= {*python_files()} < {*text_files()}
    assert {ROOT / "README.md", ROOT / ".ci/run"} <= {*text_files()}


def name_of(check: Check) -> str:
    return check.__name__


@pytest.fixture(scope="module")
def complaints() -> dict[Check, list[str]]:
    """File after file, so that each is parsed once for all checks."""
    found: dict[Check, list[str]] = {check: [] for check in CODE_CHECKS}
    for path in python_files():
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for check in CODE_CHECKS:
            found[check] += check(name, text)
    return found


@pytest.mark.parametrize("check", CODE_CHECKS, ids=name_of)
def test_the_code_keeps_the_rule(check: Check, complaints: dict[Check, list[str]]) -> None:
    assert complaints[check] == []


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=name_of)
def test_every_text_keeps_the_rule(check: Check) -> None:
    complaints = [
        complaint
        for path in text_files()
        for complaint in check(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert complaints == []


def test_test_files_have_names_of_their_own() -> None:
    """Tests are not packages: two files of one name would be one module."""
    tests = (ROOT / "tests").rglob
    names = sorted(path.name for path in (*tests("test_*.py"), *tests("*_test.py")))
    assert [name for name in set(names) if names.count(name) > 1] == []
