"""Every pipeline against a real cluster, in one session of Spark; and each way to start one."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.processes.cluster import Cluster
from harness.spark.pipelines_program import GROUP, READ, ROWS
from harness.spark.shared import SharedSpark

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["tidelog", "kafka"])
def all_said(
    request: pytest.FixtureRequest,
    shared_spark: SharedSpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What every pipeline has said, here and on an Apache Kafka."""
    folder = tmp_path_factory.mktemp("pipelines")
    if request.param == "tidelog":
        with Cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as cluster:
            live = run_all(shared_spark, folder, cluster.bootstrap)
            cluster.stop()
            stopped = run_all(shared_spark, folder, cluster.bootstrap, str(cluster.data))
            return {"folder": folder, **live, **stopped}
    if not request.config.getoption("--nightly"):
        pytest.skip("the same again on Apache Kafka: --nightly")
    with kafka_node(tmp_path_factory.mktemp("kafka"), TRANSACTIONS) as bootstrap:
        return {"folder": folder, **run_all(shared_spark, folder, bootstrap)}


def run_all(spark: SharedSpark, folder: Path, bootstrap: str, data: str = "") -> dict[str, Any]:
    """All that ask a cluster; or those that read the files of one that is stopped."""
    found: dict[str, Any] = spark.answers(
        "pipelines_program", bootstrap=bootstrap, folder=str(folder), data=data
    )
    return found


@pytest.fixture
def folder(all_said: dict[str, Any]) -> Path:
    """Where the programs wrote."""
    found: Path = all_said["folder"]
    return found


@pytest.fixture
def said(all_said: dict[str, Any]) -> Any:
    """What a step printed, which has ended well."""

    def told(step: str, code: int = 0) -> dict[str, Any]:
        assert all_said[step]["code"] == code, all_said[step]
        first: dict[str, Any] = all_said[step]["told"][0]
        return first

    return told


def load_is_acknowledged_measured_and_written_down(said: Any, folder: Path) -> None:
    told = said("produce")
    assert (told["rows"], told["acknowledged"], told["failed"], told["tasks"]) == (ROWS, ROWS, 0, 2)
    assert set(told["latency_ms"]) == {"p50", "p95", "p99", "p999", "max"}
    assert told["seconds"] > 0.1, "at 20,000 rows a second"
    acks = pq.read_table(folder / "acks").to_pydict()
    assert len(set(acks["id"])) == ROWS
    assert set(acks["status"]) == {"acked"}


def rows_of_files_are_written_whole_or_by_column(said: Any) -> None:
    assert said("produce rows")["acknowledged"] == 3
    assert said("produce again")["acknowledged"] == 3
    shown = said("asof diff")["shown"]
    assert [(one["key"], one["old_value"], one["new_value"]) for one in shown] == [
        ("1", '{"id":"1","name":"a"}', "a"),
        ("2", '{"id":"2","name":"b"}', "b"),
        ("3", '{"id":"3","name":"c"}', "c"),
    ]
    assert said("asof diff")["changes"] == {"changed": 3}


def an_export_goes_on_where_it_stopped(said: Any) -> None:
    first = said("export")
    assert (first["rows"], first["micro_batches"]) == (ROWS, 2)
    assert sum(first["ends"].values()) == ROWS
    assert said("export again")["rows"] == 0


def a_replay_is_what_was_exported_and_once_where_it_has_a_name(said: Any) -> None:
    for step in ("replay", "replay once", "replay twice"):
        told = said(step)
        assert (told["rows"], told["verified"], told["differences"]) == (ROWS, True, [])


def a_mirror_copies_all_and_groups_find_their_place(said: Any, all_said: dict[str, Any]) -> None:
    told = said("mirror")
    assert told["rows"] == ROWS
    assert told["micro_batches"] >= 2
    assert told["groups"][GROUP]["error"] is None
    found = {int(number): at for number, at in all_said["translated"].items()}
    # Each micro-batch that had rows of a partition left one marker there.
    assert found.keys() == READ.keys()
    for number, at in READ.items():
        assert at <= found[number] <= at + told["micro_batches"]
    assert said("verify copy", 5)["moved"] > 0, "what follows a marker lies elsewhere"
    assert said("verify copy", 5)["lost"] == said("verify copy", 5)["duplicated"] == 0
    assert said("verify copy", 5)["reordered"] == 0


def a_history_that_is_true_has_no_findings(said: Any) -> None:
    told = said("verify")
    assert told["history"] == {"acked": ROWS}
    assert (told["records"], told["examples"]) == (ROWS, {})


def each_lie_is_found_and_shown_with_the_fault_it_fell_into(said: Any, folder: Path) -> None:
    told = said("verify lies", 5)
    wrong = {"lost": 1, "duplicated": 1, "reordered": 1, "moved": 3}
    assert {kind: told[kind] for kind in wrong} == wrong
    assert (told["aborted_but_seen"], told["unknown_but_seen"], told["unexpected"]) == (2, 1, 1)
    assert (told["never_read"], told["failed_but_seen"]) == (1, 0)
    ids = {kind: [one["id"] for one in rows] for kind, rows in told["examples"].items()}
    assert ids["lost"] == [105]
    assert ids["duplicated"] == [102]
    assert ids["reordered"] == [103]
    assert ids["moved"] == [103, 104, 108]
    assert ids["never_read"] == [101]
    windows = {one["name"]: one for one in told["windows"]}
    assert (windows["kill b1"]["lost"], windows["kill b1"]["moved"]) == (1, 0)
    assert windows["cut"]["lost"] == 0
    assert (folder / "found" / "kind=lost").is_dir()


def a_topic_as_it_was_is_whole_or_by_key(said: Any, folder: Path) -> None:
    assert said("asof")["rows"] == ROWS
    assert pq.read_table(folder / "then").num_rows == ROWS
    keys = said("asof keys")["rows"]
    assert 20 < keys <= 40
    compacted = said("compaction")
    assert compacted["records"] - compacted["superseded"] == keys
    assert (compacted["bytes"], compacted["unkeyed"]) == (ROWS * 108, 0)
    assert compacted["keys"][0]["key"] == "00000000", "the key that is drawn most"


def lag_is_counted_aged_and_shared_out(all_said: dict[str, Any], said: Any) -> None:
    told = said("lag")
    of_load = [one for one in told["partitions"] if one["partition"].startswith("load-")]
    left = ROWS - sum(READ.values())
    assert sum(one["lag"] for one in of_load) == left
    assert all(one["age_ms"]["p50"] > 0 for one in of_load if one["unread"])
    assert [one["key"] for one in told["keys"]] == ["00000000", "00000001"]
    assert [one["sample"] for one in all_said["lag"]["told"]] == [0, 1]


def the_files_of_a_stopped_cluster_say_the_same(said: Any, all_said: dict[str, Any]) -> None:
    if "verify files" not in all_said:
        return  # only a cluster of ours is read so
    live, stopped = said("compaction"), said("compaction of files")
    same = ("records", "superseded", "bytes", "superseded_bytes", "partitions")
    assert {name: stopped[name] for name in same} == {name: live[name] for name in same}
    segments = stopped["segments"]
    assert {one["partition"] for one in segments} == {0, 1, 2}
    assert sum(one["superseded"] for one in segments) == live["superseded"]
    assert said("verify files")["records"] == ROWS


def test_what_each_pipeline_says(all_said: dict[str, Any], said: Any, folder: Path) -> None:
    """One test: else each worker that takes one of several starts a session of its own."""
    load_is_acknowledged_measured_and_written_down(said, folder)
    rows_of_files_are_written_whole_or_by_column(said)
    an_export_goes_on_where_it_stopped(said)
    a_replay_is_what_was_exported_and_once_where_it_has_a_name(said)
    a_mirror_copies_all_and_groups_find_their_place(said, all_said)
    a_history_that_is_true_has_no_findings(said)
    each_lie_is_found_and_shown_with_the_fault_it_fell_into(said, folder)
    a_topic_as_it_was_is_whole_or_by_key(said, folder)
    lag_is_counted_aged_and_shared_out(all_said, said)
    the_files_of_a_stopped_cluster_say_the_same(said, all_said)
