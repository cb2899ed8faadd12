"""Real Spark: what feeds an exactly-once sink fails, and each row is there once."""

from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.spark.failures import ROWS
from harness.spark.shared import SharedSpark

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOTHING, ALL = [0, 0], [ROWS, ROWS]


def test_what_is_committed_when_the_input_of_the_sink_fails(
    cluster: Cluster, shared_spark: SharedSpark, tmp_path: Path
) -> None:
    """One test: each kind of failure in a query of its own."""
    found = shared_spark.answers("failures", bootstrap=cluster.bootstrap, folder=str(tmp_path))
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
