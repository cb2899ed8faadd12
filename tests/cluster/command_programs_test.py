"""Every command is run at least once as a shell runs it: by a start of Python for it alone.

The commands of docs/how-to.md are, by the test of that page. Here are those that the page does not
have. Tests with `pipeline` always start programs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.processes.command_tree import Path as Words
from harness.processes.command_tree import leaves
from harness.processes.commands import ALWAYS_PROGRAMS, PROGRAMS, VARIABLE
from harness.processes.golden import spoken
from harness.processes.spoken import heard
from harness.suite import documents
from harness.suite.tidy_checks import ROOT
from tidelog.tools import cli

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to.md"
LEAVES = set(leaves(cli.cli))
LINES = (
    "topic create kept -r 2",
    "topic create lost",
    "topic delete lost --yes",
    "partition reassign cancel",
    "broker pause 1",
    "broker resume 1",
    "broker stop 1",
    "broker start 1",
    "wait isr kept",
    "broker restart 0",
    "wait isr kept",
    "coordinator pause",
    "coordinator resume",
    "coordinator kill",
    "txn-coordinator pause",
    "txn-coordinator resume",
    "txn-coordinator kill",
    "wait ready",
    "chaos io-error 0 --on fsync --file snapshot --for 1h",
    "chaos slow-disk 1 --delay 1ms --file snapshot --for 1h",
    "chaos status",
    "chaos heal",
    "completion bash",
    "cluster list",
    "logs supervisor -n 1",
    "metrics",
    "timeline kept:0",
)
OTHER_EACH_TIME = ("cluster list", "logs", "metrics", "timeline")
"""They tell of the whole machine, of times and of sizes."""


def commands_in(words: str) -> Iterator[Words]:
    """The commands of a line, however many it has."""
    for said in re.findall(r"\btidelog ((?:[a-z][a-z-]* ?)+)", words):
        split = tuple(said.split())
        yield from (split[:length] for length in (3, 2, 1) if split[:length] in LEAVES)


def typed(page: str) -> str:
    """The lines of a page's console blocks that a person types."""
    bodies = "".join(block.body for block in documents.blocks(page, "console"))
    return "\n".join(line for line in bodies.splitlines() if line.startswith(("$ ", "> ")))


def test_every_command_is_run_as_a_program() -> None:
    page = typed(PAGE.read_text(encoding="utf-8"))
    run = {*commands_in(page), *(one for line in LINES for one in commands_in(f"tidelog {line}"))}
    left = {path for path in LEAVES - run if path[0] not in ALWAYS_PROGRAMS}
    assert left == set(), "add a line for each of these"


def said(cluster: Cluster, line: str) -> str:
    """What a command prints, but for what is another each time; and its exit code."""
    finished = heard(cluster, *line.split())
    if line.startswith(OTHER_EACH_TIME):
        assert finished.out, line
        return f"{line}: {finished.code} {finished.err}"
    return spoken([line], finished, cluster.folder)


def test_a_program_and_a_served_command_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for how in (PROGRAMS, ""):
        monkeypatch.setenv(VARIABLE, how)
        with Cluster(tmp_path / f"by-{how}", brokers=2) as cluster:
            texts.append("".join(said(cluster, line) for line in LINES))
    programs, served = texts
    assert served == programs
    assert re.findall(r"(?m)^exit [^0]", served) == []


@pytest.mark.timeout(7200)
def test_golden_texts_are_the_same_from_programs(*, nightly: bool) -> None:
    """In each run the same texts are compared with what the command server runs."""
    if not nightly:
        pytest.skip("with --nightly every golden text is made by programs, too")
    files = [
        str(path)
        for path in sorted((ROOT / "tests" / "cluster").glob("*_test.py"))
        if "golden: Golden" in path.read_text(encoding="utf-8")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *files],
        cwd=ROOT,
        env={**os.environ, VARIABLE: PROGRAMS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
