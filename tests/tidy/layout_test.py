"""The tree as ARCHITECTURE.md and the README tell it: folders, documents, links, commands."""

import ast
import re
import shlex
import subprocess
import tomllib
from typing import Any

import pytest

from harness.suite import documents, tidy_checks
from harness.suite.tidy_checks import ROOT, code_folders, folder_of, text_files
from tidelog.clients.settings import SOFTWARE_VERSION

README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = settings["project"]
    return found


def test_the_top_holds_the_agreed_entries_and_nothing_else() -> None:
    assert tidy_checks.top_level([path.name for path in ROOT.iterdir()]) == []


def test_the_package_is_a_namespace_in_every_source_root() -> None:
    assert [str(path) for path in ROOT.glob("*/tidelog/__init__.py")] == []


@pytest.mark.parametrize("package", code_folders())
def test_architecture_names_the_folder(package: str) -> None:
    assert f"`{package}`" in ARCHITECTURE


@pytest.mark.parametrize("package", code_folders())
def test_the_folder_says_what_it_is(package: str) -> None:
    """A source root's README speaks for the package of its own name."""
    root = ROOT / package.removeprefix("tidelog.")
    folder = root if root.parent == ROOT and root.is_dir() else folder_of(package)
    assert (folder / "README.md").is_file()


@pytest.mark.parametrize("top", sorted(tidy_checks.TOP_FOLDERS))
def test_the_top_folder_says_what_it_is(top: str) -> None:
    assert (ROOT / top / "README.md").is_file()


def test_links_between_documents_lead_somewhere() -> None:
    pages = [path for path in text_files() if path.suffix == ".md"]
    assert [broken for page in pages for broken in documents.broken_links(page)] == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    decisions = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    assert [name for name in decisions if f"decisions/{name}" not in index] == []
    assert [name[:4] for name in decisions] == [f"{n:04}" for n in range(1, len(decisions) + 1)]


def test_what_clients_say_of_themselves_is_the_version() -> None:
    assert project()["version"] == SOFTWARE_VERSION


def test_each_run_time_dependency_is_explained() -> None:
    page = (ROOT / "docs/decisions/0001-run-time-dependencies.md").read_text(encoding="utf-8")
    names = [re.split(r"\W*[<>=]", line)[0] for line in project()["dependencies"]]
    assert [name for name in names if f"\n| {name} |" not in page] == []


@pytest.mark.parametrize("name", ["start", "test"])
def test_the_readme_has_the_command_on_one_line(name: str) -> None:
    words = shlex.split(documents.marked(README, name))
    assert words[:4] == ["python3.11", "-m", "venv", ".venv"]


def test_ci_runs_the_readme_s_test_command_and_has_none_of_its_own() -> None:
    """The script asks the README; the word pytest would be a second truth."""
    assert "<!-- command: test -->" in CI
    assert "pytest" not in CI


def test_ci_s_way_of_reading_the_readme_finds_the_test_command() -> None:
    shown = subprocess.run(
        [ROOT / ".ci/run", "--show"], check=True, capture_output=True, text=True
    ).stdout
    assert shown.strip() == documents.marked(README, "test")


def test_shell_blocks_of_the_readme_parse() -> None:
    found = documents.blocks(README, "sh")
    assert found
    for block in found:
        subprocess.run(["bash", "-n"], input=block.body, text=True, check=True)


def test_python_blocks_of_the_readme_parse() -> None:
    found = documents.blocks(README, "python")
    assert found
    for block in found:
        ast.parse(block.body)
