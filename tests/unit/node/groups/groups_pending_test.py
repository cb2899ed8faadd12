"""Offsets that a transaction commits: they count once it is committed, and never otherwise."""

from pathlib import Path

import pytest

from harness.machines.classic_clients import Client, form, listed
from harness.machines.group_bench import GroupBench, commit, elected_again, fetch_offsets
from harness.machines.transactions import end_in_group, group_partition, pend
from tidelog.kernel.ids import Offset
from tidelog.node.groups.offsets import Offsets
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.groups.records import CommittedOffset, OffsetRecord
from tidelog.node.groups.requests import Who
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k09_offset_fetch, k15_describe_groups, k42_delete_groups
from tidelog.wire.messages.k16_list_groups import API as LIST_GROUPS
from tidelog.wire.messages.k16_list_groups import ListGroupsRequest

HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", offsets_retention_minutes="60")
    bench.topic("t", 1)
    return bench


def stable_offset(bench: GroupBench, group: str) -> int | ErrorCode:
    """As a reader sees it that wants only what no open transaction may change."""
    topic = k09_offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    wanted = k09_offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    request = k09_offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True)
    (found,) = bench.ask(k09_offset_fetch.API, 8, request).groups
    row = found.topics[0].partitions[0]
    return ErrorCode(row.error_code) if row.error_code else int(row.committed_offset)


def delete(bench: GroupBench, group: str) -> int:
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=[group])
    return int(bench.ask(k42_delete_groups.API, 2, request).results[0].error_code)


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_they_count_once_their_marker_says_so(
    bench: GroupBench, *, committed: bool, reloaded: bool
) -> None:
    commit(bench, "g", {"t": [1]})
    assert pend(bench, "g", 5) is None
    if reloaded:
        elected_again(bench, epoch=1)
        bench.load()
    assert fetch_offsets(bench, "g") == {("t", 0): 1}
    assert stable_offset(bench, "g") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end_in_group(bench, "g", 7, committed=committed)
    assert stable_offset(bench, "g") == (5 if committed else 1)
    elected_again(bench, epoch=2)
    bench.load()
    assert stable_offset(bench, "g") == (5 if committed else 1)


def test_a_commit_that_came_later_is_not_taken_back(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    commit(bench, "g", {"t": [9]})
    end_in_group(bench, "g", 7, committed=True)
    assert fetch_offsets(bench, "g") == {("t", 0): 9}
    elected_again(bench, epoch=1)
    bench.load()
    assert fetch_offsets(bench, "g") == {("t", 0): 9}


def test_each_producer_s_marker_ends_its_own(bench: GroupBench) -> None:
    pend(bench, "g", 5, producer_id=7)
    pend(bench, "g", 6, producer_id=8)
    end_in_group(bench, "g", 9, committed=True)
    end_in_group(bench, "g", 8, committed=True)
    assert stable_offset(bench, "g") is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end_in_group(bench, "g", 7, committed=False)
    assert stable_offset(bench, "g") == 6


def test_the_next_transaction_of_a_producer_begins_with_nothing(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    end_in_group(bench, "g", 7, committed=False)
    pend(bench, "g", 6, epoch=1)
    end_in_group(bench, "g", 7, committed=True, epoch=1)
    assert fetch_offsets(bench, "g") == {("t", 0): 6}


def test_a_producer_of_the_past_commits_nothing(bench: GroupBench) -> None:
    end_in_group(bench, "g", 7, committed=False, epoch=3)
    assert pend(bench, "g", 5, epoch=2) == Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert pend(bench, "g", 5, epoch=3) is None


@pytest.mark.parametrize(
    ("who", "code"),
    [
        (Who("", None, 3), ErrorCode.ILLEGAL_GENERATION),
        (Who("m", None, -1), None),
        (Who("", None, -1), None),
    ],
)
def test_of_a_group_that_is_not_there_nobody_is_a_member(
    bench: GroupBench, who: Who, code: ErrorCode | None
) -> None:
    assert pend(bench, "g", 5, who=who) == (None if code is None else Refusal(code))


def test_a_group_with_nothing_but_a_pending_offset_is_there(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    listed = bench.ask(LIST_GROUPS, 4, ListGroupsRequest())
    assert [row.group_id for row in listed.groups] == ["g"]
    asked = k15_describe_groups.DescribeGroupsRequest(groups=["g"])
    (group,) = bench.ask(k15_describe_groups.API, 5, asked).groups
    assert (group.error_code, group.group_state) == (0, "Empty")


def test_a_deleted_group_takes_its_pending_offsets_along(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1]})
    pend(bench, "g", 5)
    assert delete(bench, "g") == 0
    end_in_group(bench, "g", 7, committed=True)
    assert fetch_offsets(bench, "g") == {}
    assert delete(bench, "g") == ErrorCode.GROUP_ID_NOT_FOUND
    elected_again(bench, epoch=1)
    bench.load()
    assert fetch_offsets(bench, "g") == {}


def test_a_deleted_topic_takes_its_pending_offsets_along(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    bench.delete(bench.image.names["t"].id)
    end_in_group(bench, "g", 7, committed=True)
    assert fetch_offsets(bench, "g") == {}


def test_an_offset_does_not_expire_while_a_transaction_may_change_it(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1]})
    pend(bench, "g", 5)
    bench.later(2 * HOUR_MS)
    assert fetch_offsets(bench, "g") == {("t", 0): 1}
    end_in_group(bench, "g", 7, committed=False)
    bench.later(HOUR_MS)
    assert fetch_offsets(bench, "g") == {}


def test_an_offset_is_kept_for_exactly_as_long_as_is_set(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1]})
    bench.later(HOUR_MS - 1)
    assert fetch_offsets(bench, "g") == {("t", 0): 1}
    bench.later(1)
    assert fetch_offsets(bench, "g") == {}


def test_a_group_stays_while_a_transaction_commits_for_it(bench: GroupBench) -> None:
    """Its members are gone, and all that it committed so far is too old."""
    client = Client(bench)
    form(bench, client)
    assert client.leave() == 0
    pend(bench, "g", 5)
    bench.later(2 * HOUR_MS)
    assert listed(bench) == [("g", "consumer", "Empty", "classic")]
    end_in_group(bench, "g", 7, committed=False)
    bench.later(HOUR_MS)
    assert listed(bench) == []


def test_a_member_known_by_its_instance_alone_is_checked_as_a_member(bench: GroupBench) -> None:
    form(bench, Client(bench, instance="i"))
    said = pend(bench, "g", 5, who=Who("", "i", -1))
    assert said == Refusal(ErrorCode.FENCED_INSTANCE_ID)
    said = pend(bench, "g", 5, who=Who("", "another", -1))
    assert said == Refusal(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("topics", [None, ("t",)])
def test_who_asks_for_all_topics_is_told_what_a_transaction_may_change(
    bench: GroupBench, topics: tuple[str, ...] | None
) -> None:
    commit(bench, "g", {"t": [1]})
    pend(bench, "g", 5)
    rows = k09_offset_fetch.OffsetFetchRequestTopics
    asked = None if topics is None else [rows(name=one, partition_indexes=[0]) for one in topics]
    wanted = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=asked)
    request = k09_offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True)
    (found,) = bench.ask(k09_offset_fetch.API, 8, request).groups
    codes = [row.error_code for topic in found.topics for row in topic.partitions]
    assert codes == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


def test_a_marker_that_comes_while_the_group_is_loaded_counts(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    elected_again(bench, epoch=1)
    end_in_group(bench, "g", 7, committed=True)
    bench.load()
    assert stable_offset(bench, "g") == 5


def test_who_asks_behind_a_marker_hears_of_it_once_the_replicas_have_it(bench: GroupBench) -> None:
    pend(bench, "g", 5)
    partition = group_partition(bench, "g")
    _, leader = bench.broker.replicas.led(OFFSETS_TOPIC, partition)
    end = Offset(leader.high_watermark + 1)
    bench.broker.groups.marked(bench.now, partition, 7, committed=True, end=end)
    topic = k09_offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = k09_offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
    asked = bench.start_asking(k09_offset_fetch.API, 7, request)
    assert asked.answer() is None
    end_in_group(bench, "g", 7, committed=True)
    assert asked.answer().topics[0].partitions[0].committed_offset == 5


def test_a_tombstone_in_a_transaction_pends_nothing() -> None:
    offsets = Offsets()
    offsets.replay_pending(7, OffsetRecord("g", "t", 0, None))
    assert not offsets.has("g")
    offsets.replay(OffsetRecord("g", "t", 0, CommittedOffset(1, -1, "", 1_000)))
    assert offsets.has("g")
