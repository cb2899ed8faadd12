"""Answers that depend on the version of the request, as Kafka's do."""

from pathlib import Path

import pytest

from harness.machines.brokers import HandlerBench
from harness.machines.consumer_groups import REBALANCE_MS
from harness.machines.group_bench import GroupBench
from tidelog.kernel.ids import Partition
from tidelog.node.api import operations
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import (
    k01_fetch,
    k15_describe_groups,
    k20_delete_topics,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t")
    return bench


@pytest.mark.parametrize("asks", [False, True])
def test_what_may_be_done_with_a_consumer_group_is_told_where_it_is_asked(
    bench: GroupBench, *, asks: bool
) -> None:
    beat = k68_consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert bench.ask(k68_consumer_group_heartbeat.API, 0, beat).error_code == 0
    request = k69_consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=["g", "nobody"], include_authorized_operations=asks
    )
    found, missing = bench.ask(k69_consumer_group_describe.API, 1, request).groups
    assert found.authorized_operations == (operations.ON_GROUP if asks else operations.NOT_ASKED)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.authorized_operations == operations.NOT_ASKED


@pytest.mark.parametrize(
    ("version", "asks", "code"),
    [
        (3, True, ErrorCode.NONE),
        (5, True, ErrorCode.NONE),
        (5, False, ErrorCode.NONE),
        (6, True, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_of_a_dead_group_too_it_is_told_where_it_is_no_error(
    bench: GroupBench, version: int, code: ErrorCode, *, asks: bool
) -> None:
    request = k15_describe_groups.DescribeGroupsRequest(
        groups=["nobody"], include_authorized_operations=asks
    )
    (found,) = bench.ask(k15_describe_groups.API, version, request).groups
    is_told = asks and code is ErrorCode.NONE
    told = operations.ON_GROUP if is_told else operations.NOT_ASKED
    assert (found.error_code, found.authorized_operations) == (code, told)


@pytest.mark.parametrize("version", [1, 2, 3, 6])
def test_clients_of_old_do_not_know_that_deletion_can_be_disabled(
    tmp_path: Path, version: int
) -> None:
    bench = HandlerBench(tmp_path / "log0", delete_topic_enable="false")
    if version < 6:
        request = k20_delete_topics.DeleteTopicsRequest(topic_names=["t"])
    else:
        state = k20_delete_topics.DeleteTopicState(name="t")
        request = k20_delete_topics.DeleteTopicsRequest(topics=[state])
    (row,) = bench.ask(k20_delete_topics.API, version, request).responses
    told = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert row.error_code == told


@pytest.mark.parametrize("version", [4, 5, 6, 12])
def test_readers_of_old_look_for_another_leader_where_a_disk_fails(
    bench: GroupBench, version: int
) -> None:
    bench.broker.replicas.take_offline(("t", Partition(0)))
    partition = k01_fetch.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1
    )
    topic = k01_fetch.FetchTopic(topic="t", partitions=[partition])
    request = k01_fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic], session_epoch=-1
    )
    (row,) = bench.ask(k01_fetch.API, version, request).responses[0].partitions
    told = ErrorCode.KAFKA_STORAGE_ERROR if version >= 6 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.error_code == told
