"""TxnOffsetCommit: offsets of a group as part of a transaction, and what is asked before."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import led_here
from harness.machines.group_bench import Asked, GroupBench, commit, elected_again, fetch_offsets
from harness.machines.transaction_bench import ID, PRODUCER, answer, end_transaction, question
from harness.machines.transactions import end_in_group, group_partition
from tidelog.kernel.ids import Partition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.messages import k42_delete_groups
from tidelog.wire.metadata_records import PartitionChanged


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def request_of(offsets: dict[int, int], topic: str = "t", **fields: Any) -> Any:
    rows = [
        k28.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        for index, offset in offsets.items()
    ]
    row = k28.TxnOffsetCommitRequestTopic(name=topic, partitions=rows)
    return k28.TxnOffsetCommitRequest(
        **{
            "transactional_id": ID,
            "group_id": "g",
            "producer_id": PRODUCER,
            "producer_epoch": 0,
            "topics": [row],
            **fields,
        }
    )


def start(bench: GroupBench, offsets: dict[int, int], *, version: int = 4, **fields: Any) -> Asked:
    return bench.start_asking(k28.API, version, request_of(offsets, **fields))


def codes(asked: Asked) -> list[int] | None:
    answer = asked.answer()
    if answer is None:
        return None
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def pending(bench: GroupBench, offset: int = 5) -> None:
    asked = start(bench, {0: offset})
    answer(bench)
    assert codes(asked) == [0]


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_once_the_transaction_is_committed(
    bench: GroupBench, *, committed: bool
) -> None:
    commit(bench, "g", {"t": [1]})
    pending(bench)
    assert fetch_offsets(bench, "g") == {("t", 0): 1}
    end_in_group(bench, "g", PRODUCER, committed=committed)
    assert fetch_offsets(bench, "g") == {("t", 0): 5 if committed else 1}


def test_the_group_s_partition_has_to_be_part_of_the_transaction(bench: GroupBench) -> None:
    asked = start(bench, {0: 5, 1: 6})
    assert codes(asked) is None
    transaction = question(bench)
    assert (transaction.transactional_id, transaction.producer_id) == (ID, PRODUCER)
    (topic,) = transaction.topics
    assert (topic.name, topic.partitions) == (OFFSETS_TOPIC, [group_partition(bench, "g")])
    answer(bench)
    assert codes(asked) == [0, 0]


@pytest.mark.parametrize("version", [4, 5])
def test_it_is_asked_about_or_made_part_of_it(bench: GroupBench, version: int) -> None:
    start(bench, {0: 5}, version=version)
    assert question(bench).verify_only == (version < 5)


def test_to_be_made_part_of_it_is_no_matter_of_settings(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", transaction_partition_verification_enable="false")
    bench.topic("t")
    asked = start(bench, {0: 5}, version=5)
    assert codes(asked) is None
    answer(bench)
    assert codes(asked) == [0]


def test_once_it_is_nobody_is_asked_any_more(bench: GroupBench) -> None:
    pending(bench)
    assert codes(start(bench, {0: 6})) == [0]
    assert len(bench.transactions.forwarded) == 1
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g") == {("t", 0): 6}


def test_a_word_of_before_the_marker_is_worth_nothing(bench: GroupBench) -> None:
    asked = start(bench, {0: 5})
    end_transaction(bench, OFFSETS_TOPIC, group_partition(bench, "g"), committed=False)
    answer(bench)
    assert codes(asked) == [ErrorCode.INVALID_TXN_STATE]


def test_nor_where_the_group_is_kept_elsewhere_by_then(bench: GroupBench) -> None:
    asked = start(bench, {0: 5})
    topic = bench.image.names[OFFSETS_TOPIC]
    away = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(topic.id, group_partition(bench, "g"), away))
    answer(bench)
    assert codes(asked) == [ErrorCode.NOT_COORDINATOR]


def test_under_another_leader_epoch_the_producer_tries_again(bench: GroupBench) -> None:
    asked = start(bench, {0: 5})
    elected_again(bench, 1)
    bench.load()
    answer(bench)
    assert codes(asked) == [ErrorCode.NOT_COORDINATOR]
    asked = start(bench, {0: 5})
    answer(bench)
    assert codes(asked) == [ErrorCode.NONE]


def test_while_the_group_is_loaded_a_producer_tries_again(bench: GroupBench) -> None:
    commit(bench, "g", {"t": [1]})
    elected_again(bench, 1)
    asked = start(bench, {0: 5})
    answer(bench)
    assert codes(asked) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_group_that_is_kept_elsewhere_is_not_asked_about(bench: GroupBench) -> None:
    topic = bench.image.names[OFFSETS_TOPIC]
    away = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(topic.id, group_partition(bench, "g"), away))
    assert codes(start(bench, {0: 5})) == [ErrorCode.NOT_COORDINATOR]
    assert not bench.transactions.forwarded


def test_before_any_group_was_there_nobody_coordinates_it(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic("t")
    assert codes(start(bench, {0: 5})) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_it_names_group_id_and_producer(
    bench: GroupBench, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert codes(start(bench, {0: 5}, **fields)) == [code]
    assert not bench.transactions.forwarded


def test_each_partition_has_its_own_code(bench: GroupBench) -> None:
    request = request_of({0: 5, 9: 6, 1: 7})
    request.topics[0].partitions[2].committed_metadata = "m" * 5_000
    asked = bench.start_asking(k28.API, 3, request)
    answer(bench)
    assert codes(asked) == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g") == {("t", 0): 5}


def test_of_what_can_be_committed_nothing_nobody_is_asked(bench: GroupBench) -> None:
    asked = start(bench, {0: 5}, topic="nowhere")
    assert codes(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not bench.transactions.forwarded


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.TRANSACTION_ABORTABLE, 5, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_each_version_is_told_what_its_clients_understand(
    bench: GroupBench, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    asked = start(bench, {0: 5}, version=version)
    answer(bench, said)
    assert codes(asked) == [told]


def test_a_member_of_the_past_commits_nothing(bench: GroupBench) -> None:
    asked = start(bench, {0: 5}, generation_id=3, member_id="m")
    answer(bench)
    assert codes(asked) == [ErrorCode.ILLEGAL_GENERATION]


def test_nor_does_a_producer_of_the_past(bench: GroupBench) -> None:
    asked = start(bench, {0: 5}, producer_epoch=1)
    answer(bench)
    assert codes(asked) == [0]
    assert codes(start(bench, {0: 6}, producer_epoch=0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_who_went_away_meanwhile_commits_nothing(bench: GroupBench) -> None:
    """It may have sent later offsets on another connection."""
    asked = start(bench, {0: 5})
    asked.client.session.abandon()
    answer(bench)
    pending(bench, 7)
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g") == {("t", 0): 7}


def test_where_nobody_verifies_it_is_taken_as_it_comes(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", transaction_partition_verification_enable="false")
    bench.topic("t")
    assert codes(start(bench, {0: 5})) == [0]
    assert not bench.transactions.forwarded


def test_a_transaction_is_open_also_for_a_group_that_was_deleted(bench: GroupBench) -> None:
    """Its partition has its records, and waits for its marker."""
    pending(bench)
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=["g"])
    assert bench.ask(k42_delete_groups.API, 2, request).results[0].error_code == 0
    assert codes(start(bench, {0: 6})) == [0]
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g") == {("t", 0): 6}
    assert Partition(0) in {row[1] for row in fetch_offsets(bench, "g")}


def test_a_topic_deleted_meanwhile_gets_none_and_the_next_of_its_name_keeps_its_own(
    bench: GroupBench,
) -> None:
    """The coordinator of the transaction is asked while the topic goes and comes back."""
    asked = start(bench, {0: 77})
    bench.delete(bench.image.names["t"].id)
    bench.topic("t", 3)
    commit(bench, "g", {"t": [5]})
    answer(bench)
    assert codes(asked) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 5}


@pytest.mark.parametrize("version", range(5))
def test_producers_of_old_are_told_to_try_again_by_a_code_that_does_not_end_them(
    bench: GroupBench, version: int
) -> None:
    elected_again(bench, 1)  # and its log is not read yet
    asked = start(bench, {0: 5}, version=version)
    answer(bench)
    told, known = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert codes(asked) == [told if version < 2 else known]
