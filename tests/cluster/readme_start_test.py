"""The README's first line starts a cluster from nothing but the sources and a Python."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import IO

import pytest

from harness.suite.need import need
from harness.suite.tidy_checks import ROOT
from harness.suite.tools_cache import clock_stopped

pytestmark = pytest.mark.slow

LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv", ".tools-cache", ".*_cache", "__pycache__"),
    *(".hypothesis", ".second-try.txt", ".mutants.jsonl"),  # other runs write them
)
STARTS_WITHIN_S = 900
"""It downloads what it installs."""
ENDS_WITHIN_S = 30


def start_command() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- command: start -->\n```sh\n(.+)\n```", readme)
    assert found is not None
    return found[1]


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def lines_of(said: IO[str], count: int) -> list[str]:
    """The first ones; fewer if they do not come in time."""
    found: list[str] = []
    reading = threading.Thread(
        target=lambda: found.extend(said.readline() for _ in range(count)), daemon=True
    )
    reading.start()
    reading.join(STARTS_WITHIN_S)
    assert len(found) == count, f"nothing within {STARTS_WITHIN_S} s"
    return found


def test_one_line_installs_and_starts_a_cluster_that_ctrl_c_ends(tmp_path: Path) -> None:
    need("python3.11")
    clone = tmp_path / "tidelog"
    shutil.copytree(ROOT, clone, ignore=LEFT_OUT)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TIDELOG_", "PYTHONPATH"))}
    with subprocess.Popen(
        ["bash", "-c", f"{start_command()} --base-port 0"],
        cwd=clone,
        env=kept,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            assert started.stdout is not None
            with clock_stopped():
                lines = lines_of(started.stdout, 2)
            assert re.match(r"cluster 'default': 3 brokers, up in [\d.]+ s", lines[0]), lines
            addresses = lines[1].removeprefix("bootstrap: ").strip().split(",")
            assert len(addresses) == 3
            assert all(map(is_listening, addresses))
            os.killpg(started.pid, signal.SIGINT)
            started.communicate(timeout=ENDS_WITHIN_S)
            assert not any(map(is_listening, addresses))
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
