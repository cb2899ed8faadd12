"""What an admin client asks about one broker's partitions: sizes, producers, epochs."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import START_MS, HandlerBench, led_here
from tidelog.kernel.ids import BrokerId, Epoch, Partition, Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import (
    k00_produce,
    k23_offset_for_leader_epoch,
    k35_describe_log_dirs,
    k61_describe_producers,
)
from tidelog.wire.metadata_records import PartitionChanged, PartitionView
from tidelog.wire.records import Origin, Record, build_batch


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def produce(bench: HandlerBench, topic: str, batch: bytearray) -> None:
    answer = bench.ask(k00_produce.API, 9, produce_request(topic, batch))
    assert answer.responses[0].partition_responses[0].error_code == 0


def sequenced(producer_id: int, epoch: int, sequence: int, records: int = 1) -> bytearray:
    origin = Origin(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    rows = [Record(n, START_MS - 10 + n, None, b"x") for n in range(records)]
    return bytearray(build_batch(rows, origin=origin))


# -- DescribeLogDirs


def log_dirs(bench: HandlerBench, version: int, *topics: tuple[str, list[int]]) -> Any:
    asked = [
        k35_describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=indexes)
        for name, indexes in topics
    ]
    request = k35_describe_log_dirs.DescribeLogDirsRequest(topics=asked or None)
    answer = bench.ask(k35_describe_log_dirs.API, version, request)
    assert answer.error_code == 0
    (result,) = answer.results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_size
        for topic in result.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_the_directory_tells_the_size_of_each_partition(bench: HandlerBench, version: int) -> None:
    bench.topic("t", partitions=2)
    batch = batch_of(b"x" * 100)
    size = len(batch)
    produce(bench, "t", batch)
    result = log_dirs(bench, version)
    assert (result.error_code, result.log_dir) == (0, bench.storage.path)
    assert sizes(result) == {("t", 0): size, ("t", 1): 0}
    assert [(row.offset_lag, row.is_future_key) for row in result.topics[0].partitions] == [
        (0, False)
    ] * 2
    room = (1_000_000, 400_000) if version >= 4 else (-1, -1)
    assert (result.total_bytes, result.usable_bytes) == room
    assert not result.is_cordoned


def test_only_the_partitions_asked_for_are_told_and_strange_ones_left_out(
    bench: HandlerBench,
) -> None:
    bench.topic("t", partitions=3)
    bench.topic("u")
    result = log_dirs(bench, 4, ("t", [2, 0, 2, 9]), ("missing", [0]))
    assert sizes(result) == {("t", 2): 0, ("t", 0): 0}
    assert log_dirs(bench, 4, ("missing", [0])).topics == []


def test_a_volume_that_cannot_be_asked_is_that_directory_s_error(bench: HandlerBench) -> None:
    bench.topic("t")
    bench.storage.failure = OSError(5, "input/output error")
    result = log_dirs(bench, 4)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)


# -- DescribeProducers


def producers(bench: HandlerBench, topic: str, index: int = 0) -> Any:
    asked = k61_describe_producers.TopicRequest(name=topic, partition_indexes=[index])
    request = k61_describe_producers.DescribeProducersRequest(topics=[asked])
    (row,) = bench.ask(k61_describe_producers.API, 0, request).topics[0].partitions
    return row


def test_a_producer_is_told_with_its_epoch_and_its_last_sequence(bench: HandlerBench) -> None:
    bench.topic("t")
    produce(bench, "t", batch_of(b"not idempotent"))
    produce(bench, "t", sequenced(5, 0, 0, records=3))
    produce(bench, "t", sequenced(5, 0, 3, records=2))
    produce(bench, "t", sequenced(6, 2, 0))
    row = producers(bench, "t")
    assert (row.error_code, row.error_message) == (0, None)
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in row.active_producers] == [
        (5, 0, 4),
        (6, 2, 0),
    ]
    first = row.active_producers[0]
    assert first.last_timestamp == START_MS - 9  # of the record, not of the clock
    assert (first.coordinator_epoch, first.current_txn_start_offset) == (-1, -1)


def test_producers_of_no_partition_are_refused(bench: HandlerBench) -> None:
    bench.topic("t")
    assert producers(bench, "t").active_producers == []
    assert producers(bench, "t", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(bench, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    row = producers(bench, "no spaces")
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert row.error_message


def test_a_follower_knows_its_producers_too(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    produce(bench, "t", sequenced(5, 0, 0))
    bench.lose_leader(topic)
    assert [row.producer_id for row in producers(bench, "t").active_producers] == [5]


def test_a_topic_asked_without_partitions_is_in_the_answer_without_any(bench: HandlerBench) -> None:
    asked = k61_describe_producers.TopicRequest(name="t", partition_indexes=[])
    request = k61_describe_producers.DescribeProducersRequest(topics=[asked])
    (topic,) = bench.ask(k61_describe_producers.API, 0, request).topics
    assert (topic.name, topic.partitions) == ("t", [])


# -- OffsetForLeaderEpoch


def epoch_end(
    bench: HandlerBench, epoch: int, *, topic: str = "t", current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    """Error, epoch, end offset."""
    asked = k23_offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = [k23_offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    request = k23_offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)
    answer = bench.ask(k23_offset_for_leader_epoch.API, version, request)
    (row,) = answer.topics[0].partitions
    return row.error_code, row.leader_epoch, row.end_offset


def lead_again(bench: HandlerBench, topic: Uuid, epoch: int) -> None:
    bench.replay(
        PartitionChanged(topic, Partition(0), led_here(leader_epoch=epoch, partition_epoch=epoch))
    )


@pytest.mark.parametrize("version", [2, 3, 4])
def test_each_epoch_ends_where_the_next_one_wrote(bench: HandlerBench, version: int) -> None:
    topic = bench.topic("t")
    for epoch, records in ((1, 2), (4, 1), (7, 3)):
        lead_again(bench, topic, epoch)
        produce(bench, "t", batch_of(*[b"x"] * records))

    def ends(epoch: int) -> tuple[int, int, int]:
        return epoch_end(bench, epoch, version=version)

    assert ends(7) == (0, 7, 6), "the current one ends where the log does"
    assert ends(1) == (0, 1, 2)
    assert ends(4) == (0, 4, 3)
    assert ends(5) == (0, 4, 3), "the largest known one below"
    assert ends(0) == (0, 0, 0), "older than all: the start of the first known"
    assert ends(8) == (0, -1, -1), "newer than all"
    assert ends(-1) == (0, -1, -1), "who knows none learns none"


def test_an_epoch_is_told_only_to_who_knows_the_leader(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    lead_again(bench, topic, 3)
    assert epoch_end(bench, 3, current=3) == (0, 3, 0)
    assert epoch_end(bench, 3, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert epoch_end(bench, 3, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(bench, 3, topic="u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    bench.lose_leader(bench.topic("v"))
    assert epoch_end(bench, 0, topic="v") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_a_partition_on_another_broker_is_not_unknown_but_led_elsewhere(
    bench: HandlerBench,
) -> None:
    bench.topic("t")
    topic = bench.topic("elsewhere")
    other = BrokerId(7)
    view = PartitionView((other,), (other,), other, Epoch(1), Epoch(1))
    bench.replay(PartitionChanged(topic, Partition(0), view))
    assert bench.broker.replicas.get(("elsewhere", Partition(0))) is None
    not_here = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert epoch_end(bench, 0, topic="elsewhere")[0] == not_here
    assert producers(bench, "elsewhere").error_code == not_here
