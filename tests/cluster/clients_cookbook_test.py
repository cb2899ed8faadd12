"""Every program in the page about clients runs as it stands, but for the address of the broker."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.clients import built
from harness.clients.facts import DEADLINE_S, Running
from harness.suite.documents import blocks
from harness.suite.need import need
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a new machine downloads first

PAGE = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:9092"
PYTHON = [block.body for block in blocks(PAGE, "python")]


def _here(program: str, cluster: Running) -> str:
    assert ADDRESS in program
    return program.replace(ADDRESS, cluster.bootstrap)


def _run(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_the_python_programs_run(cluster: Running, tmp_path: Path, number: int) -> None:
    (tmp_path / "program.py").write_text(_here(PYTHON[number], cluster))
    output = _run([sys.executable, "-W", "ignore", "program.py"], tmp_path)
    assert "water" in output or "tide" in output


def test_the_go_program_runs(cluster: Running, tmp_path: Path) -> None:
    need("go")
    (program,) = blocks(PAGE, "go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(built.HERE / "franz" / name, tmp_path)
    (tmp_path / "main.go").write_text(_here(program.body, cluster))
    built.go_build(tmp_path, "program")
    assert _run(["./program"], tmp_path) == "0 neap tide\n"


def test_the_node_program_runs(cluster: Running, tmp_path: Path) -> None:
    need("node", "npm")
    (program,) = blocks(PAGE, "js")
    modules = Path(built.kafkajs()[1]).parent / "node_modules"
    (tmp_path / "program.cjs").write_text(_here(program.body, cluster))
    output = _run(["node", "program.cjs"], tmp_path, NODE_PATH=str(modules))
    assert "high: '1'" in output
    assert "0 high water" in output, "as a member of a group"
