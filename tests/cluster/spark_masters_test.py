"""Where pipelines run: as a command here, on executors of their own, on a Spark cluster."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import Cluster, until
from harness.spark import setup as spark
from harness.spark.standalone import bare_python, environment, spark_home, standalone
from harness.suite.need import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 2_000
CONF = ("--conf", "spark.driver.memory=1g", "--conf", "spark.executor.memory=512m")


@pytest.fixture(scope="module", autouse=True)
def quick_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """A night has time to start JVMs as users do."""
    need("java")
    with pytest.MonkeyPatch.context() as patched:
        if not request.config.getoption("--nightly"):
            for name, value in spark.quick_start().items():
                patched.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """Written by a pipeline that was started as a command."""
    made = ["--topic", "of-masters", "--partitions", "2", "--rows", str(ROWS), "--keys", "10"]
    master = ["--master", "local[*]", "--tasks", "2"]
    done = cluster.command("pipeline", "produce", *made, *master, *CONF, timeout_s=300)
    assert done.code == 0, done.err[-4_000:]
    assert done.document["acknowledged"] == ROWS
    assert done.document["tasks"] == 2
    return "of-masters"


def check(told: dict[str, Any]) -> None:
    assert (told["records"], told["superseded"]) == (ROWS, ROWS - 10)


def test_a_command_runs_a_pipeline_and_gives_its_exit_code(cluster: Cluster, topic: str) -> None:
    done = cluster.command("pipeline", "compaction", "--topic", f"{topic}-not", timeout_s=300)
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[-1] == f"error: there is no topic '{topic}-not'"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_who_follows_ends_in_order_when_told_to(
    cluster: Cluster, topic: str, tmp_path: Path, end: signal.Signals, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts two JVMs: --nightly")
    words = ["--topics", topic, "--dest", str(tmp_path / "lake"), "--follow", *CONF]
    with cluster.open("pipeline", "export", *words) as process:
        done = tmp_path / "lake" / "_spark_metadata" / "0"
        until(done.exists, "the first micro-batch", 200)
        process.send_signal(end)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert json.loads(out)["rows"] == ROWS
    assert "Traceback" not in err


def test_executors_of_their_own_find_the_data_source(
    cluster: Cluster, topic: str, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts three JVMs: --nightly")
    master = ["--master", "local-cluster[2,1,1024]"]
    done = cluster.command(
        "pipeline", "compaction", "--topic", topic, *master, *CONF, timeout_s=500
    )
    assert done.code == 0, done.err[-4_000:]
    check(done.document)


def test_the_line_for_spark_submit_runs_on_a_cluster_of_spark(
    cluster: Cluster, topic: str, tmp_path: Path, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts six JVMs: --nightly")
    cluster.done("pipeline", "package", "--dest", str(tmp_path))
    python = bare_python(tmp_path)
    missing = subprocess.run([python, "-c", "import tidelog.spark"], check=False)
    assert missing.returncode != 0, "all it has of ours is what it is sent"
    with standalone(tmp_path, python) as master:
        words = ["--topic", topic, "--master", master, *CONF, "-b", cluster.bootstrap]
        line = cluster.done("pipeline", "compaction", *words, "--print-submit").out
        program, *rest = shlex.split(line)
        done = subprocess.run(
            [str(spark_home() / "bin" / program), *rest],
            cwd=tmp_path,
            env={**environment(python), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    check(json.loads(done.stdout.splitlines()[-1]))
