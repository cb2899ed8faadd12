"""A request that names very much: the answer tells of each thing once, and others have their turn.

The answer tells much more of a thing than the request takes to name it. So a request of 1 MB could
have an answer of gigabytes.
"""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.machines.brokers import turns
from harness.machines.group_bench import GroupBench, commit
from tidelog.kernel import limits
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import (
    k00_produce,
    k09_offset_fetch,
    k10_find_coordinator,
    k15_describe_groups,
    k23_offset_for_leader_epoch,
    k61_describe_producers,
    k65_describe_transactions,
)
from tidelog.wire.records import Origin, Record, build_batch

MANY = 1_000


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    commit(bench, "g", {"t": [5, 6]})
    return bench


def test_a_group_is_described_once(bench: GroupBench) -> None:
    asked = k15_describe_groups.DescribeGroupsRequest(groups=["g", "other"] * MANY)
    groups = bench.ask(k15_describe_groups.API, 5, asked).groups
    assert [group.group_id for group in groups] == ["g", "other"]


def offsets_of(
    bench: GroupBench, *groups: k09_offset_fetch.OffsetFetchRequestGroup
) -> list[tuple[str, list[tuple[str, list[tuple[int, int]]]]]]:
    request = k09_offset_fetch.OffsetFetchRequest(groups=list(groups))
    answer: Any = bench.ask(k09_offset_fetch.API, 8, request)
    return [(group.group_id, [_told(topic) for topic in group.topics]) for group in answer.groups]


def _told(topic: Any) -> tuple[str, list[tuple[int, int]]]:
    return topic.name, [(row.partition_index, row.committed_offset) for row in topic.partitions]


def group_of(*topics: tuple[str, list[int]]) -> k09_offset_fetch.OffsetFetchRequestGroup:
    return k09_offset_fetch.OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            k09_offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ],
    )


def test_all_offsets_of_a_group_are_told_once(bench: GroupBench) -> None:
    everything = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    expected = [("g", [("t", [(0, 5), (1, 6)])])]
    assert offsets_of(bench, *[everything] * MANY) == expected
    assert offsets_of(bench, group_of(("t", [2])), everything) == expected


def test_each_partition_s_offset_is_told_once(bench: GroupBench) -> None:
    asked = [("t", [1, 0] * MANY)] * 2 + [("u", [0]), ("t", [2])]
    expected = [("g", [("t", [(1, 6), (0, 5), (2, -1)]), ("u", [(0, -1)])])]
    assert offsets_of(bench, group_of(*asked)) == expected
    assert offsets_of(bench, *(group_of(one) for one in asked)) == expected


def produce(bench: GroupBench, producer: int) -> None:
    batch = build_batch([Record(0, 1, None, b"")], origin=Origin(producer, 0, 0))
    bench.ask(k00_produce.API, 9, produce_request("t", batch))


def test_the_producers_of_a_partition_are_told_once(bench: GroupBench) -> None:
    produce(bench, 7)
    asked = k61_describe_producers.TopicRequest(name="t", partition_indexes=[0, 1] * MANY)
    request = k61_describe_producers.DescribeProducersRequest(topics=[asked] * 3)
    (topic,) = bench.ask(k61_describe_producers.API, 0, request).topics
    told = [(row.partition_index, len(row.active_producers)) for row in topic.partitions]
    assert told == [(0, 1), (1, 0)]


def test_others_have_their_turn_between_many_producers(bench: GroupBench) -> None:
    for producer in range(limits.ROWS_PER_STEP):
        produce(bench, producer)
    asked = k61_describe_producers.TopicRequest(name="t", partition_indexes=[0, 1, 2])
    request = k61_describe_producers.DescribeProducersRequest(topics=[asked])
    bench.aside = []
    waits = bench.start_asking(k61_describe_producers.API, 0, request)
    assert len(bench.aside) == 1
    bench.aside.pop()()
    (frame,) = waits.client.frames()
    (topic,) = decode_response(k61_describe_producers.API, 0, memoryview(frame))[1].topics
    told = [len(row.active_producers) for row in topic.partitions]
    assert told == [limits.ROWS_PER_STEP, 0, 0]


def test_others_have_their_turn_between_many_groups(bench: GroupBench) -> None:
    names = [str(number) for number in range(2 * limits.ROWS_PER_STEP + 1)]
    bench.aside = []
    asked = k15_describe_groups.DescribeGroupsRequest(groups=names)
    waits = bench.start_asking(k15_describe_groups.API, 5, asked)
    assert turns(bench) == 4
    (frame,) = waits.client.frames()
    groups = decode_response(k15_describe_groups.API, 5, memoryview(frame))[1].groups
    assert [group.group_id for group in groups] == names


def test_others_have_their_turn_between_many_ends_of_epochs(bench: GroupBench) -> None:
    row = k23_offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=0
    )
    rows = [row] * (2 * limits.ROWS_PER_STEP + 1)
    topic = k23_offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=rows)
    asked = k23_offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    bench.aside = []
    waits = bench.start_asking(k23_offset_for_leader_epoch.API, 4, asked)
    assert turns(bench) == 2
    (frame,) = waits.client.frames()
    (told,) = decode_response(k23_offset_for_leader_epoch.API, 4, memoryview(frame))[1].topics
    assert [(one.error_code, one.end_offset) for one in told.partitions] == [(0, 0)] * len(rows)


def test_others_have_their_turn_between_long_names_of_groups(bench: GroupBench) -> None:
    names = [f"{number}-{'x' * 32_000}" for number in range(5)]
    bench.aside = []
    asked = k10_find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names * 2)
    waits = bench.start_asking(k10_find_coordinator.API, 4, asked)
    assert turns(bench) == 14
    (frame,) = waits.client.frames()
    told = decode_response(k10_find_coordinator.API, 4, memoryview(frame))[1].coordinators
    assert [(one.key, one.error_code) for one in told] == [(name, 0) for name in names]


def test_others_have_their_turn_between_many_transactional_ids(bench: GroupBench) -> None:
    names = [str(number) for number in range(limits.ROWS_PER_STEP + 1)]
    bench.aside = []
    asked = k65_describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
    waits = bench.start_asking(k65_describe_transactions.API, 0, asked)
    assert turns(bench) == 2
    (frame,) = waits.client.frames()
    told = decode_response(k65_describe_transactions.API, 0, memoryview(frame))[1]
    assert {one.error_code for one in told.transaction_states} == {ErrorCode.NOT_COORDINATOR}
