"""The consumer protocol at a broker's handlers, and groups that change from one protocol to the
other while they are empty: silently."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import led_here
from harness.machines.classic_clients import Client, join_all, listed
from harness.machines.group_bench import GroupBench, commit_request, elected_again, fetch_offsets
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit as k08
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k68_consumer_group_heartbeat as k68
from tidelog.wire.messages import k69_consumer_group_describe as k69
from tidelog.wire.metadata_records import ConfigChanged, PartitionCreated, ResourceKind


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def heartbeat(bench: GroupBench, epoch: int, *, version: int = 1, member: str = "m") -> Any:
    joins = epoch == 0
    request = k68.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=["t"] if joins else None,
        topic_partitions=[] if joins else None,
    )
    return bench.ask(k68.API, version, request)


def described(bench: GroupBench) -> k69.DescribedGroup:
    answer = bench.ask(k69.API, 1, k69.ConsumerGroupDescribeRequest(group_ids=["g"]))
    group: k69.DescribedGroup = answer.groups[0]
    return group


def commit_as(bench: GroupBench, member: str, epoch: int) -> int:
    request = commit_request("g", {"t": [5]}, member_id=member, generation_id_or_member_epoch=epoch)
    return int(bench.ask(k08.API, 9, request).topics[0].partitions[0].error_code)


def join_classic(client: Client) -> None:
    join_all(client.bench, client)
    assert client.start_syncing({client.member_id: b"all"}).answer().error_code == 0


def test_a_member_is_given_its_partitions_and_the_group_is_described(bench: GroupBench) -> None:
    answer = heartbeat(bench, 0)
    topic = bench.image.names["t"].id
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 1, 500)
    assert answer.assignment.topic_partitions == [
        k68.TopicPartitions(topic_id=topic, partitions=[0, 1, 2])
    ]
    group = described(bench)
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "uniform")
    assert [one.topic_name for one in group.members[0].assignment.topic_partitions] == ["t"]
    assert listed(bench) == [("g", "consumer", "Stable", "consumer")]


def test_a_member_is_described_with_the_expression_that_it_reads_by(bench: GroupBench) -> None:
    request = k68.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex="t.*",
        topic_partitions=[],
    )
    bench.ask(k68.API, 1, request)
    (member,) = described(bench).members
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("t.*", [])


def test_who_joins_in_version_0_is_given_an_id(bench: GroupBench) -> None:
    answer = heartbeat(bench, 0, version=0, member="")
    assert answer.error_code == 0
    assert answer.member_id


def test_offsets_are_committed_and_fetched_with_the_members_epoch(bench: GroupBench) -> None:
    heartbeat(bench, 0)
    assert commit_as(bench, "m", 1) == 0
    assert commit_as(bench, "m", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(bench, "x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    group = k09.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=7, topics=None)
    answer = bench.ask(k09.API, 9, k09.OffsetFetchRequest(groups=[group]))
    assert answer.groups[0].error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_a_new_leader_of_the_partition_knows_the_group(bench: GroupBench) -> None:
    heartbeat(bench, 0)
    before = described(bench)
    elected_again(bench, epoch=1)
    bench.load()
    assert described(bench) == before
    assert heartbeat(bench, 1).error_code == 0
    bench.later(46_000)
    assert described(bench).group_state == "Empty"


def test_an_empty_classic_group_becomes_one_of_the_consumer_protocol(bench: GroupBench) -> None:
    client = Client(bench)
    join_classic(client)
    assert commit_as(bench, client.member_id, client.generation) == 0
    assert client.leave() == 0
    answer = heartbeat(bench, 0)
    assert (answer.error_code, answer.member_epoch) == (0, client.generation + 2), "it counts on"
    assert listed(bench) == [("g", "consumer", "Stable", "consumer")]
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 5}
    elected_again(bench, epoch=1)
    bench.load()
    assert described(bench).group_state == "Stable"


def test_an_empty_group_of_the_consumer_protocol_becomes_classic(bench: GroupBench) -> None:
    heartbeat(bench, 0)
    assert commit_as(bench, "m", 1) == 0
    heartbeat(bench, -1)
    client = Client(bench)
    join_classic(client)
    assert client.generation == 3, "the member left in epoch 2"
    assert listed(bench) == [("g", "consumer", "Stable", "classic")]
    assert described(bench).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert heartbeat(bench, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 5}
    elected_again(bench, epoch=1)
    bench.load()
    assert listed(bench) == [("g", "consumer", "Stable", "classic")]


def test_a_group_that_changes_while_it_is_empty_never_gives_a_number_twice(
    bench: GroupBench,
) -> None:
    heartbeat(bench, 0)
    heartbeat(bench, -1)
    client = Client(bench)
    client.get_id()
    elected_again(bench, epoch=1)
    bench.load()
    assert heartbeat(bench, 0).member_epoch == 3
    heartbeat(bench, -1)
    again = Client(bench)
    join_classic(again)
    assert again.generation == 5


def test_a_group_has_its_own_heartbeat_interval(bench: GroupBench) -> None:
    setting = "consumer.heartbeat.interval.ms"
    bench.replay(ConfigChanged(ResourceKind.GROUP, "g", setting, "250"))
    assert heartbeat(bench, 0).heartbeat_interval_ms == 250


def test_a_topic_that_grows_moves_the_group(bench: GroupBench) -> None:
    heartbeat(bench, 0)
    topic = bench.image.names["t"].id
    bench.replay(PartitionCreated(topic, Partition(3), led_here()))
    answer = heartbeat(bench, 1)
    assert (answer.member_epoch, answer.assignment.topic_partitions[0].partitions) == (
        2,
        [0, 1, 2, 3],
    )
