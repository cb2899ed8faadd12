"""The programs of the page about Spark run as they stand, one after the other in one session."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.spark import setup as spark
from harness.suite.documents import blocks
from harness.suite.need import need
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ADDRESS = "127.0.0.1:9092"
PAGE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
MIGRATION = (ROOT / "docs/spark-migration.md").read_text(encoding="utf-8")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def test_the_page_s_programs_do_what_it_says(trio: Cluster) -> None:
    need("java")
    program = "\n".join(block.body for block in blocks(PAGE, "python"))
    assert program.count(ADDRESS) == 1
    (trio.folder / "program.py").write_text(program.replace(ADDRESS, trio.bootstrap))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=trio.folder,
        env=spark.environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout.splitlines() == [
        "1000 rows, 1 partition",
        "1000 copies, 1000 different",
    ]
    shown = trio.done("group", "describe", "tide-copies", "--json").document["offsets"]
    assert [(row["topic"], row["lag"]) for row in shown] == [("tides", 0)]


def test_the_page_names_the_jars_that_are_tested() -> None:
    for group, artifact, version in spark.JARS:
        assert f"{group}:{artifact}:{version}" in MIGRATION
