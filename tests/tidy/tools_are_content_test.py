"""Formatter, linter, type checker, layers, dead code, dependencies, complexity, spelling."""

import pytest

from harness.suite import programs
from harness.suite.tidy_checks import CODE_ROOTS, PYTHON_ROOTS, ROOT, python_files

pytestmark = pytest.mark.timeout(300)


def passes(program: str, *arguments: str) -> None:
    done = programs.run(program, *arguments)
    assert done.returncode == 0, done.stdout


def test_the_code_is_formatted() -> None:
    passes("ruff", "format", "--check", *PYTHON_ROOTS)


def test_the_linter_has_nothing_to_say() -> None:
    passes("ruff", "check", *PYTHON_ROOTS)


def test_the_types_hold() -> None:
    passes("mypy")


def test_the_parts_form_layers_and_only_shells_do_io() -> None:
    passes("lint-imports", "--no-cache")


def test_no_code_is_dead() -> None:
    assert programs.dead_code(python_files()) == []


def test_dependencies_are_named_and_used() -> None:
    passes("deptry", *CODE_ROOTS)


def test_no_function_asks_too_much_of_its_reader() -> None:
    complaints = [
        complaint
        for path in python_files()
        for complaint in programs.complex_functions(
            str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        )
    ]
    assert complaints == []


def test_the_words_are_spelled_right() -> None:
    passes("codespell")
