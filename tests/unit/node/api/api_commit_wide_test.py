"""Commits and questions of more offsets than a group's coordinator should deal with in one turn."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import step, turns
from harness.machines.group_bench import Asked, GroupBench, commit_request, fetch_offsets
from harness.machines.transaction_bench import ID, PRODUCER, answer, end_transaction
from harness.machines.transactions import end_in_group, group_partition
from tidelog.kernel import limits
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit as k08
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.metadata_records import TopicDeleted

WIDE = 2 * limits.ROWS_PER_STEP + 1


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", WIDE)
    bench.aside = []
    return bench


def codes(asked: Asked) -> list[int]:
    answer = asked.answer()
    assert answer is not None, "not answered"
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def log_end(bench: GroupBench) -> int:
    replica = bench.broker.replicas.get((OFFSETS_TOPIC, group_partition(bench, "g")))
    assert replica is not None
    return replica.log.end


def start_commit(bench: GroupBench, offsets: range, **fields: Any) -> Asked:
    request = commit_request("g", {"t": offsets}, **fields)
    return bench.start_asking(k08.API, 8, request)


def test_a_group_decides_on_many_offsets_in_parts(bench: GroupBench) -> None:
    asked = start_commit(bench, range(WIDE))
    assert log_end(bench) == limits.ROWS_PER_STEP, "all offsets were one decision"
    assert asked.answer() is None
    assert turns(bench) >= 2
    assert codes(asked) == [0] * WIDE
    assert fetch_offsets(bench, "g", t=3) == {("t", at): at for at in range(3)}


def test_others_have_their_turn_between_offsets_of_unknown_partitions(bench: GroupBench) -> None:
    asked = bench.start_asking(k08.API, 8, commit_request("g", {"no": range(WIDE)}))
    assert asked.answer() is None, "all of it was done in one turn"
    turns(bench)
    assert codes(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * WIDE


@pytest.mark.parametrize(
    ("group", "fields", "code"),
    [
        ("", {}, ErrorCode.INVALID_GROUP_ID),
        ("g", {"generation_id_or_member_epoch": 3}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_wide_commit_that_may_not_be_is_refused(
    bench: GroupBench, group: str, fields: dict[str, Any], code: ErrorCode
) -> None:
    request = commit_request(group, {"t": range(WIDE)}, **fields)
    asked = bench.start_asking(k08.API, 8, request)
    turns(bench)
    assert codes(asked) == [code] * WIDE
    assert not log_end(bench)


def test_a_commit_waits_until_a_wide_one_before_it_is_decided(bench: GroupBench) -> None:
    asked = start_commit(bench, range(WIDE))
    assert not asked.client.session.may_begin(barrier=False, key=k08.API.key)
    turns(bench)
    assert codes(asked) == [0] * WIDE


# -- in transactions


def start_in_transaction(
    bench: GroupBench, indexes: Iterable[int] = range(WIDE), **fields: Any
) -> Asked:
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
        **fields,
    )
    return bench.start_asking(k28.API, 4, request)


def begun(bench: GroupBench) -> Asked:
    """A wide commit whose first part is in the log."""
    asked = start_in_transaction(bench)
    assert not bench.transactions.forwarded, "all rows were looked at in one turn"
    turns(bench)
    answer(bench)
    assert log_end(bench) == limits.ROWS_PER_STEP, "all offsets were one decision"
    return asked


def test_offsets_of_a_transaction_are_decided_on_in_parts(bench: GroupBench) -> None:
    asked = begun(bench)
    turns(bench)
    assert codes(asked) == [0] * WIDE
    end_in_group(bench, "g", PRODUCER, committed=True)
    bench.aside = None
    assert fetch_offsets(bench, "g", t=3) == {("t", at): 5 for at in range(3)}


def test_no_part_is_written_after_the_end_of_its_transaction(bench: GroupBench) -> None:
    asked = begun(bench)
    end_transaction(bench, OFFSETS_TOPIC, group_partition(bench, "g"), committed=False)
    end = log_end(bench)
    turns(bench)
    assert log_end(bench) == end, "it would wait for a marker for ever"
    told = codes(asked)
    assert told[: limits.ROWS_PER_STEP] == [0] * limits.ROWS_PER_STEP
    assert set(told[limits.ROWS_PER_STEP :]) == {ErrorCode.INVALID_TXN_STATE}


def test_nor_into_the_next_transaction_of_its_producer(bench: GroupBench) -> None:
    asked = begun(bench)
    waiting, bench.aside = bench.aside, []
    end_transaction(bench, OFFSETS_TOPIC, group_partition(bench, "g"), committed=False)
    another = start_in_transaction(bench, [0])
    answer(bench)
    assert codes(another) == [0]
    end, bench.aside = log_end(bench), waiting
    turns(bench)
    assert log_end(bench) == end
    assert set(codes(asked)[limits.ROWS_PER_STEP :]) == {ErrorCode.INVALID_TXN_STATE}


def test_what_follows_a_refused_first_part_is_refused_for_the_same_reason(
    bench: GroupBench,
) -> None:
    asked = start_in_transaction(bench, generation_id=3, member_id="m")
    turns(bench)
    answer(bench)
    turns(bench)
    assert codes(asked) == [ErrorCode.ILLEGAL_GENERATION] * WIDE
    assert not log_end(bench)


# -- what is committed


def start_fetch(bench: GroupBench, topic: str | None, **fields: Any) -> Asked:
    topics = None
    if topic is not None:
        indexes = list(range(WIDE))
        topics = [k09.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)]
    group = k09.OffsetFetchRequestGroup(group_id="g", topics=topics)
    request = k09.OffsetFetchRequest(groups=[group], **fields)
    return bench.start_asking(k09.API, 8, request)


def found(asked: Asked) -> list[tuple[int, int]]:
    answer = asked.answer()
    assert answer is not None, "not answered"
    ((topic,),) = [group.topics for group in answer.groups]
    return [(row.committed_offset, row.error_code) for row in topic.partitions]


@pytest.mark.parametrize("topic", ["t", "unknown"])
def test_others_have_their_turn_between_many_offsets_that_are_asked_for(
    bench: GroupBench, topic: str
) -> None:
    asked = start_fetch(bench, topic)
    assert asked.answer() is None
    assert turns(bench) >= 4, "they are collected and told in three turns each"
    assert found(asked) == [(-1, 0)] * WIDE


def test_others_have_their_turn_between_all_the_offsets_of_a_group(bench: GroupBench) -> None:
    start_commit(bench, range(WIDE))
    turns(bench)
    asked = start_fetch(bench, None)
    assert asked.answer() is None, "a request of a few bytes was done in one turn"
    turns(bench)
    assert found(asked) == [(at, 0) for at in range(WIDE)]


def test_others_have_their_turn_between_the_groups_that_are_asked_about(bench: GroupBench) -> None:
    groups = [
        k09.OffsetFetchRequestGroup(group_id=str(number), topics=[]) for number in range(WIDE)
    ]
    request = k09.OffsetFetchRequest(groups=groups)
    asked = bench.start_asking(k09.API, 8, request)
    assert turns(bench) >= 8, "they are merged, collected, asked and told in three turns each"
    assert [group.group_id for group in asked.answer().groups] == [one.group_id for one in groups]


def test_all_offsets_are_told_as_they_were_at_one_moment(bench: GroupBench) -> None:
    """A transaction that ends in between changes all of what is told, or nothing."""
    start_commit(bench, range(WIDE))
    turns(bench)
    in_transaction = start_in_transaction(bench, [0, WIDE - 1])
    answer(bench)
    assert codes(in_transaction) == [0, 0]
    unstable = start_fetch(bench, "t", require_stable=True)
    stable = start_fetch(bench, "t", require_stable=False)
    for _ in range(5):
        step(bench)  # both are asked about, neither is told to its end
    end_in_group(bench, "g", PRODUCER, committed=True)
    turns(bench)
    told = found(unstable)
    assert told[0] == told[-1] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert found(stable) == [(at, 0) for at in range(WIDE)]


def test_all_offsets_of_a_group_are_told_with_what_transactions_may_change(
    bench: GroupBench,
) -> None:
    start_commit(bench, range(WIDE))
    turns(bench)
    start_in_transaction(bench, [0, WIDE - 1])
    answer(bench)
    asked = start_fetch(bench, None, require_stable=True)
    turns(bench)
    told = found(asked)
    assert told[0] == told[-1] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert told[1:-1] == [(at, 0) for at in range(1, WIDE - 1)]


def test_no_part_is_committed_of_a_topic_that_only_has_the_name_of_the_one_meant(
    bench: GroupBench,
) -> None:
    """The topic is deleted and made again between two parts; the request has the first one's id."""
    meant = bench.image.names["t"].id
    rows = commit_request("g", {"t": range(WIDE)}).topics[0].partitions
    topic = k08.OffsetCommitRequestTopic(topic_id=meant, partitions=rows)
    asked = bench.start_asking(k08.API, 10, k08.OffsetCommitRequest(group_id="g", topics=[topic]))
    bench.replay(TopicDeleted(meant))
    bench.topic("t", WIDE)
    assert bench.image.names["t"].id != meant
    turns(bench)
    told = codes(asked)
    assert told[: limits.ROWS_PER_STEP] == [0] * limits.ROWS_PER_STEP
    assert set(told[limits.ROWS_PER_STEP :]) == {ErrorCode.UNKNOWN_TOPIC_ID}
    bench.aside = None
    assert set(fetch_offsets(bench, "g", t=WIDE).values()) == {-1}


def test_a_commit_that_was_begun_is_committed_although_its_client_has_left(
    bench: GroupBench,
) -> None:
    """As one of few offsets is. Half of a commit would mix two positions of its reader."""
    asked = start_commit(bench, range(WIDE))
    asked.client.session.abandon()
    turns(bench)
    bench.aside = None
    assert fetch_offsets(bench, "g", t=WIDE) == {("t", at): at for at in range(WIDE)}
    assert asked.answer() is None
