"""Offsets of topics that are named by their ids: OffsetCommit and OffsetFetch of version 10."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.group_bench import GroupBench, commit, elected_again, fetch_offsets
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit, k09_offset_fetch

NOWHERE = Uuid(b"nobody has this!")
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_ID


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path / "log0")


def commit_by_id(bench: GroupBench, topics: dict[Uuid, dict[int, int]], **who: Any) -> Any:
    """The codes, by topic and partition."""
    request = k08_offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            k08_offset_commit.OffsetCommitRequestTopic(
                topic_id=topic,
                partitions=[
                    k08_offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=None
                    )
                    for index, offset in offsets.items()
                ],
            )
            for topic, offsets in topics.items()
        ],
        **who,
    )
    answer = bench.ask(k08_offset_commit.API, 10, request)
    return {
        (topic.topic_id, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def fetch_by_id(bench: GroupBench, topics: dict[Uuid, list[int]] | None) -> Any:
    """Offsets and codes, by topic and partition."""
    wanted = None
    if topics is not None:
        wanted = [
            k09_offset_fetch.OffsetFetchRequestTopics(topic_id=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ]
    asked = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=wanted)
    request = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
    (group,) = bench.ask(k09_offset_fetch.API, 10, request).groups
    assert group.error_code == 0
    return {
        (topic.topic_id, row.partition_index): (row.committed_offset, row.error_code)
        for topic in group.topics
        for row in topic.partitions
    }


def test_what_is_committed_by_id_is_fetched_by_id_and_by_name(bench: GroupBench) -> None:
    t, u = bench.topic("t", 2), bench.topic("u", 1)
    assert commit_by_id(bench, {t: {0: 5, 1: 6}, u: {0: 7}}) == {(t, 0): 0, (t, 1): 0, (u, 0): 0}
    assert fetch_by_id(bench, {t: [1, 0], u: [0]}) == {
        (t, 1): (6, 0),
        (t, 0): (5, 0),
        (u, 0): (7, 0),
    }
    assert fetch_offsets(bench, "g") == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}
    assert fetch_by_id(bench, None) == fetch_by_id(bench, {t: [0, 1], u: [0]})


def test_an_id_that_nobody_has_is_told_and_the_rest_is_committed(bench: GroupBench) -> None:
    t = bench.topic("t", 1)
    assert commit_by_id(bench, {NOWHERE: {0: 1}, t: {0: 2, 3: 4}, ZERO_UUID: {0: 1}}) == {
        (NOWHERE, 0): UNKNOWN,
        (t, 0): 0,
        (t, 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (ZERO_UUID, 0): UNKNOWN,
    }
    assert fetch_by_id(bench, {NOWHERE: [0, 1], t: [0, 3]}) == {
        (t, 0): (2, 0),
        (t, 3): (-1, 0),
        (NOWHERE, 0): (-1, UNKNOWN),
        (NOWHERE, 1): (-1, UNKNOWN),
    }


def test_a_topic_made_anew_under_its_name_has_none_of_its_forerunner_s_offsets(
    bench: GroupBench,
) -> None:
    first = bench.topic("t", 1)
    commit_by_id(bench, {first: {0: 5}})
    bench.delete(first)
    again = bench.topic("t", 1)
    assert fetch_by_id(bench, {again: [0], first: [0]}) == {
        (again, 0): (-1, 0),
        (first, 0): (-1, UNKNOWN),
    }


def test_an_offset_that_outlived_its_topic_is_not_that_of_the_next_one(bench: GroupBench) -> None:
    """The coordinator that led when the topic went may have died before it had forgotten them."""
    first = bench.topic("t", 1)
    commit_by_id(bench, {first: {0: 5}})
    bench.broker.groups._forget_deleted = lambda *_: None  # type: ignore[method-assign]  # as said
    bench.delete(first)
    again = bench.topic("t", 1)
    assert fetch_offsets(bench, "g") == {}
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): -1}
    assert fetch_by_id(bench, {again: [0]}) == {(again, 0): (-1, 0)}
    assert commit(bench, "g", {"t": [8]}) == [0]
    assert fetch_by_id(bench, {again: [0]}) == {(again, 0): (8, 0)}


def test_a_group_that_only_has_offsets_has_no_members(bench: GroupBench) -> None:
    t = bench.topic("t", 1)
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit_by_id(bench, {t: {0: 1}}, **member) == {(t, 0): ErrorCode.GROUP_ID_NOT_FOUND}
    commit_by_id(bench, {t: {0: 1}})
    assert commit_by_id(bench, {t: {0: 1}}, **member) == {(t, 0): ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_refusal_lists_the_partitions_that_were_asked_for(
    bench: GroupBench, version: int
) -> None:
    """librdkafka asks again for those alone; where none is listed it waits for ever."""
    topic = bench.topic("t", 2)
    elected_again(bench, epoch=1)
    rows = k09_offset_fetch.OffsetFetchRequestTopics(
        name="t", topic_id=topic, partition_indexes=[0, 1]
    )
    asked = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[rows])
    request = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
    (group,) = bench.ask(k09_offset_fetch.API, version, request).groups
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (found,) = group.topics
    assert [(row.partition_index, row.committed_offset) for row in found.partitions] == [
        (0, -1),
        (1, -1),
    ]
