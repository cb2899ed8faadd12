"""The house rules as functions: text in, complaints out. `tests/tidy` runs them over the tree."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[3]
CODE_ROOTS = ("node", "coordinator", "clients", "tools")
PYTHON_ROOTS = (*CODE_ROOTS, "tests", "bench")

TOP_FOLDERS = frozenset({*PYTHON_ROOTS, "docs"})
TOP_FILES = frozenset(
    {
        "pyproject.toml",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
    }
)
MADE_BY_TOOLS = frozenset({"dist", "build", "node_modules", "__pycache__"})
"""Named in .gitignore: never part of the project."""

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 800
COGNITIVE_COMPLEXITY_MAX = 12
DEAD_CODE_CONFIDENCE_MIN = 80

REAL_PROCESSES = (
    "tests/cluster/",
    "tests/harness/processes/cluster",
    "tests/harness/clients/steady_python",
    "tests/harness/faults/chaos",
    "tests/harness/faults/fuzz_cluster",
    "tests/harness/processes/group_soak",
    "tests/harness/processes/load",
    "tests/harness/processes/soak",
    "tests/harness/processes/stand_ins",
    "tests/harness/suite/orphans",
)
"""Where tests wait for processes, or are processes themselves: only there may anything sleep."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(root: Path = ROOT) -> list[Path]:
    """Every Python file of the project, in order."""
    return sorted(
        path for top in PYTHON_ROOTS for path in (root / top).rglob("*.py") if not _made(path, root)
    )


def text_files(root: Path = ROOT) -> list[Path]:
    """Every text file a person wrote: code, documents, scripts, settings."""
    tops = [top for top in root.iterdir() if not _made(top, root)]
    below = (path for top in tops for path in (top, *top.rglob("*")))
    return sorted(path for path in below if _is_written(path, root))


def code_folders(root: Path = ROOT) -> list[str]:
    """Dotted names of the packages that hold code, `tidelog.node.log` for one."""
    folders = {
        path.parent.relative_to(root / top)
        for top in CODE_ROOTS
        for path in (root / top).rglob("*.py")
        if path.name != "__init__.py"
    }
    return sorted(".".join(folder.parts) for folder in folders)


def folder_of(package: str, root: Path = ROOT) -> Path:
    """Where the code of a dotted package name lies."""
    parts = package.split(".")
    for top in CODE_ROOTS:
        folder = root.joinpath(top, *parts)
        if folder.is_dir():
            return folder
    raise AssertionError(f"{package} lies under none of {CODE_ROOTS}")


def top_level(names: list[str]) -> list[str]:
    """Entries of the top folder that the layout does not know, and those it misses."""
    seen = {name for name in names if not name.startswith(".")} - MADE_BY_TOOLS
    odd = [f"{name}: not a part of the layout" for name in sorted(seen - TOP_FOLDERS - TOP_FILES)]
    missing = [f"{name}: missing" for name in sorted((TOP_FOLDERS | TOP_FILES) - seen)]
    return odd + missing


def long_functions(name: str, source: str) -> list[str]:
    return [
        f"{name}:{node.lineno} {node.name}: {_lines(node)} lines, at most {FUNCTION_LINES_MAX}"
        for node in _nodes(source)
        if isinstance(node, Function) and _lines(node) > FUNCTION_LINES_MAX
    ]


def long_file(name: str, source: str) -> list[str]:
    lines = source.count("\n")
    return [f"{name}: {lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []


def missing_docstring(name: str, source: str) -> list[str]:
    docstring = ast.get_docstring(_module(source))
    return [] if docstring else [f"{name}: no module docstring"]


def sleeps(name: str, source: str) -> list[str]:
    """Calls of anything named sleep in tests that do not drive real processes."""
    if name.startswith(REAL_PROCESSES) or not name.startswith("tests/"):
        return []
    return [
        f"{name}:{call.lineno}: sleeps; wait for the thing itself"
        for call in _calls(source)
        if _called_name(call) == "sleep" and not _yields(call)
    ]


def mocks(name: str, source: str) -> list[str]:
    """Imports of mock libraries: fakes are ours, small, and tested."""
    return [
        f"{name}: imports {module}; use tests/harness"
        for node in _nodes(source)
        for module in _imported(node)
        if module == "mock" or module.startswith("unittest")
    ]


def tests_nobody_runs(name: str, source: str) -> list[str]:
    """What looks like a test, and where pytest would not look for it."""
    if not name.startswith("tests/"):
        return []
    if not name.endswith("_test.py"):
        return [
            f"{name}:{one.lineno}: {one.name} is in no file that is named *_test.py"
            for one in _module(source).body
            if _is_test(one)
        ]
    return [
        f"{name}:{one.lineno}: {one.name} is in a class that is not named Test*"
        for group in _nodes(source)
        if isinstance(group, ast.ClassDef) and not group.name.startswith("Test")
        for one in group.body
        if _is_test(one)
    ]


_MARKER = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK)\b")


def unowned_markers(name: str, text: str) -> list[str]:
    """To-dos that name no issue."""
    return [
        f"{name}:{number}: a to-do must name its issue, as in #12"
        for number, line in enumerate(text.splitlines(), 1)
        if _MARKER.search(line) and not re.search(r"#\d+", line)
    ]


_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<rest>.*)")
_NOQA = re.compile(r"#\s*(?:ruff:\s*)?noqa(?P<rest>.*)", re.IGNORECASE)
_REASONED_IGNORE = re.compile(r"\[[\w-]+(?:,\s*[\w-]+)*\]\s+#\s*\S+")
_CODES = r":\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*"
_CODED_NOQA = re.compile(_CODES)
_REASONED_NOQA = re.compile(_CODES + r"\s+--\s*\S+")


def bare_suppressions(name: str, source: str) -> list[str]:
    """Silenced findings that do not say which and why.

    For a noqa, the reason may be a comment on the line above.
    """
    found, above = [], ""
    for number, line in enumerate(source.splitlines(), 1):
        ignore, noqa = _IGNORE.search(line), _NOQA.search(line)
        if ignore and not _REASONED_IGNORE.match(ignore["rest"]):
            found.append(f"{name}:{number}: write `type: ignore[code]  # why`")
        reasoned = _CODED_NOQA if above.lstrip().startswith("#") else _REASONED_NOQA
        if noqa and not reasoned.match(noqa["rest"]):
            found.append(f"{name}:{number}: write `noqa: CODE -- why`")
        above = line
    return found


_MACHINE = re.compile(
    r"(?<![\w.$}])/(?:home|root|work|Users)/\w"
    r"|https?://[\w.-]*(?:pypi|crates|maven|npm|golang|debian)"
)


def machine_names(name: str, text: str) -> list[str]:
    """Paths of one machine and hosts of package registries: true for nobody else."""
    return [
        f"{name}:{number}: names a machine's path or a registry's host"
        for number, line in enumerate(text.splitlines(), 1)
        if _MACHINE.search(line)
    ]


def _made(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    hidden = any(part.startswith(".") and part not in {".ci", ".gitignore"} for part in parts)
    return hidden or bool(MADE_BY_TOOLS & set(parts)) or path.suffix == ".pyc"


def _is_written(path: Path, root: Path) -> bool:
    if _made(path, root) or not path.is_file() or path.name == "LICENSE":
        return False
    return b"\0" not in path.read_bytes()[:8192]


def _is_test(node: ast.AST) -> TypeGuard[Function]:
    return isinstance(node, Function) and node.name.startswith("test_")


def _lines(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _calls(source: str) -> Iterator[ast.Call]:
    return (node for node in _nodes(source) if isinstance(node, ast.Call))


@lru_cache(maxsize=1)
def _nodes(source: str) -> list[ast.AST]:
    """The module and all below it; one check after the other asks for those of the same file."""
    return [*ast.walk(ast.parse(source))]


def _module(source: str) -> ast.Module:
    module = _nodes(source)[0]
    assert isinstance(module, ast.Module)
    return module


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return str(name)
        case _:
            return ""


def _yields(call: ast.Call) -> bool:
    """A sleep of 0 lets others run; it waits for nothing."""
    match call.args:
        case [ast.Constant(value=0)]:
            return True
        case _:
            return False


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case _:
            return []
