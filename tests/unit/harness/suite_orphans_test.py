"""A run that is ended, also by force, leaves no process behind."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from harness.suite.runs import run_apart
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BEGINS = """
import os, signal, subprocess, sys
from harness.suite.orphans import watch

watch(alone_s=0)
print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
{then}
"""


def ends(pid: int, within_s: float = 60.0) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)"])
def test_what_a_run_has_started_ends_after_it(then: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", BEGINS.format(then=then)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ends(int(run.stdout)), run.stderr


WAITS = """
import os, signal, subprocess
from pathlib import Path
import pytest

@pytest.fixture
def held():
    yield
    Path("stopped").touch()

def test_that_never_ends(held):
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
"""
SETTINGS = "[pytest]\naddopts = --import-mode=importlib -p no:asyncio\n"


def test_a_run_that_is_told_to_end_stops_what_its_fixtures_hold(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "waits_test.py").write_text(WAITS)
    ran = run_apart(tmp_path, "-p", "conftest", "-n", "1")
    assert ran.returncode == pytest.ExitCode.INTERRUPTED, ran.stdout
    assert (tmp_path / "stopped").exists()
