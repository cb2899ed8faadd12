"""The programs of the page about Spark run as they stand, one after the other in one session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.spark import setup as spark
from harness.spark.shared import SharedSpark
from harness.suite.documents import blocks
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ADDRESS = "127.0.0.1:9092"
PAGE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
MIGRATION = (ROOT / "docs/spark-migration.md").read_text(encoding="utf-8")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def test_the_page_s_programs_do_what_it_says(trio: Cluster, shared_spark: SharedSpark) -> None:
    program = "\n".join(block.body for block in blocks(PAGE, "python"))
    assert program.count(ADDRESS) == 1
    path = trio.folder / "program.py"
    path.write_text(program.replace(ADDRESS, trio.bootstrap))
    shared_spark.clear()
    assert shared_spark.printed(path) == [
        "1000 rows, 1 partition",
        "1000 copies, 1000 different",
    ]
    shown = trio.done("group", "describe", "tide-copies", "--json").document["offsets"]
    assert [(row["topic"], row["lag"]) for row in shown] == [("tides", 0)]


def test_the_page_names_the_jars_that_are_tested() -> None:
    for group, artifact, version in spark.JARS:
        assert f"{group}:{artifact}:{version}" in MIGRATION
