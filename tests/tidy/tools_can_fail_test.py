"""Each off-the-shelf checker, with the project's own settings, finds a fault planted for it."""

import shutil
from pathlib import Path

import pytest

from harness.suite import programs
from harness.suite.tidy_checks import ROOT

UNUSED = '''"""A module."""


def first(values: list[int]) -> int:
    return values[0]
    return 1
'''
DEEP = """
def deep(rows):
    for row in rows:
        if row:
            for cell in row:
                if cell:
                    while cell:
                        if cell > 1:
                            cell -= 1
"""


def sample(folder: Path, text: str) -> Path:
    """A file beside the project's own settings."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    path = folder / "sample.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("command", "fault", "finding"),
    [
        ("ruff format --check", "x=1", "would be reformatted"),
        ("ruff check", "import unittest.mock", "TID251"),
        ("ruff check", "from . import other", "TID252"),
        ("ruff check", "import json", "F401"),
        ("ruff check", "def f(spare: int) -> int:\n    return 1", "ARG001"),
        ("codespell", "# rec" + "ieve", "==>"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, command: str, fault: str, finding: str) -> None:
    done = programs.run(*command.split(), sample(tmp_path, fault + "\n"), folder=tmp_path)
    assert done.returncode != 0
    assert finding in done.stdout


@pytest.mark.slow
def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    path = sample(tmp_path, '"""A module."""\n\nx: int = "one"\n')
    done = programs.run("mypy", path, folder=tmp_path)
    assert "[assignment]" in done.stdout


def test_dead_code_is_found(tmp_path: Path) -> None:
    path = sample(tmp_path, UNUSED)
    assert programs.dead_code([path]) == [f"{path}:6: unreachable code after 'return'"]


def test_a_deeply_nested_function_is_found() -> None:
    assert programs.complex_functions("a.py", DEEP) == ["a.py:2 deep: complexity 21"]


def test_an_unnamed_dependency_is_found(tmp_path: Path) -> None:
    sample(tmp_path, '"""A module."""\n\nimport requests\n')
    done = programs.run("deptry", ".", folder=tmp_path)
    assert "'requests' imported but missing" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("kernel/a.py", "import tidelog.wire", "parts form layers"),
        ("node/a.py", "import tidelog.clients", "parts form layers"),
        ("node/a.py", "import tidelog.coordinator", "parts form layers"),
        ("wire/a.py", "import socket", "io only in shells"),
        ("node/a.py", "import time", "io only in shells"),
    ],
)
def test_an_import_across_the_layers_is_found(
    tmp_path: Path, module: str, line: str, contract: str
) -> None:
    sample(tmp_path, '"""Nothing."""\n')
    for part in ("kernel", "wire", "clients", "node", "coordinator", "tools"):
        package = tmp_path / "tidelog" / part
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    (tmp_path / "tidelog" / module).write_text(line + "\n", encoding="utf-8")
    done = programs.run("lint-imports", "--no-cache", folder=tmp_path, python_path=[tmp_path])
    assert done.returncode != 0
    assert f"{contract} BROKEN" in done.stdout
