"""The audit can fail: a seam that lies about its syncs is found out by the trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.disks.ledger_audit import differences
from harness.disks.recorded_disk import OWNER
from harness.disks.trace_replay import TRACED, Replay
from harness.disks.traced import need_strace
from harness.faults.disk_plants import SEAM
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from tidelog.node.ipc.ledger_memory import read_ledger, remove_ledger
from tidelog.tools.chaos.survey import recorded, survey

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plant", ["", *SEAM])
def test_a_seam_that_lies_is_found_out(tmp_path: Path, plant: str) -> None:
    need_strace(tmp_path)
    run_id, folder, trace = os.urandom(4).hex(), tmp_path / "disk", tmp_path / "trace"
    roots = [str(ROOT / top) for top in (*PYTHON_ROOTS, "tests")]
    program = [sys.executable, "-m", "harness.disks.disk_under_trace", str(folder), run_id, plant]
    options = ["-f", "-y", "-q", "-s", "0", "-e", f"trace={TRACED}", "-o", str(trace)]
    try:
        subprocess.run(
            ["strace", *options, *program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
            check=False,
        )
        found = survey(recorded([read_ledger(run_id, OWNER)]), [str(folder / "log0")])
    finally:
        remove_ledger(run_id, OWNER)
    replay = Replay(str(folder))
    replay.feed(trace.read_text().splitlines())
    assert bool(differences(replay, found)) == bool(plant), differences(replay, found)
