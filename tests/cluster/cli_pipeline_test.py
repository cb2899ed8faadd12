"""`tidelog pipeline` up to where Spark would begin: help, lines for clusters of Spark, refusals."""

import shutil
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import script
from harness.spark.setup import connector_jars
from tidelog.tools.pipeline_rows import PIPELINES

pytestmark = pytest.mark.slow


def test_wrong_use_of_pipeline(tmp_path: Path, golden: Golden) -> None:
    text = script(
        Cluster(tmp_path),
        "pipeline",
        "pipeline export --help",
        "pipeline exports-all",
        "pipeline export --topics t",
        "pipeline produce --topic t --codec best",
        "pipeline produce --topic t --row 5",
        "pipeline produce --topic t -b h:1 --rows some",
        "pipeline produce --topic t -b h:1 --skew 1",
        "pipeline mirror --topics t --to h:1 --checkpoint c -b h:1",
        "pipeline verify --history h -b h:1",
        "pipeline asof --topic t --at noon -b h:1",
        "pipeline lag --groups g -b nowhere:port",
        "pipeline lag --groups g -b 127.0.0.1:1",
        "pipeline jars",
    )
    golden("cli_pipeline_wrong_use", text)


GIVEN = {
    "produce": "--topic t --rows 1M --keys 10 --conf a=b --conf c=d",
    "export": "--topics t --dest d --by-date --master spark://s:7077",
    "replay": "--source d --verify",
    "mirror": "--topics t --to other:9092 --checkpoint c --groups g",
    "verify": "--history h --records r --id 'cast(key as bigint)'",
    "asof": "--topic t --at @-1h --latest-by-key",
    "lag": "--groups g",
    "compaction": "--topic t",
}


def test_the_line_for_a_cluster_of_spark(tmp_path: Path, golden: Golden) -> None:
    where = "-b kafka-1:9092,kafka-2 --print-submit"
    lines = [f"pipeline {name} {given} {where}" for name, given in GIVEN.items()]
    text = script(Cluster(tmp_path), *lines, *(f"{line} --json" for line in lines))
    assert all(f"pipeline {name} " in text for name in PIPELINES)
    golden("cli_pipeline_submit", text)


def test_what_a_cluster_of_spark_is_sent_and_what_the_connector_needs(
    tmp_path: Path, golden: Golden
) -> None:
    shutil.copytree(connector_jars(), tmp_path / "jars")
    text = script(
        Cluster(tmp_path),
        "pipeline package --dest sent",
        "pipeline package --json",
        "pipeline jars --dest jars",
        "pipeline jars --dest jars --json",
    )
    golden("cli_pipeline_files", text)
