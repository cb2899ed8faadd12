"""Committed offsets: one broker's handlers, its coordinators and their logs."""

from pathlib import Path

import pytest

from harness.machines.brokers import FakeClient, led_here
from harness.machines.group_bench import (
    GroupBench,
    commit,
    commit_request,
    elected_again,
    fetch_offsets,
)
from tidelog.kernel.ids import Partition
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k08_offset_commit, k09_offset_fetch, k10_find_coordinator
from tidelog.wire.metadata_records import PartitionChanged

DAY_MS = 86_400_000


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def test_what_is_committed_is_fetched_and_the_rest_is_unknown(bench: GroupBench) -> None:
    assert commit(bench, "g", {"t": [5, 6]}) == [0, 0]
    assert fetch_offsets(bench, "g", t=3) == {("t", 0): 5, ("t", 1): 6, ("t", 2): -1}
    assert fetch_offsets(bench, "g") == {("t", 0): 5, ("t", 1): 6}
    assert fetch_offsets(bench, "other", t=1) == {("t", 0): -1}


def test_any_number_may_be_committed_as_with_kafka(bench: GroupBench) -> None:
    assert commit(bench, "g", {"t": [-5, 10**15]}) == [0, 0]
    assert fetch_offsets(bench, "g") == {("t", 0): -5, ("t", 1): 10**15}


def test_metadata_and_leader_epoch_come_back_as_they_were_committed(bench: GroupBench) -> None:
    request = commit_request("g", {"t": [7]})
    row = request.topics[0].partitions[0]
    row.committed_metadata, row.committed_leader_epoch = "wörter", 4
    bench.ask(k08_offset_commit.API, 8, request)
    asked = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    wanted = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
    (group,) = bench.ask(k09_offset_fetch.API, 9, wanted).groups
    (found,) = group.topics[0].partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (
        7,
        4,
        "wörter",
    )


def test_many_groups_are_asked_at_once_and_each_has_its_own_answer(bench: GroupBench) -> None:
    commit(bench, "a", {"t": [1]})
    commit(bench, "b", {"t": [2]})
    groups = [
        k09_offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in "abc"
    ]
    answer = bench.ask(k09_offset_fetch.API, 8, k09_offset_fetch.OffsetFetchRequest(groups=groups))
    found = {
        one.group_id: [t.partitions[0].committed_offset for t in one.topics]
        for one in answer.groups
    }
    assert found == {"a": [1], "b": [2], "c": []}
    nobody = bench.ask(k09_offset_fetch.API, 8, k09_offset_fetch.OffsetFetchRequest(groups=[]))
    assert nobody.groups == []


def test_each_partition_that_cannot_be_committed_says_why(bench: GroupBench) -> None:
    request = commit_request("g", {"t": [1, 2, 3, 4], "nowhere": [5]})
    request.topics[0].partitions[1].committed_metadata = "x" * 4097
    answer = bench.ask(k08_offset_commit.API, 8, request)
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0, 3, 3]
    assert fetch_offsets(bench, "g") == {("t", 0): 1, ("t", 2): 3}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_no_group_commits_nothing(bench: GroupBench, version: int, code: int) -> None:
    request = commit_request("g", {"t": [1]}, generation_id_or_member_epoch=3, member_id="m")
    answer = bench.ask(k08_offset_commit.API, version, request)
    assert answer.topics[0].partitions[0].error_code == code
    assert fetch_offsets(bench, "g") == {}


def test_a_group_without_a_name_is_refused(bench: GroupBench) -> None:
    assert commit(bench, "", {"t": [1]}) == [ErrorCode.INVALID_GROUP_ID]


def test_commits_outlive_their_coordinator(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1, 2]})
    commit(bench, "g", {"t": [9]})
    elected_again(bench, epoch=1)
    assert fetch_offsets(bench, "g") == {("", -1): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert commit(bench, "g", {"t": [10]}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    bench.load()
    assert fetch_offsets(bench, "g") == {("t", 0): 9, ("t", 1): 2}


def test_without_a_leadership_here_this_is_no_coordinator(bench: GroupBench) -> None:
    topic = bench.image.names[OFFSETS_TOPIC]
    elsewhere = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
    at = partition_of("g", len(topic.partitions))
    bench.replay(PartitionChanged(topic.id, Partition(at), elsewhere))
    assert commit(bench, "g", {"t": [1]}) == [ErrorCode.NOT_COORDINATOR]
    other = next(name for name in map(str, range(9)) if partition_of(name, 2) != at)
    assert commit(bench, other, {"t": [1]}) == [0]


def test_a_deleted_topic_takes_its_offsets_along(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1]})
    bench.topic("kept")
    commit(bench, "g", {"kept": [2]})
    bench.delete(bench.image.names["t"].id)
    assert fetch_offsets(bench, "g") == {("kept", 0): 2}


def test_offsets_of_a_group_without_members_go_when_they_are_old(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", offsets_retention_minutes="1440")
    bench.topic("t", 2)
    commit(bench, "g", {"t": [1, 1]})
    bench.later(DAY_MS - 1_000_000)
    commit(bench, "g", {"t": [2]})
    bench.later(2_000_000)
    assert fetch_offsets(bench, "g") == {("t", 0): 2}
    bench.later(DAY_MS)
    assert fetch_offsets(bench, "g") == {}


def test_an_offset_kept_for_a_time_of_its_own_goes_when_that_is_over(bench: GroupBench) -> None:
    request = commit_request("g", {"t": [1]}, retention_time_ms=5_000)
    bench.ask(k08_offset_commit.API, 4, request)
    elected_again(bench, epoch=1)
    bench.load()
    assert fetch_offsets(bench, "g") == {("t", 0): 1}
    bench.later(700_000)  # the next look at what is old
    assert fetch_offsets(bench, "g") == {}


def test_the_coordinator_is_who_leads_the_partition_of_the_group(bench: GroupBench) -> None:
    request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h", "g"])
    answer = bench.ask(k10_find_coordinator.API, 4, request)
    rows = [(row.key, row.error_code, row.node_id, row.port) for row in answer.coordinators]
    assert rows == [("g", 0, 0, 9092), ("h", 0, 0, 9092)]


def test_the_first_who_looks_for_a_coordinator_has_the_topic_made(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    request = k10_find_coordinator.FindCoordinatorRequest(key="g")
    asked = bench.start_asking(k10_find_coordinator.API, 2, request)
    assert asked.answer() is None
    assert [key for key, _ in bench.link.forwarded] == [19]
    bench.topic(OFFSETS_TOPIC)
    bench.link.done[0](b"")
    assert (asked.answer().error_code, asked.answer().node_id) == (0, 0)


def test_while_the_topic_cannot_be_made_there_is_no_coordinator(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    request = k10_find_coordinator.FindCoordinatorRequest(key="g")
    asked = bench.start_asking(k10_find_coordinator.API, 2, request)
    bench.link.done[0](ErrorCode.REQUEST_TIMED_OUT)
    assert asked.answer().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_commits_on_one_connection_are_decided_and_answered_in_order(bench: GroupBench) -> None:
    client = FakeClient()
    for offset in range(5):
        bench.begin(client, k08_offset_commit.API, 8, commit_request("g", {"t": [offset]}))
    answers = [
        decode_response(k08_offset_commit.API, 8, memoryview(frame))[1] for frame in client.frames()
    ]
    assert [answer.topics[0].partitions[0].error_code for answer in answers] == [0] * 5
    assert fetch_offsets(bench, "g") == {("t", 0): 4}


@pytest.mark.parametrize("kept_ms", [2**63 - 1, 2**62, -(2**63), 0, 1])
def test_an_offset_may_be_kept_for_any_time(tmp_path: Path, kept_ms: int) -> None:
    bench = GroupBench(tmp_path)
    bench.topic("t")
    kept = {"version": 3, "retention_time_ms": kept_ms}
    assert commit(bench, "g", {"t": [5]}, **kept) == [0]
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 5}
    assert bench.faults == []
