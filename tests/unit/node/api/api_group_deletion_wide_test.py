"""Deleting groups and offsets, and ending transactions, of more offsets than fit into one turn."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import turns
from harness.machines.group_bench import Asked, GroupBench, commit, commit_request, fetch_offsets
from harness.machines.transaction_bench import ID, PRODUCER, answer
from harness.machines.transactions import end_in_group, group_partition
from tidelog.kernel import limits
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.groups.shard import FORGOTTEN_AT_ONCE_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit as k08
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k11_join_group as k11
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.messages import k42_delete_groups as k42
from tidelog.wire.messages import k47_offset_delete as k47
from tidelog.wire.messages import k68_consumer_group_heartbeat as k68

WIDE = 2 * FORGOTTEN_AT_ONCE_MAX + 1


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", WIDE)
    bench.aside = []
    bench.start_asking(k08.API, 8, commit_request("g", {"t": range(WIDE)}))
    turns(bench)
    return bench


def log_end(bench: GroupBench) -> int:
    replica = bench.broker.replicas.get((OFFSETS_TOPIC, group_partition(bench, "g")))
    assert replica is not None
    return replica.log.end


def left(bench: GroupBench) -> int:
    """The number of partitions of which the group has an offset."""
    turned, bench.aside = bench.aside, None
    found = fetch_offsets(bench, "g")
    bench.aside = turned
    return len(found)


def start_delete(bench: GroupBench) -> Asked:
    return bench.start_asking(k42.API, 2, k42.DeleteGroupsRequest(groups_names=["g"]))


def group_codes(asked: Asked) -> list[int]:
    told = asked.answer()
    assert told is not None, "not answered"
    return [row.error_code for row in told.results]


def test_a_group_of_many_offsets_is_deleted_in_parts(bench: GroupBench) -> None:
    before = log_end(bench)
    asked = start_delete(bench)
    assert log_end(bench) - before == FORGOTTEN_AT_ONCE_MAX, "all of it was one decision"
    assert asked.answer() is None
    assert turns(bench) >= 2
    assert group_codes(asked) == [0]
    assert left(bench) == 0
    assert group_codes(start_delete(bench)) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_is_deleted_to_its_end_although_the_client_has_left(bench: GroupBench) -> None:
    asked = start_delete(bench)
    asked.client.session.abandon()
    turns(bench)
    assert left(bench) == 0


def join(bench: GroupBench) -> Asked:
    protocols = [k11.JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = k11.JoinGroupRequest(
        group_id="g",
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
    )
    return bench.start_asking(k11.API, 3, request)


def commit_one(bench: GroupBench) -> Asked:
    return bench.start_asking(k08.API, 8, commit_request("g", {"t": [7]}))


def fetch_one(bench: GroupBench) -> Asked:
    topic = k09.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = k09.OffsetFetchRequest(group_id="g", topics=[topic])
    return bench.start_asking(k09.API, 7, request)


def heartbeat(bench: GroupBench) -> Asked:
    request = k68.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return bench.start_asking(k68.API, 0, request)


def code_of(answer: Any) -> int:
    if hasattr(answer, "error_code"):
        return int(answer.error_code)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("use", [join, commit_one, fetch_one, heartbeat])
def test_a_group_is_not_used_while_a_part_of_it_is_deleted(
    bench: GroupBench, use: Callable[[GroupBench], Asked]
) -> None:
    """A member that joined in between would keep a group that lacks a part of its offsets."""
    deleting = start_delete(bench)
    used = use(bench)
    assert code_of(used.answer()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    turns(bench)
    assert group_codes(deleting) == [0]
    assert left(bench) == 0
    again = use(bench)
    bench.later(5_000)
    answer = again.answer()
    assert answer is None or code_of(answer) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_group_that_nobody_goes_on_deleting_is_used_again(bench: GroupBench) -> None:
    start_delete(bench)
    bench.aside = []
    bench.later(5_001)
    assert code_of(commit_one(bench).answer()) == 0


def test_a_group_of_few_offsets_is_deleted_at_once(bench: GroupBench) -> None:
    bench.aside = None
    commit(bench, "few", {"t": range(5)})
    bench.aside = []
    asked = bench.start_asking(k42.API, 2, k42.DeleteGroupsRequest(groups_names=["few"]))
    assert not bench.aside
    assert group_codes(asked) == [0]


def start_offsets(bench: GroupBench, topic: str = "t") -> Asked:
    rows = [k47.OffsetDeleteRequestPartition(partition_index=at) for at in range(WIDE)]
    wanted = k47.OffsetDeleteRequestTopic(name=topic, partitions=rows)
    return bench.start_asking(k47.API, 0, k47.OffsetDeleteRequest(group_id="g", topics=[wanted]))


def offset_codes(asked: Asked) -> list[int]:
    told = asked.answer()
    assert told is not None, "not answered"
    assert told.error_code == 0
    (topic,) = told.topics
    return [row.error_code for row in topic.partitions]


def test_many_offsets_of_a_group_are_deleted_in_parts(bench: GroupBench) -> None:
    before = log_end(bench)
    asked = start_offsets(bench)
    assert log_end(bench) - before <= limits.ROWS_PER_STEP, "all of it was one decision"
    assert asked.answer() is None
    assert turns(bench) >= 4
    assert offset_codes(asked) == [0] * WIDE
    assert left(bench) == 0


def test_others_have_their_turn_between_offsets_of_unknown_partitions(bench: GroupBench) -> None:
    asked = start_offsets(bench, "no")
    assert asked.answer() is None
    turns(bench)
    assert offset_codes(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * WIDE


def test_many_offsets_of_an_unknown_group_are_refused_as_a_whole(bench: GroupBench) -> None:
    start_delete(bench)
    turns(bench)
    asked = start_offsets(bench)
    turns(bench)
    told = asked.answer()
    assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_old_offsets_of_one_group_are_forgotten_in_parts(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log1", offsets_retention_minutes="1")
    bench.topic("t", WIDE)
    bench.aside = []
    bench.start_asking(k08.API, 8, commit_request("g", {"t": range(WIDE)}))
    turns(bench)
    before = log_end(bench)
    interval_ms = bench.broker.settings["offsets.retention.check.interval.ms"]
    bench.now = type(bench.now)(bench.now + interval_ms * 1_000_000)
    bench.broker.groups.ring(bench.now)
    assert 0 < log_end(bench) - before <= FORGOTTEN_AT_ONCE_MAX, "all of it was one decision"
    for _ in range(3):
        bench.broker.groups.ring(bench.now)
    assert left(bench) == 0


def start_in_transaction(bench: GroupBench, indexes: range) -> Asked:
    rows = [
        k28.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=None
        )
        for index in indexes
    ]
    request = k28.TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=PRODUCER,
        producer_epoch=0,
        topics=[k28.TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    asked = bench.start_asking(k28.API, 4, request)
    turns(bench)
    if bench.transactions.done:
        answer(bench)
    turns(bench)
    return asked


def transaction_codes(asked: Asked) -> set[int]:
    told: Any = asked.answer()
    assert told is not None, "not answered"
    return {row.error_code for topic in told.topics for row in topic.partitions}


def test_a_transaction_commits_a_bounded_number_of_offsets(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker makes all of them count at one moment, which is one turn of the loop."""
    monkeypatch.setattr("tidelog.node.groups.shard.TRANSACTION_OFFSETS_MAX", 10)
    assert transaction_codes(start_in_transaction(bench, range(10))) == {0}
    assert transaction_codes(start_in_transaction(bench, range(10))) == {0}, "they are the same"
    more = start_in_transaction(bench, range(10, 11))
    assert transaction_codes(more) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    end_in_group(bench, "g", PRODUCER, committed=True)
    bench.aside = None
    assert fetch_offsets(bench, "g", t=3) == {("t", at): 5 for at in range(3)}
