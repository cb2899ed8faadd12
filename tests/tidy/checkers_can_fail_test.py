"""Each house rule finds the fault it is there for, and lets the right thing pass."""

import pytest

from harness.suite import tidy_checks

LONG = "def f() -> None:\n" + "    pass\n" * tidy_checks.FUNCTION_LINES_MAX
FITS = "def f() -> None:\n" + "    pass\n" * (tidy_checks.FUNCTION_LINES_MAX - 1)


def test_a_function_of_61_lines_is_too_long() -> None:
    assert tidy_checks.long_functions("a.py", LONG) == ["a.py:1 f: 61 lines, at most 60"]
    assert tidy_checks.long_functions("a.py", FITS) == []


def test_a_file_of_801_lines_is_too_long() -> None:
    assert tidy_checks.long_file("node/a.py", "\n" * 801) == ["node/a.py: 801 lines, at most 800"]
    assert tidy_checks.long_file("node/a.py", "\n" * 800) == []


def test_a_comment_is_no_docstring() -> None:
    assert tidy_checks.missing_docstring("a.py", "# why\nx = 1\n") == ["a.py: no module docstring"]
    assert tidy_checks.missing_docstring("a.py", '"""Why."""\nx = 1\n') == []


@pytest.mark.parametrize(
    "source", ["time.sleep(1)", "sleep(0.1)", "async def f():\n    await asyncio.sleep(1)"]
)
def test_a_sleep_is_found_but_where_processes_are_awaited(source: str) -> None:
    assert tidy_checks.sleeps("tests/unit/test_a.py", source) != []
    assert tidy_checks.sleeps("tests/cluster/test_a.py", source) == []


def test_letting_others_run_is_no_sleep() -> None:
    assert tidy_checks.sleeps("tests/unit/test_a.py", "async def f():\n    await sleep(0)") == []


TEST = "def test_a():\n    pass\n"
GROUP = "class {}:\n    def test_a(self):\n        pass\n"


def test_a_test_that_pytest_would_not_find_is_found() -> None:
    assert tidy_checks.tests_nobody_runs("tests/unit/a_tests.py", TEST) == [
        "tests/unit/a_tests.py:1: test_a is in no file that is named *_test.py"
    ]
    assert tidy_checks.tests_nobody_runs("tests/unit/a_test.py", GROUP.format("Group")) == [
        "tests/unit/a_test.py:2: test_a is in a class that is not named Test*"
    ]
    assert tidy_checks.tests_nobody_runs("tests/unit/a_test.py", TEST) == []
    assert tidy_checks.tests_nobody_runs("tests/unit/a_test.py", GROUP.format("TestA")) == []


@pytest.mark.parametrize(
    "source", ["import unittest.mock", "from unittest import mock", "from mock import patch"]
)
def test_a_mock_library_is_found(source: str) -> None:
    assert tidy_checks.mocks("tests/unit/test_a.py", source) != []


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"])
def test_a_to_do_needs_an_issue(word: str) -> None:
    assert tidy_checks.unowned_markers("a.md", f"fine\n# {word}: later") == [
        "a.md:2: a to-do must name its issue, as in #12"
    ]
    assert tidy_checks.unowned_markers("a.md", f"# {word} #12: later") == []


@pytest.mark.parametrize(
    "comment",
    [
        "type: ignore",
        "type: ignore[arg-type]",
        "type: ignore  # because",
        "noqa",
        "noqa: S101",
        "noqa -- because",
        "ruff: noqa",
    ],
)
def test_a_silenced_finding_needs_its_code_and_its_reason(comment: str) -> None:
    assert tidy_checks.bare_suppressions("a.py", f"x = 1  # {comment}") != []


@pytest.mark.parametrize(
    "comment", ["type: ignore[arg-type]  # kio wants an int", "noqa: S101, E501 -- a table"]
)
def test_a_reasoned_suppression_passes(comment: str) -> None:
    assert tidy_checks.bare_suppressions("a.py", f"x = 1  # {comment}") == []


def test_the_reason_may_stand_above_but_the_code_must_stand_in_place() -> None:
    bare = "# ruff: " + "noqa"
    coded = bare + ": PTH103"
    assert tidy_checks.bare_suppressions("a.py", f"# Faster so:\n{coded}") == []
    assert tidy_checks.bare_suppressions("a.py", f"x = 1\n{coded}") != []
    assert tidy_checks.bare_suppressions("a.py", f"# Faster so:\n{bare}") != []


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "home/ann/notes",
        "PATH=/" + "root/bin",
        "https:/" + "/files.py" + "pi.example/simple",
        "https:/" + "/repo1.ma" + "ven.example/x",
    ],
)
def test_a_machine_path_or_registry_host_is_found(text: str) -> None:
    assert tidy_checks.machine_names("a.md", text) != []


@pytest.mark.parametrize("text", ["$HOME/x", "./work/x", "https://kafka.apache.org/x"])
def test_paths_and_hosts_that_are_true_for_everyone_pass(text: str) -> None:
    assert tidy_checks.machine_names("a.md", text) == []


def test_an_odd_or_missing_top_entry_is_found() -> None:
    right = sorted(tidy_checks.TOP_FOLDERS | tidy_checks.TOP_FILES)
    assert tidy_checks.top_level([*right, ".gitignore", "dist"]) == []
    assert tidy_checks.top_level([*right, "src"]) == ["src: not a part of the layout"]
    assert tidy_checks.top_level([name for name in right if name != "bench"]) == ["bench: missing"]
