"""Runs the checkers that are programs, and those whose library gives finer answers."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import complexipy
import vulture

from harness.tidy_checks import (
    CODE_ROOTS,
    COGNITIVE_COMPLEXITY_MAX,
    DEAD_CODE_CONFIDENCE_MIN,
    ROOT,
    Function,
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
    """What vulture is sure nobody uses, but for the parameters of stubs, which only name."""
    finder = vulture.Vulture()
    finder.scavenge([str(path) for path in paths])
    stubs = {path: _stub_lines(path) for path in paths}
    return [
        f"{item.filename}:{item.first_lineno}: {item.message}"
        for item in finder.get_unused_code(min_confidence=DEAD_CODE_CONFIDENCE_MIN)
        if item.first_lineno not in stubs[Path(item.filename)]
    ]


def complex_functions(name: str, source: str) -> list[str]:
    """Functions whose cognitive complexity is above the limit."""
    return [
        f"{name}:{function.line_start} {function.name}: complexity {function.complexity}"
        for function in complexipy.code_complexity(source).functions
        if function.complexity > COGNITIVE_COMPLEXITY_MAX
    ]


def _stub_lines(path: Path) -> set[int]:
    """Lines of functions that have no body: the methods of protocols and overloads."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    stubs = (node for node in ast.walk(tree) if isinstance(node, Function) and _is_stub(node))
    return {line for stub in stubs for line in range(stub.lineno, _end(stub) + 1)}


def _is_stub(function: Function) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Expr) and getattr(last.value, "value", None) is ...


def _end(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno
