"""What Spark calls, called as Spark does but in one process: the adapters, and their copies."""

import pickle
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, IsNotNull
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from harness.processes.cluster import Cluster
from harness.spark.plain import Place
from harness.spark.stand import Stand
from pyspark_tidelog import DefaultSource
from tidelog.spark.datasource import BatchReader, FilteredReader, StreamReader, TidelogDataSource
from tidelog.spark.options import OptionError
from tidelog.spark.rows import RowError
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_permits import NEVER_REPLACED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """Two partitions, of which each has five records."""
    name = Place(cluster.bootstrap).topic(partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(10):
        producer.produce(name, b"%d" % n, partition=n % 2)
    assert producer.flush(30) == 0
    return name


def source_of(cluster: Cluster, topic: str = "", **given: str) -> TidelogDataSource:
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    options |= {name.replace("_", "."): value for name, value in given.items()}
    return DefaultSource({**options, "subscribe": topic} if topic else options)


def copied(one: Any) -> Any:
    """As Spark sends it to another process."""
    return pickle.loads(pickle.dumps(one))  # noqa: S301 -- what was made here


def values(reader: Any) -> list[bytes]:
    """Each process has a copy of the reader of its own."""
    copy, partitions = copied((reader, reader.partitions()))
    return [
        value
        for one in partitions
        for batch in copy.read(one)
        for value in batch.column("value").to_pylist()
    ]


def test_spark_finds_the_format_by_its_name(cluster: Cluster, topic: str) -> None:
    assert DefaultSource.name() == "tidelog"
    source = source_of(cluster, topic, tidelog_columns="value,headers")
    said = source.schema()
    assert said == "`value` binary, `headers` array<struct<key:string,value:binary>>"


def test_a_batch_is_planned_and_read(cluster: Cluster, topic: str) -> None:
    reader = source_of(cluster, topic).reader(StructType())
    assert type(reader) is BatchReader
    assert values(reader) == [b"0", b"2", b"4", b"6", b"8", b"1", b"3", b"5", b"7", b"9"]
    assert list(reader.read(InputPartition(None))) == []


def test_one_task_reads_small_partitions_one_after_the_other(cluster: Cluster, topic: str) -> None:
    reader = source_of(cluster, topic, tidelog_minOffsetsPerTask="6").reader(StructType())
    assert len(reader.partitions()) == 1
    assert values(reader) == [b"0", b"2", b"4", b"6", b"8", b"1", b"3", b"5", b"7", b"9"]
    stream = source_of(cluster, topic, tidelog_minOffsetsPerTask="3").streamReader(StructType())
    start, end = {topic: {"0": 0, "1": 0}}, {topic: {"0": 2, "1": 5}}
    assert len(stream.partitions(start, end)) == 1, "2 are too few, with 5 more it is enough"


def test_filters_are_taken_and_given_back(cluster: Cluster, topic: str) -> None:
    reader = source_of(cluster, topic, tidelog_pushdown="true").reader(StructType())
    assert isinstance(reader, FilteredReader)
    filters = [EqualTo(("partition",), 1), GreaterThan(("offset",), 2), IsNotNull(("offset",))]
    assert list(reader.pushFilters(filters)) == filters
    assert values(reader) == [b"7", b"9"]


def test_a_nested_column_of_the_same_name_narrows_nothing(cluster: Cluster, topic: str) -> None:
    reader = source_of(cluster, topic, tidelog_pushdown="true").reader(StructType())
    assert isinstance(reader, FilteredReader)
    reader.pushFilters([EqualTo(("partition", "offset"), 1)])
    assert len(values(reader)) == 10


def test_a_stream_goes_from_offset_to_offset(cluster: Cluster, topic: str) -> None:
    reader = source_of(cluster, topic, startingOffsets="earliest").streamReader(StructType())
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert (start, end) == ({topic: {"0": 0, "1": 0}}, {topic: {"0": 5, "1": 5}})
    assert reader.reportLatestOffset() == end
    copy = copied(reader)
    parts = reader.partitions(start, end)
    assert [len(list(copy.read(one))) for one in parts] == [1, 1]
    reader.commit(end)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
    ],
)
def test_the_limit_of_a_micro_batch_is_told(
    cluster: Cluster, given: dict[str, str], limit: object
) -> None:
    assert (
        source_of(cluster, "t", **given).streamReader(StructType()).getDefaultReadLimit() == limit
    )


@pytest.mark.parametrize("kept", [False, True])
def test_a_stream_from_latest_first_has_its_beginning_noted_where_no_file_keeps_it(
    cluster: Cluster, tmp_path: Path, *, kept: bool
) -> None:
    topic = Place(cluster.bootstrap).topic()
    given = {"tidelog_initialOffsets": str(tmp_path / "initial.json")} if kept else {}
    reader = source_of(cluster, topic, **given).streamReader(StructType())
    start = reader.initialOffset()
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"new", partition=0)
    assert producer.flush(30) == 0
    noted = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert noted == ({topic: {"0": 1}} if kept else start)
    assert len(reader.partitions(start, noted)) == kept
    assert reader.latestOffset(noted, reader.getDefaultReadLimit()) == {topic: {"0": 1}}


def test_a_writer_is_refused_before_it_has_rows(cluster: Cluster) -> None:
    fitting = StructType().add("value", "string").add("key", "binary")
    odd = StructType().add("value", "long").add("topic", "string")
    source = source_of(cluster)
    with pytest.raises(OptionError, match="never overwritten"):
        source.writer(fitting, overwrite=True)
    with pytest.raises(RowError, match="say where rows go"):
        source.writer(fitting, overwrite=False)
    with pytest.raises(RowError, match="the column value is bigint"):
        source.streamWriter(odd, overwrite=False)
    writer = source.streamWriter(fitting.add("topic", "string"), overwrite=False)
    assert copied(writer).__class__ is writer.__class__


def test_a_query_of_which_no_task_has_succeeded_lets_go_what_its_tasks_left_open(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No task has told the driver which query this is: the checkpoint knows."""
    (tmp_path / "metadata").write_text('{"id":"a-query-that-fails"}')
    stand = Stand(Place(cluster.bootstrap))
    stand.sink = Sink("a-query-that-fails", stand.sink.marker)
    stand.write(0, 0)
    source = source_of(
        cluster,
        topic=stand.topic,
        tidelog_delivery="exactly-once",
        checkpointLocation=str(tmp_path),
    )
    source.options["topic"] = source.options.pop("subscribe")
    writer = source.streamWriter(StructType().add("value", "binary"), overwrite=False)
    copied(writer).abort([None, None], 0)
    stand.holds()


def sink_of(stand: Stand, cluster: Cluster, **given: str) -> TidelogDataSource:
    """The format that writes to a stand's topic, with other options than the stand has."""
    found = source_of(cluster, tidelog_delivery="exactly-once", **given)
    found.options["topic"] = stand.topic
    return found


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_writer_takes_the_permit_of_its_job_along_until_the_job_is_given_up(
    cluster: Cluster, tmp_path: Path, *, is_stream: bool
) -> None:
    (tmp_path / "metadata").write_text(f'{{"id":"a-query-{is_stream}"}}')
    stand = Stand(Place(cluster.bootstrap))
    given = {"checkpointLocation": str(tmp_path)} if is_stream else {"tidelog_job_id": stand.topic}
    source, rows = sink_of(stand, cluster, **given), StructType().add("value", "binary")

    def planned() -> Any:
        made = source.streamWriter if is_stream else source.writer
        return copied(made(rows, overwrite=False))

    first, second = planned(), planned()
    assert first._driver.permit == second._driver.permit == NEVER_REPLACED
    second.abort([None, None], *([0] if is_stream else []))
    assert first._driver.permit == NEVER_REPLACED
    third = planned()
    assert third._driver.permit not in {None, NEVER_REPLACED}
    assert copied(third)._driver.permit == third._driver.permit


def test_a_driver_that_cannot_learn_the_sink_s_name_gives_its_tasks_no_permit(
    cluster: Cluster,
) -> None:
    stand = Stand(Place(cluster.bootstrap))
    source = sink_of(stand, cluster, checkpointLocation="s3a://a-bucket/checkpoint")
    writer = source.streamWriter(StructType().add("value", "binary"), overwrite=False)
    assert copied(writer)._driver.permit is None
