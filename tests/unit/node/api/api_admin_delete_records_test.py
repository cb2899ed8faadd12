"""DeleteRecords: what is deleted is gone for every reader, and is answered when it is on disk."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench, led_here
from tidelog.kernel.ids import BrokerId, Epoch, Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k21_delete_records,
)
from tidelog.wire.metadata_records import PartitionChanged, PartitionView

HIGH_WATERMARK = -1


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def fill(bench: HandlerBench, topic: str, records: int = 6) -> None:
    """Two records a batch."""
    for _ in range(records // 2):
        bench.ask(k00_produce.API, 9, produce_request(topic, batch_of(b"x", b"y")))


def deletion(topic: str, *rows: tuple[int, int]) -> k21_delete_records.DeleteRecordsRequest:
    partitions = [
        k21_delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in rows
    ]
    topics = [k21_delete_records.DeleteRecordsTopic(name=topic, partitions=partitions)]
    return k21_delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=1_000)


def delete(bench: HandlerBench, topic: str, offset: int, *, version: int = 2) -> tuple[int, int]:
    """Error and low watermark of partition 0."""
    answer = bench.ask(k21_delete_records.API, version, deletion(topic, (0, offset)))
    (row,) = answer.topics[0].partitions
    assert row.partition_index == 0
    return row.error_code, row.low_watermark


def earliest(bench: HandlerBench, topic: str) -> int:
    asked = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)
    topics = [k02_list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])]
    request = k02_list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = bench.ask(k02_list_offsets.API, 5, request)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def fetched(bench: HandlerBench, topic: str, offset: int) -> Any:
    answer = bench.ask(k01_fetch.API, 11, fetch_request(topic, offset, max_wait_ms=0))
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(3))
def test_a_log_begins_at_the_offset_asked_for(bench: HandlerBench, version: int) -> None:
    bench.topic("t")
    fill(bench, "t")
    assert delete(bench, "t", 3, version=version) == (0, 3)
    assert earliest(bench, "t") == 3
    assert fetched(bench, "t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    row = fetched(bench, "t", 3)
    assert (row.error_code, row.log_start_offset, row.high_watermark) == (0, 3, 6)


def test_the_high_watermark_deletes_all_there_is(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    assert delete(bench, "t", HIGH_WATERMARK) == (0, 6)
    row = fetched(bench, "t", 6)
    assert (row.error_code, row.log_start_offset, len(row.records)) == (0, 6, 0)
    fill(bench, "t", 2)
    assert fetched(bench, "t", 6).high_watermark == 8


def test_an_offset_below_the_start_changes_nothing_and_tells_it(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    assert delete(bench, "t", 4) == (0, 4)
    assert delete(bench, "t", 1) == (0, 4)
    assert delete(bench, "t", 0) == (0, 4)


def test_deleting_in_a_log_without_records_is_no_error(bench: HandlerBench) -> None:
    bench.topic("t")
    assert delete(bench, "t", HIGH_WATERMARK) == (0, 0)


@pytest.mark.parametrize("offset", [7, 2**63 - 1, -2, -(2**63)])
def test_an_offset_outside_the_log_is_refused(bench: HandlerBench, offset: int) -> None:
    bench.topic("t")
    fill(bench, "t")
    assert delete(bench, "t", offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(bench, "t") == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
    ],
)
def test_records_of_a_compacted_topic_go_only_by_their_key(
    bench: HandlerBench, policy: str, code: ErrorCode
) -> None:
    bench.topic("t", cleanup_policy=policy)
    assert delete(bench, "t", HIGH_WATERMARK)[0] == code


def test_records_are_deleted_only_by_their_leader_and_never_of_internal_topics(
    bench: HandlerBench,
) -> None:
    bench.topic("__consumer_offsets")
    assert delete(bench, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(bench, "missing", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    bench.lose_leader(bench.topic("leaderless"))
    assert delete(bench, "leaderless", 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    other = BrokerId(7)
    view = PartitionView((other,), (other,), other, Epoch(1), Epoch(1))
    bench.replay(PartitionChanged(bench.topic("elsewhere"), Partition(0), view))
    assert delete(bench, "elsewhere", 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_of_a_partition_that_stands_twice_the_last_one_counts(bench: HandlerBench) -> None:
    bench.topic("t", partitions=2)
    fill(bench, "t")
    asked = deletion("t", (0, 5), (1, 0), (0, 2))
    (topic,) = bench.ask(k21_delete_records.API, 2, asked).topics
    assert [(row.partition_index, row.low_watermark) for row in topic.partitions] == [
        (0, 2),
        (1, 0),
    ]


def test_the_answer_waits_until_the_start_is_kept(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    bench.storage.answers = None
    client = FakeClient()
    bench.begin(client, k21_delete_records.API, 2, deletion("t", (0, 3), (9, 0)))
    assert client.frames() == []
    bench.storage.asked.pop()(True)  # noqa: FBT003 -- as the storage calls it
    (frame,) = client.frames()
    (topic,) = decode_response(k21_delete_records.API, 2, memoryview(frame))[1].topics
    assert [(row.error_code, row.low_watermark) for row in topic.partitions] == [
        (ErrorCode.NONE, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_start_that_cannot_be_kept_is_not_answered_as_done(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    bench.storage.answers = False
    assert delete(bench, "t", 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    bench.storage.answers = True
    assert delete(bench, "t", 3) == (0, 3), "asking again keeps it"


def test_nothing_is_kept_where_nothing_was_deleted(bench: HandlerBench) -> None:
    bench.storage.answers = None
    assert delete(bench, "missing", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.storage.asked == []


def test_who_left_before_the_answer_gets_none(bench: HandlerBench) -> None:
    bench.topic("t")
    bench.storage.answers = None
    client = FakeClient()
    bench.begin(client, k21_delete_records.API, 2, deletion("t", (0, HIGH_WATERMARK)))
    client.session.closing = True
    bench.storage.asked.pop()(True)  # noqa: FBT003 -- as the storage calls it
    assert client.frames() == []


def test_a_waiting_fetch_learns_that_its_records_are_gone(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    client = FakeClient()
    request = fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1_000_000)
    bench.begin(client, k01_fetch.API, 11, request)
    assert client.frames() == []
    delete(bench, "t", 3)
    (frame,) = client.frames()
    (topic,) = decode_response(k01_fetch.API, 11, memoryview(frame))[1].responses
    assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_produce_that_waits_for_replicas_goes_on_waiting(bench: HandlerBench) -> None:
    bench.topic("t")
    fill(bench, "t")
    woken: list[Instant] = []
    deadline = Instant(bench.now + ms(1_000))
    key = ("t", Partition(0))
    waiter = Waiter((key,), deadline, woken.append, missing=0, ready=lambda: False)
    bench.broker.waiting.park(waiter)
    delete(bench, "t", 3)
    assert not woken


def test_the_first_epoch_begins_with_the_log(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    fill(bench, "t", 2)
    bench.replay(PartitionChanged(topic, Partition(0), led_here(leader_epoch=2, partition_epoch=2)))
    fill(bench, "t", 2)
    delete(bench, "t", 1)
    replica = bench.broker.replicas.get(("t", Partition(0)))
    assert replica is not None
    assert replica.log.epochs.entries() == [(0, 1), (2, 2)]
    delete(bench, "t", 3)
    assert replica.log.epochs.entries() == [(2, 3)]
