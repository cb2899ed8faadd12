"""The source's readers against a real broker, without a JVM: rows, ranges, transactions, losses."""

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from harness.processes.cluster import Cluster
from harness.spark.plain import Place, rows_of
from tidelog.clients.admin.delete_records import delete_records
from tidelog.clients.admin.topics import delete_topics, wait_without_topics
from tidelog.clients.failures import TimedOutError
from tidelog.kernel.ids import Offset, Partition
from tidelog.spark.loss import DataLossError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import Mode, OptionError, source_options
from tidelog.spark.pushdown import Condition, Pushed, pushed_by
from tidelog.spark.reading import RangeReader, read_range
from tidelog.spark.stream import Stream

pytestmark = pytest.mark.slow

THEN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


def produce(place: Place, topic: str, count: int, *, partitions: int = 1, **settings: str) -> None:
    """Record n has a timestamp of n seconds."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap, **given})
    for n in range(count):
        producer.produce(
            topic,
            b"value %d" % n,
            b"%d" % n if n % 3 else None,
            partition=n % partitions,
            timestamp=THEN_MS + n * 1000,
            headers=[("n", b"%d" % n), ("n", None)] if n % 5 == 0 else None,
        )
        if n % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_what_was_produced(place: Place, codec: str) -> None:
    topic = place.topic(partitions=2)
    produce(place, topic, 1_000, partitions=2, compression_type=codec)
    rows = place.read(subscribe=topic, includeHeaders="true")
    assert len(rows) == 1_000
    for row in rows:
        n = row["offset"] * 2 + row["partition"]
        assert row["value"] == b"value %d" % n
        assert row["key"] == (b"%d" % n if n % 3 else None)
        assert (row["topic"], row["timestampType"]) == (topic, 0)
        assert row["timestamp"].timestamp() * 1000 == THEN_MS + n * 1000
        pairs = [{"key": "n", "value": b"%d" % n}, {"key": "n", "value": None}]
        assert row["headers"] == (pairs if n % 5 == 0 else None)


def test_large_ranges_are_read_in_many_answers_and_tasks(place: Place) -> None:
    topic = place.topic()
    produce(place, topic, 20_000)
    small = {"kafka_max_partition_fetch_bytes": "20000", "tidelog_batchRows": "700"}
    given = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 55}})}
    assert place.values(**given, **small, minPartitions="7") == [
        b"value %d" % n for n in range(55, 20_000)
    ]


def test_times_and_filters_name_ranges(place: Place) -> None:
    topic = place.topic(partitions=2)
    produce(place, topic, 100, partitions=2)
    given = {"startingTimestamp": str(THEN_MS + 10_000), "endingTimestamp": str(THEN_MS + 20_000)}
    assert sorted(place.values(subscribe=topic, **given)) == [
        b"value %d" % n for n in range(10, 20)
    ]
    pushed = pushed_by([Condition("partition", "=", 1), Condition("offset", ">=", 48)])
    rows = place.read(pushed, subscribe=topic)
    assert [row["value"] for row in rows] == [b"value 97", b"value 99"]


def test_segment_files_hold_the_same_rows(
    place: Place, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = place.topic(partitions=2)
    produce(place, topic, 3_000, partitions=2, compression_type="lz4")
    transact(place, topic, [b"no"] * 3, commit=False)
    transact(place, topic, [b"yes"] * 3, commit=True)
    common = {"subscribe": topic, "includeHeaders": "true"}
    common |= {"kafka_isolation_level": "read_committed", "minPartitions": "5"}
    fetched = place.read(**common)
    assert len(fetched) == 3_003
    nobody_asks = partial(pytest.fail, "it fetches what lies here in files")
    with monkeypatch.context() as patched:
        patched.setattr(RangeReader, "batches", nobody_asks)
        files = {"tidelog_read": "segments", "tidelog_dataDirs": str(cluster.data)}
        assert place.read(**common, **files) == fetched
    elsewhere = {"tidelog_read": "segments", "tidelog_dataDirs": str(cluster.folder / "nix")}
    assert place.read(**common, **elsewhere) == fetched, "what is not here is fetched"


def test_a_cluster_that_is_stopped_is_read_from_its_files(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        place = Place(cluster.bootstrap)
        topic = place.topic(partitions=2)
        produce(place, topic, 500, partitions=2)
        transact(place, topic, [b"no"], commit=False)
        fetched = place.read(subscribe=topic, kafka_isolation_level="read_committed")
        cluster.stop()
        given = {"tidelog.read": "segments", "tidelog.dataDirs": str(cluster.data)}
        given["kafka.isolation.level"] = "read_committed"

        def read_stopped(**more: str) -> list[dict[str, Any]]:
            return rows_of(source_options({**given, **more}, Mode.BATCH), Pushed())

        assert read_stopped(subscribePattern=".*") == fetched
        assert len(fetched) == 500
        ends = json.dumps({topic: {"0": 5, "1": -1}})
        assert len(read_stopped(subscribe=topic, endingOffsets=ends)) == 5 + 250
        far = json.dumps({topic: {"0": 5_000, "1": -1}})
        with pytest.raises(OptionError, match="its files hold offsets 0 to"):
            read_stopped(subscribe=topic, endingOffsets=far)
        with pytest.raises(OptionError, match="not looked up by time in files"):
            read_stopped(subscribe=topic, startingTimestamp="5")
        with pytest.raises(OptionError, match="nix: no such topic"):
            read_stopped(subscribe="nix")


def test_topics_without_a_record_are_there_also_when_the_cluster_is_stopped(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path) as cluster:
        place = Place(cluster.bootstrap)
        empty, deleted, half = place.topic(partitions=2), place.topic(), place.topic(partitions=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
        producer.produce(half, b"one", partition=1)
        assert producer.flush(30) == 0
        delete_topic(place, deleted)
        cluster.stop()
        given = {"tidelog.read": "segments", "tidelog.dataDirs": str(cluster.data)}

        def values(**more: str) -> list[bytes]:
            options = source_options({**given, **more}, Mode.BATCH)
            return [row["value"] for row in rows_of(options, Pushed())]

        assert values(subscribe=empty) == []
        assert values(subscribe=f"{half},{empty}") == [b"one"]
        starts = {"assign": json.dumps({half: [0, 1]})}
        starts["startingOffsets"] = json.dumps({half: {"0": 0, "1": 0}})
        assert values(**starts) == [b"one"]
        with pytest.raises(OptionError, match=f"{deleted}: no such topic"):
            values(subscribe=deleted)
        with pytest.raises(OptionError, match=f"{half}-2: no such topic or partition"):
            values(assign=json.dumps({half: [0, 2]}))
        only_logs = {"tidelog.dataDirs": str(cluster.data / "broker-0/log0")}
        with pytest.raises(OptionError, match=f"{empty}: no such topic"):
            values(subscribe=empty, **only_logs)


def transact(place: Place, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_read_committed_leaves_out_what_was_aborted(place: Place) -> None:
    topic = place.topic()
    transact(place, topic, [b"a", b"b"], commit=True)
    transact(place, topic, [b"no", b"no"], commit=False)
    transact(place, topic, [b"c"], commit=True)
    seen = place.values(subscribe=topic, kafka_isolation_level="read_committed")
    assert seen == [b"a", b"b", b"c"]
    assert len(place.values(subscribe=topic)) == 5


def test_read_committed_ends_before_what_is_open(place: Place) -> None:
    topic = place.topic()
    transact(place, topic, [b"a"], commit=True)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    assert place.values(subscribe=topic, kafka_isolation_level="read_committed") == [b"a"]
    producer.abort_transaction(30)


def range_of(topic: str, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic, Partition(0), Offset(start), Offset(end))


def read(place: Place, wanted: OffsetRange, **given: str) -> list[bytes]:
    options = place.source_options(
        Mode.STREAM, subscribe=wanted.topic, tidelog_columns="value", **given
    )
    batches = read_range(wanted, options)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def delete_before(place: Place, topic: str, offset: int) -> None:
    client = place.client
    done: Any = client.run(
        delete_records(client.view, {(topic, Partition(0)): Offset(offset)}, timeout_ms=5_000)
    )
    assert done


def test_records_that_were_deleted_under_a_reader_are_a_loss(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    topic = place.topic()
    produce(place, topic, 10)
    delete_before(place, topic, 4)
    with pytest.raises(DataLossError, match="wanted offset 2, earliest there is 4: retention"):
        read(place, range_of(topic, 2, 10))
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert read(place, range_of(topic, 2, 10), failOnDataLoss="false")[0] == b"value 4"
    assert f"{topic}-0: wanted offset 2" in caplog.text
    assert read(place, range_of(topic, 0, 3), failOnDataLoss="false") == []


def test_a_range_of_what_is_there_begins_at_the_first_record(place: Place) -> None:
    topic = place.topic()
    produce(place, topic, 10)
    delete_before(place, topic, 4)
    there = OffsetRange(topic, Partition(0), Offset(0), Offset(6), from_earliest=True)
    assert read(place, there) == [b"value 4", b"value 5"]


def test_records_that_a_new_partition_has_lost_already_are_a_loss(
    place: Place, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = place.topic()
    produce(place, topic, 5)
    options = place.source_options(Mode.STREAM, subscribe=topic, startingOffsets="earliest")
    stream = Stream(options, place.client)
    start = stream.latest(stream.initial())
    cluster.done("topic", "alter", topic, "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    for n in range(3):
        producer.produce(topic, b"new %d" % n, partition=1)
    assert producer.flush(30) == 0
    client = place.client
    client.run(delete_records(client.view, {(topic, Partition(1)): Offset(2)}, timeout_ms=5_000))
    (fresh,) = stream.ranges(start, stream.latest(start))
    with pytest.raises(DataLossError, match=r"-1: wanted offset 0, earliest there is 2: retention"):
        read(place, fresh)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert read(place, fresh, failOnDataLoss="false") == [b"new 2"]
    assert f"{topic}-1: wanted offset 0" in caplog.text


def test_a_range_beyond_the_end_of_the_log_is_a_loss_and_not_waited_for(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    topic = place.topic()
    produce(place, topic, 5)
    with pytest.raises(DataLossError, match=r"wanted offset 7, .* the log ends at 5"):
        read(place, range_of(topic, 7, 9))
    with pytest.raises(DataLossError, match=r"wanted offset 9: the log ends at 5"):
        read(place, range_of(topic, 3, 9))
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        rows = read(place, range_of(topic, 3, 9), failOnDataLoss="false")
    assert rows == [b"value 3", b"value 4"]
    assert f"{topic}-0: wanted offset 9: the log ends at 5" in caplog.text
    more = {"endingOffsets": json.dumps({topic: {"0": 9}}), "failOnDataLoss": "false"}
    assert len(place.read(subscribe=topic, **more)) == 5


def test_a_range_of_a_topic_that_was_made_again_with_less_is_a_loss(place: Place) -> None:
    """A micro-batch was planned up to 9; the topic that has the name now ends at 4."""
    topic = place.topic()
    produce(place, topic, 9)
    planned = range_of(topic, 0, 9)
    assert len(read(place, planned)) == 9
    delete_topic(place, topic)
    place.topic(name=topic)
    produce(place, topic, 4)
    with pytest.raises(DataLossError, match=r"wanted offset 9: the log ends at 4"):
        read(place, planned)
    rows = read(place, planned, failOnDataLoss="false")
    assert rows == [b"value %d" % n for n in range(4)]
    options = place.source_options(Mode.STREAM, subscribe=topic, failOnDataLoss="false")
    following = Stream(options, place.client)
    assert following.latest({topic: {"0": 9}}) == {topic: {"0": 4}}
    produce(place, topic, 2)
    end = following.latest({topic: {"0": 4}})
    assert [len(read(place, one)) for one in following.ranges({topic: {"0": 4}}, end)] == [2]


def test_a_range_of_a_topic_that_was_deleted_is_a_loss(place: Place) -> None:
    topic = place.topic()
    produce(place, topic, 9)
    planned = range_of(topic, 0, 9)
    delete_topic(place, topic)
    with pytest.raises(DataLossError, match=r"wanted offset 0: the partition is not there"):
        read(place, planned)
    assert read(place, planned, failOnDataLoss="false") == []


def delete_topic(place: Place, topic: str) -> None:
    client = place.client
    client.run(delete_topics(client.view, [topic]))
    client.run(wait_without_topics(client.view, [topic]))


def test_a_reader_waits_for_a_transaction_that_is_open_below_the_end(place: Place) -> None:
    topic = place.topic()
    transact(place, topic, [b"a"], commit=True)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    level = {"kafka_isolation_level": "read_committed", "kafkaConsumer_pollTimeoutMs": "1500"}
    with pytest.raises(TimedOutError, match=r"nothing to be read from offset 2 to 3 within"):
        read(place, range_of(topic, 0, 3), **level)
    producer.abort_transaction(30)


def test_a_stream_follows_a_topic_that_grows_and_tells_a_group(
    place: Place, cluster: Cluster
) -> None:
    topic = place.topic()
    produce(place, topic, 5)
    given = {"subscribe": topic, "commitOffsetsToGroup": f"g-{topic}"}
    options = place.source_options(Mode.STREAM, startingOffsets="earliest", **given)
    stream = Stream(options, place.client)
    start = stream.initial()
    cluster.done("topic", "alter", topic, "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    producer.produce(topic, b"new", partition=1)
    assert producer.flush(30) == 0
    end = stream.latest(start)
    assert end == {topic: {"0": 5, "1": 1}}
    rows = [value for one in stream.ranges(start, end) for value in read(place, one)]
    assert rows == [*(b"value %d" % n for n in range(5)), b"new"]
    stream.committed(end)
    shown = cluster.done("group", "describe", f"g-{topic}", "--json").document["offsets"]
    assert {(row["partition"], row["lag"]) for row in shown} == {(0, 0), (1, 0)}
