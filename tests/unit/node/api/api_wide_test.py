"""Requests of many rows: other clients have their turn in between, whatever the API."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.machines.brokers import FakeStorage, turns
from harness.machines.group_bench import Asked, GroupBench
from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k02_list_offsets as k02
from tidelog.wire.messages import k21_delete_records as k21
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k27_write_txn_markers as k27
from tidelog.wire.messages import k32_describe_configs as k32
from tidelog.wire.messages import k34_alter_replica_log_dirs as k34
from tidelog.wire.messages import k35_describe_log_dirs as k35
from tidelog.wire.messages import k46_list_partition_reassignments as k46
from tidelog.wire.messages import k61_describe_producers as k61
from tidelog.wire.messages import k75_describe_topic_partitions as k75
from tidelog.wire.records import Record, build_batch

WIDE = 2 * limits.ROWS_PER_STEP + 1
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Make = Callable[[], Any]
Codes = Callable[[Any], list[int]]


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic("t", 3)
    bench.aside = []
    return bench


def delete_records() -> Any:
    rows = [k21.DeleteRecordsPartition(partition_index=at, offset=0) for at in range(WIDE)]
    return k21.DeleteRecordsRequest(topics=[k21.DeleteRecordsTopic(name="no", partitions=rows)])


def add_partitions() -> Any:
    topic = k24.AddPartitionsToTxnTopic(name="no", partitions=list(range(WIDE)))
    return k24.AddPartitionsToTxnRequest(v3_and_below_topics=[topic])


def alter_log_dirs() -> Any:
    topic = k34.AlterReplicaLogDirTopic(name="no", partitions=list(range(WIDE)))
    directory = k34.AlterReplicaLogDir(path="/data/broker-0", topics=[topic])
    return k34.AlterReplicaLogDirsRequest(dirs=[directory])


def describe_log_dirs() -> Any:
    topic = k35.DescribableLogDirTopic(topic="no", partitions=list(range(WIDE)))
    return k35.DescribeLogDirsRequest(topics=[topic])


def list_reassignments() -> Any:
    topic = k46.ListPartitionReassignmentsTopics(name="t", partition_indexes=list(range(WIDE)))
    return k46.ListPartitionReassignmentsRequest(topics=[topic])


def describe_topics() -> Any:
    topics = [k75.TopicRequest(name=f"no-{at:05}") for at in range(WIDE)]
    return k75.DescribeTopicPartitionsRequest(topics=topics)


@pytest.mark.parametrize(
    ("api", "version", "make", "codes"),
    [
        pytest.param(
            k21.API,
            2,
            delete_records,
            lambda told: [row.error_code for row in told.topics[0].partitions],
            id="DeleteRecords",
        ),
        pytest.param(
            k24.API,
            3,
            add_partitions,
            lambda told: [
                row.partition_error_code
                for row in told.results_by_topic_v3_and_below[0].results_by_partition
            ],
            id="AddPartitionsToTxn",
        ),
        pytest.param(
            k75.API,
            0,
            describe_topics,
            lambda told: [topic.error_code for topic in told.topics],
            id="DescribeTopicPartitions",
        ),
    ],
)
def test_others_have_their_turn_between_many_unknown_partitions(
    bench: GroupBench, api: Any, version: int, make: Make, codes: Codes
) -> None:
    asked: Asked = bench.start_asking(api, version, make())
    assert asked.answer() is None, "all of it was done in one turn"
    assert turns(bench) >= 2
    assert codes(asked.answer()) == [UNKNOWN] * WIDE


def test_others_have_their_turn_between_many_directories(bench: GroupBench) -> None:
    """A directory takes a look at its volume, also if no replica shall be in it."""
    dirs = [k34.AlterReplicaLogDir(path="/data/broker-0", topics=[]) for _ in range(WIDE)]
    asked = bench.start_asking(k34.API, 2, k34.AlterReplicaLogDirsRequest(dirs=dirs))
    assert asked.answer() is None, "all of it was done in one turn"
    assert turns(bench) >= 2
    assert asked.answer() is not None


def test_a_directory_that_is_named_often_is_looked_at_once(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, looks = bench.storage.volumes, 0

    def counted() -> list[FakeStorage]:
        nonlocal looks
        looks += 1
        return volumes()

    monkeypatch.setattr(bench.storage, "volumes", counted)
    dirs = [k34.AlterReplicaLogDir(path=path, topics=[]) for path in ("/a", "/b", "/a", "/a")]
    bench.start_asking(k34.API, 2, k34.AlterReplicaLogDirsRequest(dirs=dirs))
    turns(bench)
    assert looks == 1


def test_others_have_their_turn_between_the_markers_of_an_operator(bench: GroupBench) -> None:
    bench.topic("wide", 20)
    topics = [
        k27.WritableTxnMarkerTopic(name="wide", partition_indexes=list(range(20))),
        k27.WritableTxnMarkerTopic(name="t", partition_indexes=[0]),
    ]
    markers = [
        k27.WritableTxnMarker(
            producer_id=producer, producer_epoch=0, transaction_result=True, topics=topics
        )
        for producer in range(1, 12)
    ]
    asked = bench.start_asking(k27.API, 1, k27.WriteTxnMarkersRequest(markers=markers))
    assert 0 < _ends_of(bench, "wide", 20) <= 100, "all of them were written in one turn"
    asked.client.session.abandon()
    turns(bench)
    assert _ends_of(bench, "wide", 20) == 220, "what was begun is done without its client"
    again = bench.start_asking(k27.API, 1, k27.WriteTxnMarkersRequest(markers=markers))
    turns(bench)
    told = again.answer().markers
    assert [one.producer_id for one in told] == list(range(1, 12))
    assert [topic.name for topic in told[0].topics] == ["wide", "t"]
    rows = [row for one in told for topic in one.topics for row in topic.partitions]
    assert {row.error_code for row in rows} == {0}
    assert len(rows) == 21 * 11


def _ends_of(bench: GroupBench, topic: str, count: int) -> int:
    """The number of batches in all partitions of a topic."""
    replicas = [bench.broker.replicas.get((topic, Partition(at))) for at in range(count)]
    return sum(0 if replica is None else replica.log.end for replica in replicas)


def test_others_have_their_turn_between_resources_that_are_merged(bench: GroupBench) -> None:
    resources = [
        k32.DescribeConfigsResource(resource_type=2, resource_name="no", configuration_keys=None)
        for _ in range(WIDE)
    ]
    asked = bench.start_asking(k32.API, 4, k32.DescribeConfigsRequest(resources=resources))
    assert asked.answer() is None
    assert turns(bench) >= 2
    (told,) = asked.answer().results
    assert told.error_code == UNKNOWN


def test_others_have_their_turn_between_topics_that_are_merged(bench: GroupBench) -> None:
    topics = [k61.TopicRequest(name="t", partition_indexes=[at % 3]) for at in range(WIDE)]
    asked = bench.start_asking(k61.API, 0, k61.DescribeProducersRequest(topics=topics))
    assert asked.answer() is None
    assert turns(bench) >= 2
    (told,) = asked.answer().topics
    assert [row.partition_index for row in told.partitions] == [0, 1, 2]


def test_others_have_their_turn_between_replicas_that_shall_move(bench: GroupBench) -> None:
    asked = bench.start_asking(k34.API, 2, alter_log_dirs())
    assert asked.answer() is None
    assert turns(bench) >= 2
    (topic,) = asked.answer().results
    told = [(row.partition_index, row.error_code) for row in topic.partitions]
    assert told == [(at, ErrorCode.REPLICA_NOT_AVAILABLE) for at in range(WIDE)]


def test_others_have_their_turn_between_replicas_whose_sizes_are_asked_for(
    bench: GroupBench,
) -> None:
    asked = bench.start_asking(k35.API, 4, describe_log_dirs())
    assert asked.answer() is None
    assert turns(bench) >= 2
    (directory,) = asked.answer().results
    assert directory.topics == []


def test_others_have_their_turn_while_all_replicas_here_are_described(bench: GroupBench) -> None:
    bench.topic("wide", WIDE)
    asked = bench.start_asking(k35.API, 4, k35.DescribeLogDirsRequest(topics=None))
    assert asked.answer() is None, "a request of a few bytes was done in one turn"
    assert turns(bench) >= 2
    (directory,) = asked.answer().results
    assert {topic.name: len(topic.partitions) for topic in directory.topics} == {
        "t": 3,
        "wide": WIDE,
    }


@pytest.mark.parametrize("wanted", ["named", "all"])
def test_others_have_their_turn_between_partitions_that_may_be_moving(
    bench: GroupBench, wanted: str
) -> None:
    bench.topic("wide", WIDE)
    request = k46.ListPartitionReassignmentsRequest(topics=None)
    asked = bench.start_asking(k46.API, 0, list_reassignments() if wanted == "named" else request)
    assert asked.answer() is None
    assert turns(bench) >= 2
    assert asked.answer().topics == []


def test_records_are_deleted_from_all_partitions_although_the_client_has_left(
    bench: GroupBench,
) -> None:
    """As one of few partitions would be. It is not left to chance which half of them is done."""
    rows = [k21.DeleteRecordsPartition(partition_index=at, offset=0) for at in range(WIDE)]
    last = k21.DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [
        k21.DeleteRecordsTopic(name="no", partitions=rows),
        k21.DeleteRecordsTopic(name="t", partitions=[last]),
    ]
    bench.storage.answers = None
    request = k21.DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
    asked = bench.start_asking(k21.API, 2, request)
    assert not bench.storage.asked
    asked.client.session.abandon()
    turns(bench)
    assert len(bench.storage.asked) == 1, "the new start of the log is not kept"


def test_others_have_their_turn_between_large_batches_that_are_searched_by_time(
    bench: GroupBench,
) -> None:
    """Each is read on the loop, perhaps from the disk."""
    bench.topic("large", 8)
    batch = build_batch([Record(0, 1_000, b"", bytes(600_000))])
    for at in range(8):
        request = produce_request("large", batch)
        request.topic_data[0].partition_data[0].index = at
        bench.start_asking(k00.API, 9, request)
    rows = [k02.ListOffsetsPartition(partition_index=at, timestamp=500) for at in range(8)]
    topic = k02.ListOffsetsTopic(name="large", partitions=rows)
    asked = bench.start_asking(k02.API, 7, k02.ListOffsetsRequest(replica_id=-1, topics=[topic]))
    assert asked.answer() is None, "5 MB were read in one turn"
    assert turns(bench) >= 3
    (told,) = asked.answer().topics
    assert [(row.offset, row.timestamp) for row in told.partitions] == [(0, 1_000)] * 8
