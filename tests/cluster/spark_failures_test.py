"""Real Spark, one session: what feeds an exactly-once sink fails, and each row is there once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import Cluster
from harness.spark import setup as spark
from harness.spark.failures import GATE, ROWS
from harness.suite.need import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOTHING, ALL = [0, 0], [ROWS, ROWS]


def run(cluster: Cluster, folder: Path) -> dict[str, Any]:
    need("java")
    asked = json.dumps({"bootstrap": cluster.bootstrap, "folder": str(folder)})
    told = {**spark.kept_in(folder), GATE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "harness.spark.failures", asked],
        env={**spark.environment(), **told},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    (folder / "stderr").write_text(done.stderr)
    assert done.returncode == 0, done.stderr[-6_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_is_committed_when_the_input_of_the_sink_fails(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One test, for one session: each kind of failure in a query of its own."""
    found = run(cluster, tmp_path)
    for kind in ("udf", "innocent", "sql"):
        assert found[kind]["said"], kind
        assert (kind, found[kind]["failed"]) == (kind, NOTHING)
        assert (kind, found[kind]["again"], found[kind]["done"]) == (kind, "", ALL)
    for kind in ("retried", "worker"):
        assert (kind, found[kind]["said"], found[kind]["failed"]) == (kind, "", ALL)
        assert (kind, found[kind]["done"]) == (kind, ALL)
    assert all(found[kind]["plan"] for kind in ("udf", "innocent", "sql", "retried", "worker"))
    late = found["late"]
    assert "a row that the function cannot take" in late["said"]
    assert (late["open"], late["again"], late["done"]) == ([False, False], "", ALL)
    assert found["stopped"] == {"failed": NOTHING, "again": "", "done": ALL}
    job = found["job"]
    assert job["said"]
    assert (job["failed"], job["again"], job["done"]) == (NOTHING, ["", ""], ALL)
    assert "give other rows another tidelog.job.id" in job["other"]
    assert found["foreach batch"] == {"said": "", "batches": 3, "done": ALL}
