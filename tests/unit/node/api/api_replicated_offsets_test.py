"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and what is told of replicas, where there are
several of them."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown, told_starts
from tidelog.kernel.ids import BrokerId, Epoch, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import (
    k00_produce,
    k02_list_offsets,
    k03_metadata,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k35_describe_log_dirs,
    k75_describe_topic_partitions,
)
from tidelog.wire.metadata_records import PartitionView

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
FENCING = [
    (-1, ErrorCode.NONE),
    (2, ErrorCode.FENCED_LEADER_EPOCH),
    (3, ErrorCode.NONE),
    (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
]


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.fixture
def peers(bench: HandlerBench) -> tuple[Peer, Peer]:
    return Peer(bench, 1), Peer(bench, 2)


def produce(bench: HandlerBench, *values: bytes, timestamp: int = 1_000) -> None:
    request = produce_request("t", batch_of(*values, timestamp=timestamp), acks=1)
    row = bench.ask(k00_produce.API, 9, request).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NONE


def listed(
    bench: HandlerBench, timestamp: int, *, version: int = 7, epoch: int = -1
) -> tuple[ErrorCode, int]:
    asked = k02_list_offsets.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
    )
    topics = [k02_list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    request = k02_list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    row = bench.ask(k02_list_offsets.API, version, request).topics[0].partitions[0]
    return ErrorCode(row.error_code), row.offset


def elected(bench: HandlerBench, peers: tuple[Peer, Peer]) -> Uuid:
    """Led here again, in epoch 2, with two records of before of which one is known as committed."""
    topic_id = replicated(bench, "t", shown(0, 1))
    peers[0].follow(topic_id)
    produce(bench, b"a", timestamp=1_000)
    peers[0].ack(1)
    produce(bench, b"b", timestamp=2_000)
    change(bench, topic_id, shown(0, 1, epoch=2, change=1))
    return topic_id


def test_after_an_election_the_end_is_not_told_before_it_is_known_again(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    """Consumers may have read to 2 before; an answer of 1 would send them back."""
    topic_id = elected(bench, peers)
    refused = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert listed(bench, LATEST) == refused
    assert listed(bench, LATEST, version=5) == refused
    assert listed(bench, LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert listed(bench, EARLIEST) == (ErrorCode.NONE, 0)
    assert listed(bench, 1_000) == (ErrorCode.NONE, 0)
    assert listed(bench, 1_500) == refused
    peers[0].follow(topic_id, 2, end=2)
    peers[0].ack(2)
    assert listed(bench, LATEST) == (ErrorCode.NONE, 2)
    assert listed(bench, 1_500) == (ErrorCode.NONE, 1)
    assert listed(bench, 5_000) == (ErrorCode.NONE, -1)
    assert listed(bench, MAX_TIMESTAMP) == (ErrorCode.NONE, 1)


def test_while_its_epoch_is_led_the_end_may_stand_below_the_log_s(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    assert len(peers) == 2
    replicated(bench, "t", shown(0, 1))
    produce(bench, b"a")
    assert listed(bench, LATEST) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(("epoch", "code"), FENCING)
def test_offsets_are_listed_for_the_epoch_the_client_believes_in(
    bench: HandlerBench, peers: tuple[Peer, Peer], epoch: int, code: ErrorCode
) -> None:
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(0, epoch=3))
    assert listed(bench, LATEST, epoch=epoch)[0] is code
    change(bench, topic_id, shown(1, leader=1, epoch=3, change=1))
    follower = ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.NONE else code
    assert listed(bench, LATEST, epoch=epoch)[0] is follower


def epoch_end(
    bench: HandlerBench, epoch: int, *, current: int = -1, replica_id: int = -1
) -> tuple[ErrorCode, int, int]:
    messages = k23_offset_for_leader_epoch
    asked = messages.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topic = messages.OffsetForLeaderTopic(topic="t", partitions=[asked])
    request = messages.OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[topic])
    row = bench.ask(messages.API, 4, request).topics[0].partitions[0]
    return ErrorCode(row.error_code), row.leader_epoch, row.end_offset


def test_an_epoch_s_end_is_told_to_consumers_and_to_replicas(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    elected(bench, peers)
    produce(bench, b"c")
    for asker in (-1, 1):
        assert epoch_end(bench, 0, replica_id=asker) == (ErrorCode.NONE, 0, 2)
        assert epoch_end(bench, 1, replica_id=asker) == (ErrorCode.NONE, 0, 2)
        assert epoch_end(bench, 2, replica_id=asker) == (ErrorCode.NONE, 2, 3)
        assert epoch_end(bench, 3, replica_id=asker) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(("epoch", "code"), FENCING)
def test_an_epoch_s_end_is_told_for_the_epoch_the_client_believes_in(
    bench: HandlerBench, peers: tuple[Peer, Peer], epoch: int, code: ErrorCode
) -> None:
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(0, epoch=3))
    assert epoch_end(bench, 3, current=epoch)[0] is code
    change(bench, topic_id, shown(1, leader=1, epoch=3, change=1))
    follower = ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.NONE else code
    assert epoch_end(bench, 3, current=epoch)[0] is follower


# -- DeleteRecords


def begin_deletion(bench: HandlerBench, offset: int) -> FakeClient:
    messages = k21_delete_records
    row = messages.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = messages.DeleteRecordsTopic(name="t", partitions=[row])
    client = FakeClient()
    request = messages.DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
    bench.begin(client, messages.API, 2, request)
    return client


def deleted(client: FakeClient) -> tuple[ErrorCode, int]:
    (frame,) = client.frames()
    answer = decode_response(k21_delete_records.API, 2, memoryview(frame))[1]
    row = answer.topics[0].partitions[0]
    return ErrorCode(row.error_code), row.low_watermark


def filled(bench: HandlerBench, peers: tuple[Peer, Peer]) -> Uuid:
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    for peer in peers:
        peer.follow(topic_id)
    for _ in range(4):
        produce(bench, b"x")
    for peer in peers:
        peer.ack(4)
    return topic_id


def test_records_are_deleted_when_no_replica_shows_them(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    filled(bench, peers)
    client = begin_deletion(bench, 3)
    peers[0].ack(4, log_start=3)
    assert client.frames() == []
    peers[1].ack(4, log_start=2)
    assert client.frames() == []
    peers[1].ack(4, log_start=3)
    assert deleted(client) == (ErrorCode.NONE, 3)


def test_followers_are_told_of_the_new_start_at_once(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    filled(bench, peers)
    bench.replication.take_sends()
    begin_deletion(bench, 3)
    assert told_starts(bench) == {1: 3, 2: 3}


def test_a_replica_that_is_fenced_is_not_waited_for(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    filled(bench, peers)
    peers[1].fence()
    client = begin_deletion(bench, 3)
    peers[0].ack(4, log_start=3)
    assert deleted(client) == (ErrorCode.NONE, 3)


def test_a_deletion_is_answered_when_the_replica_it_waits_for_is_fenced(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    """Also when that replica is not in sync, so that nothing changes in the partition."""
    topic_id = filled(bench, peers)
    change(bench, topic_id, shown(0, 1, change=1))
    client = begin_deletion(bench, 3)
    peers[0].ack(4, log_start=3)
    assert client.frames() == []
    peers[1].fence()
    assert deleted(client) == (ErrorCode.NONE, 3)


def test_a_deletion_that_a_replica_does_not_follow_times_out_and_tells_how_far_it_came(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    filled(bench, peers)
    client = begin_deletion(bench, 3)
    peers[0].ack(4, log_start=3)
    peers[1].ack(4, log_start=1)
    bench.broker.waiting.expire(Instant(bench.now + ms(1_000)))
    assert deleted(client) == (ErrorCode.REQUEST_TIMED_OUT, 1)


def test_a_deletion_is_of_its_leader_s_epoch(bench: HandlerBench, peers: tuple[Peer, Peer]) -> None:
    topic_id = filled(bench, peers)
    client = begin_deletion(bench, 3)
    change(bench, topic_id, shown(1, 2, leader=1, epoch=1, change=1))
    assert deleted(client) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


# -- what is told of replicas


def told(bench: HandlerBench) -> tuple[Any, Any]:
    """The row of Metadata, and that of DescribeTopicPartitions."""
    request = k03_metadata.MetadataRequest(topics=None)
    old = bench.ask(k03_metadata.API, 12, request).topics[0].partitions[0]
    messages = k75_describe_topic_partitions
    asked = messages.DescribeTopicPartitionsRequest(topics=[messages.TopicRequest(name="t")])
    return old, bench.ask(messages.API, 0, asked).topics[0].partitions[0]


def test_replicas_in_sync_and_offline_are_told_apart(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    peers[1].fence()
    change(bench, topic_id, shown(0, 1, change=1))
    for row in told(bench):
        assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (0, [0, 1, 2], [0, 1])
        assert row.offline_replicas == [2]
    assert told(bench)[0].error_code == ErrorCode.NONE


def test_a_partition_is_led_by_nobody_where_its_leader_is_fenced(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    change(bench, topic_id, shown(1, leader=1, epoch=1, change=1))
    peers[0].fence()
    row, _ = told(bench)
    assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert row.offline_replicas == [1]


def test_who_may_still_lead_is_told(bench: HandlerBench, peers: tuple[Peer, Peer]) -> None:
    assert len(peers) == 2
    one, two = BrokerId(1), BrokerId(2)
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    view = PartitionView(
        replicas=shown().replicas,
        isr=(BrokerId(0),),
        leader=BrokerId(0),
        partition_epoch=Epoch(1),
        elr=(one,),
        last_known=(two,),
    )
    change(bench, topic_id, view)
    _, row = told(bench)
    assert (row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr) == ([0], [1], [2])


def test_log_directories_show_replicas_that_are_led_and_that_are_followed(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    assert len(peers) == 2
    replicated(bench, "led", shown(0, 1, 2))
    replicated(bench, "followed", shown(1, 2, leader=1))
    replicated(bench, "elsewhere", shown(1, leader=1, replicas=(1,)))
    request = k35_describe_log_dirs.DescribeLogDirsRequest(topics=None)
    (directory,) = bench.ask(k35_describe_log_dirs.API, 4, request).results
    assert {topic.name for topic in directory.topics} == {"led", "followed"}
    assert {row.offset_lag for topic in directory.topics for row in topic.partitions} == {0}
