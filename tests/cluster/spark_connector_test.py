"""The programs of the page about Spark run as they stand, through the death of a broker."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import spark
from harness.cluster import Cluster
from harness.documents import blocks
from harness.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ADDRESS = "127.0.0.1:9092"
PAGE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def run(program: str, trio: Cluster) -> str:
    assert ADDRESS in program
    (trio.folder / "program.py").write_text(program.replace(ADDRESS, trio.bootstrap))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=trio.folder,
        env=spark.environment(),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_a_spark_job_produces_and_another_consumes(trio: Cluster) -> None:
    (trio.folder / "jars").symlink_to(spark.connector_jars())
    words = ("--partitions", "3", "--replication-factor", "3")
    trio.done("topic", "create", "tides", *words, "-c", "min.insync.replicas=2")
    produce, consume = (block.body for block in blocks(PAGE, "python"))
    run(produce, trio)
    os.kill(trio.broker_pid(0), signal.SIGKILL)
    assert run(consume, trio) == "1000 records, 1000 numbers\n"


def test_the_page_names_the_jars_that_are_tested() -> None:
    for group, artifact, version in spark.JARS:
        assert f"{group}:{artifact}:{version}" in PAGE
