"""docs/how-to.md says what really happens: each of its console blocks is run, in order."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster, until_heard
from harness.processes.commands import words_of_shell
from harness.processes.golden import difference, masked
from harness.suite import documents
from harness.suite.tidy_checks import ROOT
from tidelog.tools.supervisor.folder import run_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "how-to.md"
HERE = "/srv/harbour"
"""The folder, as the page tells it."""
ADDRESS = "127.0.0.1:9092"
"""The cluster's, as the page tells it."""
CHANGES = (
    (r"\b\d{13}\b", "MS"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r'(_id": ?")[\w-]{22}', r"\1ID"),
    (r"\b[0-9a-f]{8}$", "CRC"),
    (r"\bup in \S+ s", "up in N s"),
    (r"\bbroker_epoch=\d+", "broker_epoch=N"),
    # Whose block of producer ids came first differs: the brokers' or the transaction coordinator's.
    (r"\b\d+/0 from 0\b", "ID/0 from 0"),
    (r"\b(\d+ batch(?:es)?), \S+ K?i?B\b", r"\1, SIZE"),
    (r"[ ─]*$", ""),
)


def comparable(text: str) -> str:
    """Without what is another in each run: ports, pids, times, ids, the width of columns."""
    text = masked(text)
    for pattern, name in CHANGES:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return in_any_order(re.sub(r"(?<=\S) +", " ", text))


def in_any_order(text: str) -> str:
    """Of events that stand together: two processes write theirs within the same millisecond."""
    lines = text.splitlines(keepends=True)
    groups = itertools.groupby(lines, key=lambda line: line.startswith("TIME "))
    return "".join(
        line for is_event, some in groups for line in (sorted(some) if is_event else some)
    )


def spoken(body: str) -> Iterator[tuple[str, str]]:
    """Of a console block: what was typed, with its continued lines, and what was printed."""
    for part in re.split(r"(?m)^\$ ", body)[1:]:
        lines = part.splitlines(keepends=True)
        end = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), None)
        typed = lines[:1] + [line.removeprefix("> ") for line in lines[1:end]]
        yield "".join(typed), "".join(lines[end:] if end else [])


def printed(cluster: Cluster, program: str, typed: str) -> str:
    """On a terminal's two streams at once, as a person reads them, who types no faster than the
    brokers hear of what was done before."""
    for data in cluster.folder.glob(".tidelog/*"):
        if (running := run_in(data)) is not None:
            until_heard(running)
    run = run_in(cluster.data)
    typed = typed if run is None else typed.replace(ADDRESS, run.bootstrap)
    environment = cluster.variables()
    python = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", f'exec 2>&1; tidelog() {{ {program} "$@"; }}; {typed}'],
        cwd=cluster.folder,
        env={**environment, "PATH": os.pathsep.join((python, environment["PATH"]))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    text = done.stdout.replace(str(cluster.folder), HERE)
    for port in set(re.findall(r"127\.0\.0\.1:(\d+)", text)):
        text = text.replace(f"127.0.0.1:{port}", ADDRESS)
        text = text.replace(f" {port} ", f" {9092:{len(port)}} ")
    return text


def test_every_line_of_the_how_to_prints_what_the_page_says(
    tmp_path: Path, pytestconfig: pytest.Config, *, nightly: bool
) -> None:
    """By night Python is started for each `tidelog`, as a person's shell does it."""
    page = PAGE.read_text(encoding="utf-8")
    folder = tmp_path.resolve() / "harbour"
    folder.mkdir()
    cluster = Cluster(folder, environment={"TIDELOG_BASE_PORT": "0"})
    program = words_of_shell(as_programs=nightly)
    said, found = [], []
    try:
        for block in documents.blocks(page, "console"):
            said.append(block.body)
            talk = (
                (typed.rstrip("\n").replace("\n", "\n> "), printed(cluster, program, typed))
                for typed, _ in spoken(block.body)
            )
            found.append("".join(f"$ {typed}\n{shown}" for typed, shown in talk))
    finally:
        if cluster.pids():
            cluster.stop("--force")
    if pytestconfig.getoption("--golden") == "write":
        for old, new in zip(said, found, strict=True):
            page = page.replace(old, new, 1)
        PAGE.write_text(page, encoding="utf-8")
        said = found
    wanted, got = ([comparable(text) for text in texts] for texts in (said, found))
    assert got == wanted, difference("".join(wanted), "".join(got))


def test_a_wrong_output_is_noticed() -> None:
    assert comparable("up in 0.31 s") == comparable("up in 1.2 s")
    assert comparable("a  1   (pid 17)") == comparable("a 1 (pid 4711)")
    assert comparable("created orders: partitions 6") != comparable("created orders: partitions 5")
    assert comparable("error: no") != comparable("error: none")


def test_a_block_is_what_was_typed_and_what_came() -> None:
    body = "$ cat > x <<END\n> a\n> END\n$ ls\nx\n\ny\n$ true\n"
    assert list(spoken(body)) == [
        ("cat > x <<END\na\nEND\n", ""),
        ("ls\n", "x\n\ny\n"),
        ("true\n", ""),
    ]
