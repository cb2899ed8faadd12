"""Runs the checkers that are programs, and those whose library gives finer answers."""

import os
import subprocess
import sys
from pathlib import Path

import complexipy
import vulture

from harness.suite.tidy_checks import (
    CODE_ROOTS,
    COGNITIVE_COMPLEXITY_MAX,
    DEAD_CODE_CONFIDENCE_MIN,
    ROOT,
)


def run(
    program: str, *arguments: str | Path, folder: Path = ROOT, python_path: list[Path] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of this virtual environment; both outputs as one text."""
    roots = python_path if python_path is not None else [ROOT / top for top in CODE_ROOTS]
    return subprocess.run(
        [Path(sys.executable).parent / program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots)), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def dead_code(paths: list[Path]) -> list[str]:
    """What vulture is sure nobody uses.

    But for parameters and imports: the linter's ARG and F401 find those, and know that stubs and
    overrides only fill in a signature, and that an annotation in quotes uses its import.
    """
    finder = vulture.Vulture()
    finder.scavenge([str(path) for path in paths])
    return [
        f"{item.filename}:{item.first_lineno}: {item.message}"
        for item in finder.get_unused_code(min_confidence=DEAD_CODE_CONFIDENCE_MIN)
        if item.typ not in {"variable", "import"}
    ]


def complex_functions(name: str, source: str) -> list[str]:
    """Functions whose cognitive complexity is above the limit."""
    return [
        f"{name}:{function.line_start} {function.name}: complexity {function.complexity}"
        for function in complexipy.code_complexity(source).functions
        if function.complexity > COGNITIVE_COMPLEXITY_MAX
    ]
