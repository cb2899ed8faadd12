"""Real Spark, one session: one program, with the official connector and with our data source."""

from typing import Any

import pytest

from harness.processes.cluster import Cluster
from harness.spark.plain import Place
from harness.spark.program import ROWS
from harness.spark.shared import SharedSpark
from harness.suite.need import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def asked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = Place(cluster.bootstrap)
    names = ["kafka-in", "kafka-out", "tidelog-in", "tidelog-out", "exactly-once", "job"]
    return {
        "bootstrap": cluster.bootstrap,
        "folder": str(tmp_path_factory.mktemp("spark")),
        "topics": {name: place.topic(partitions=2) for name in names},
        "group": "a-spark-job",
    }


@pytest.fixture(scope="module")
def said(shared_spark: SharedSpark, asked: dict[str, Any]) -> dict[str, Any]:
    need("java", "mvn")
    found: dict[str, Any] = shared_spark.answers("program", **asked)
    return found


def row(n: int, topic: str, offset: int) -> list[Any]:
    key = None if n % 4 == 0 else str(n)
    headers = [["n", str(n)]] if n % 3 == 0 else None
    return [key, f"value {n}", topic, n % 2, offset, 0, headers]


def one_program_gives_the_same_rows_with_either_format_and_reader(
    said: dict[str, Any], asked: dict[str, Any]
) -> None:
    for name in ("kafka", "tidelog"):
        topic = asked["topics"][f"{name}-out"]
        even = [row(n, topic, at) for at, n in enumerate(range(20, ROWS, 2))]
        odd = [row(n, topic, at) for at, n in enumerate(range(1, ROWS, 2))]
        assert said[name]["by kafka"] == [*even, *odd]
        assert said[name]["by tidelog"] == [*even, *odd]
        assert said[name]["batches"] == 2


def a_checkpoint_of_the_connector_goes_on_with_ours(said: dict[str, Any]) -> None:
    assert said["carried on"] == {"batches": 2, "rows": ROWS}


def a_stream_is_written_exactly_once_and_a_group_shows_its_lag(
    said: dict[str, Any], asked: dict[str, Any], cluster: Cluster
) -> None:
    source = asked["topics"]["kafka-in"]
    assert said["exactly once"] == {
        "rows": ROWS,
        "distinct": ROWS,
        "columns": ["key", "value", "partition"],
        "initial": {source: {"0": 0, "1": 0}},
    }
    shown = cluster.done("group", "describe", asked["group"], "--json").document["offsets"]
    since = ROWS // 2  # the rows that the next test is about, in each partition
    assert [(one["topic"], one["lag"]) for one in shown] == [(source, since), (source, since)]


def a_batch_that_is_written_twice_under_one_name_is_there_once(said: dict[str, Any]) -> None:
    assert said["job"] == {"rows": 50}


def the_first_pipeline_copies_each_row_once(said: dict[str, Any]) -> None:
    assert "1000 rows to tides-" in said["first"]["says"]
    assert ", 1000 of them in tides-" in said["first"]["says"]
    assert said["first"]["says"].endswith("-copies, 1000 different")


def filters_leave_one_task_with_a_few_offsets(said: dict[str, Any]) -> None:
    assert said["filtered"] == {"offsets": [*range(20, 25)], "tasks": 1, "all tasks": 2}


def mistakes_are_told_before_anything_runs(said: dict[str, Any]) -> None:
    told = said["mistakes"]
    assert "unknown option 'startingoffset'; did you mean 'startingOffsets'?" in told["option"]
    assert "the column value is bigint: it must be string or binary" in told["type"]
    assert 'a topic is never overwritten: say mode("append")' in told["overwrite"]
    assert "no such topic or partition" in told["topic"]


def test_what_one_session_did(
    said: dict[str, Any], asked: dict[str, Any], cluster: Cluster
) -> None:
    """One test: else each worker that takes one of several starts a session of its own."""
    one_program_gives_the_same_rows_with_either_format_and_reader(said, asked)
    a_checkpoint_of_the_connector_goes_on_with_ours(said)
    a_stream_is_written_exactly_once_and_a_group_shows_its_lag(said, asked, cluster)
    a_batch_that_is_written_twice_under_one_name_is_there_once(said)
    the_first_pipeline_copies_each_row_once(said)
    filters_leave_one_task_with_a_few_offsets(said)
    mistakes_are_told_before_anything_runs(said)
    assert said["start"] == {"archive": True}, "the JVM has refused the archive of classes"
