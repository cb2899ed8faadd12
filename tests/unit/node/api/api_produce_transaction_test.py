"""Batches of transactions: who may write them, and what the coordinator is asked before."""

from pathlib import Path

import pytest

from harness.machines.brokers import FakeClient, HandlerBench, led_here
from harness.machines.transaction_bench import (
    ID,
    PRODUCER,
    answer,
    answer_frame,
    codes,
    end_transaction,
    ended,
    log_of,
    question,
    start_producing,
    transactional,
)
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import encode_response, joined
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.metadata_records import PartitionChanged


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def begun(bench: HandlerBench, sequence: int = 0) -> None:
    """The transaction's first batch is in."""
    asked = start_producing(bench, ("t", 0, transactional(sequence)))
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE


def test_the_first_batch_waits_for_the_coordinator_s_word(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    assert asked.answer() is None
    assert log_of(bench).end == 0
    transaction = question(bench)
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (
        ID,
        PRODUCER,
        0,
    )
    assert [(one.name, one.partitions) for one in transaction.topics] == [("t", [0])]
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE
    assert log_of(bench).end == 1


def test_nothing_is_begun_behind_it_on_its_connection(bench: HandlerBench) -> None:
    client = FakeClient()
    start_producing(bench, ("t", 0, transactional()), client=client)
    assert not client.session.may_begin(barrier=False)
    answer(bench)
    assert len(client.frames()) == 1
    assert client.session.may_begin(barrier=False)


def test_once_it_is_in_nobody_is_asked_any_more(bench: HandlerBench) -> None:
    begun(bench)
    asked = start_producing(bench, ("t", 0, transactional(1)))
    assert ended(asked.answer()) is ErrorCode.NONE
    assert len(bench.transactions.forwarded) == 1


def test_all_partitions_of_a_request_are_asked_about_at_once(bench: HandlerBench) -> None:
    begun(bench)
    batches = [("t", index, transactional(1 if index == 0 else 0)) for index in range(3)]
    asked = start_producing(bench, *batches)
    assert [one.partitions for one in question(bench).topics] == [[1, 2]]
    answer(bench, {("t", 1): 0, ("t", 2): ErrorCode.TRANSACTION_ABORTABLE})
    assert codes(asked.answer()) == [0, 0, ErrorCode.TRANSACTION_ABORTABLE]
    assert [log_of(bench, index=index).end for index in range(3)] == [2, 1, 0]


def test_what_cannot_be_appended_anyway_is_not_asked_about(bench: HandlerBench) -> None:
    topic_id = bench.image.names["t"].id
    away = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(topic_id, Partition(1), away))
    asked = start_producing(bench, ("t", 1, transactional()), ("nowhere", 0, transactional()))
    assert codes(asked.answer()) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert not bench.transactions.forwarded


def test_where_nobody_verifies_it_is_taken_as_it_comes(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path / "log0", transaction_partition_verification_enable="false")
    bench.topic("t")
    asked = start_producing(bench, ("t", 0, transactional()))
    assert ended(asked.answer()) is ErrorCode.NONE
    assert not bench.transactions.forwarded


# -- what the request must be


@pytest.mark.parametrize("acks", [-1, 1])
def test_without_a_transactional_id_none_of_the_request_is_taken(
    bench: HandlerBench, acks: int
) -> None:
    batches = [("t", 0, transactional(plain=True)), ("t", 1, transactional())]
    asked = start_producing(bench, *batches, name=None, acks=acks)
    assert codes(asked.answer()) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert log_of(bench).end == 0


@pytest.mark.parametrize("other", [transactional(producer_id=8), transactional(epoch=1)])
def test_a_request_is_of_one_producer_in_one_epoch(bench: HandlerBench, other: bytearray) -> None:
    batches = [("t", 0, transactional()), ("t", 1, bytearray(other))]
    asked = start_producing(bench, *batches)
    assert codes(asked.answer()) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not bench.transactions.forwarded


def test_a_transactional_batch_is_of_some_producer(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional(producer_id=-1)))
    assert ended(asked.answer()) is ErrorCode.INVALID_RECORD


def test_a_plain_batch_of_a_producer_without_an_open_transaction_is_taken(
    bench: HandlerBench,
) -> None:
    asked = start_producing(bench, ("t", 0, transactional(plain=True)))
    assert ended(asked.answer()) is ErrorCode.NONE


def test_one_of_a_producer_with_an_open_transaction_is_not(bench: HandlerBench) -> None:
    begun(bench)
    asked = start_producing(bench, ("t", 0, transactional(1, plain=True)))
    assert ended(asked.answer()) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("acks", [0, 1])
def test_it_may_be_sent_with_less_than_all_acks(bench: HandlerBench, acks: int) -> None:
    """As Kafka has it: its clients insist on all, its brokers do not."""
    asked = start_producing(bench, ("t", 0, transactional()), acks=acks)
    answer(bench)
    assert log_of(bench).end == 1
    assert (asked.answer() is None) == (acks == 0)
    assert asked.client.closed is None


def test_without_acks_a_refusal_ends_the_connection(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()), acks=0)
    answer(bench, ErrorCode.INVALID_TXN_STATE)
    assert asked.client.closed is not None


# -- what is said of refusals


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 9, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_each_version_is_told_what_its_clients_understand(
    bench: HandlerBench, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    asked = start_producing(bench, ("t", 0, transactional()), version=version)
    answer(bench, said)
    assert ended(asked.answer()) is told
    assert log_of(bench).end == 0


def test_while_the_coordinator_is_away_producers_try_again(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    bench.transactions.done[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert ended(asked.answer()) is ErrorCode.NOT_ENOUGH_REPLICAS
    begun(bench)


def test_a_question_that_was_under_way_when_the_coordinator_died_goes_to_the_next(
    bench: HandlerBench,
) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    bench.transactions.done[0](ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert asked.answer() is None
    first, again = bench.transactions.forwarded
    assert first == again
    bench.transactions.done[1](answer_frame({("t", 0): ErrorCode.NONE}))
    assert ended(asked.answer()) is ErrorCode.NONE


def test_an_end_that_came_before_the_next_one_s_word_counts(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    end_transaction(bench, committed=False)
    bench.transactions.done[0](ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    bench.transactions.done[1](answer_frame({("t", 0): ErrorCode.NONE}))
    assert ended(asked.answer()) is ErrorCode.INVALID_TXN_STATE


def test_a_partition_that_the_coordinator_does_not_speak_of_is_not_written(
    bench: HandlerBench,
) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    bench.transactions.done[0](answer_frame({}))
    assert ended(asked.answer()) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_question_that_is_refused_as_a_whole_lets_nothing_in(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    refused = k24.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    bench.transactions.done[0](joined(encode_response(k24.API, 4, 0, refused))[4:])
    assert ended(asked.answer()) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("said", [b"", b"no answer", answer_frame({("t", 0): 9_999})])
def test_words_that_nobody_understands_let_nothing_in(bench: HandlerBench, said: bytes) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    bench.transactions.done[0](said)
    assert ended(asked.answer()) is ErrorCode.UNKNOWN_SERVER_ERROR


# -- what a word is good for


def test_a_word_of_before_the_marker_is_worth_nothing(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    end_transaction(bench, committed=False)
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.INVALID_TXN_STATE
    assert log_of(bench).end == 1, "the marker alone"


def test_also_where_that_marker_was_there_already(bench: HandlerBench) -> None:
    begun(bench)
    end_transaction(bench)
    asked = start_producing(bench, ("t", 0, transactional(1)))
    end_transaction(bench)
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.INVALID_TXN_STATE


def test_another_producer_s_marker_takes_nothing_away(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    end_transaction(bench, producer_id=8)
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE


def test_the_next_transaction_is_asked_about_anew(bench: HandlerBench) -> None:
    begun(bench)
    end_transaction(bench)
    asked = start_producing(bench, ("t", 0, transactional(1)))
    assert asked.answer() is None
    assert len(bench.transactions.forwarded) == 2


def test_a_word_for_one_epoch_lets_no_other_in(bench: HandlerBench) -> None:
    old = start_producing(bench, ("t", 0, transactional(epoch=0)))
    new = start_producing(bench, ("t", 0, transactional(epoch=1)))
    answer(bench, at=1)
    assert ended(new.answer()) is ErrorCode.NONE
    answer(bench, at=0)
    assert ended(old.answer()) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_of_the_past_is_refused_without_a_question(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional(epoch=1)))
    answer(bench)
    asked = start_producing(bench, ("t", 0, transactional(epoch=0)))
    assert ended(asked.answer()) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(bench.transactions.forwarded) == 1


def test_under_another_leader_epoch_a_word_is_worth_nothing_and_asked_for_again(
    bench: HandlerBench,
) -> None:
    """Its producer has done nothing wrong: that it must abort would be news to it."""
    asked = start_producing(bench, ("t", 0, transactional()))
    again = led_here(leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(bench.image.names["t"].id, Partition(0), again))
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log_of(bench).end == 0
    asked = start_producing(bench, ("t", 0, transactional()))
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE


def test_nor_where_another_broker_leads_by_then(bench: HandlerBench) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    bench.lose_leader(bench.image.names["t"].id)
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_two_that_wait_for_one_word_each_get_in(bench: HandlerBench) -> None:
    """A producer that connects anew sends the same again: it is there once."""
    first = start_producing(bench, ("t", 0, transactional()))
    second = start_producing(bench, ("t", 0, transactional()))
    answer(bench, at=0)
    answer(bench, at=1)
    assert ended(first.answer()) is ended(second.answer()) is ErrorCode.NONE
    assert log_of(bench).end == 1


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_batch_that_is_refused_takes_the_word_from_no_other(
    bench: HandlerBench, late: int
) -> None:
    """In the first version of the protocol both are of one epoch."""
    asked = [start_producing(bench, ("t", 0, transactional())) for _ in range(2)]
    answer(bench, ErrorCode.INVALID_TXN_STATE, at=late)
    answer(bench, at=1 - late)
    assert ended(asked[late].answer()) is ErrorCode.TRANSACTION_ABORTABLE
    assert ended(asked[1 - late].answer()) is ErrorCode.NONE
    assert log_of(bench).end == 1


def test_a_later_batch_does_not_get_in_before_an_earlier_one_that_has_to_come_again(
    bench: HandlerBench,
) -> None:
    """Of a producer that is not known here any sequence may be the first, but for this."""
    first = start_producing(bench, ("t", 0, transactional(0)))
    bench.transactions.done[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    second = start_producing(bench, ("t", 0, transactional(1)))
    answer(bench)
    assert ended(first.answer()) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert ended(second.answer()) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begun(bench)


def test_who_was_refused_may_begin_anywhere_later(bench: HandlerBench) -> None:
    start_producing(bench, ("t", 0, transactional(0)))
    answer(bench, ErrorCode.INVALID_TXN_STATE)
    begun(bench, 5)


def test_a_batch_that_takes_long_is_made_ready_behind_the_word(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", compression_type="zstd")
    bench.aside = []
    asked = start_producing(bench, ("t", 0, transactional()))
    assert bench.aside == []
    answer(bench)
    (work,) = bench.aside
    assert asked.answer() is None
    work()
    assert ended(asked.answer()) is ErrorCode.NONE


def test_an_end_meanwhile_counts_for_that_too(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", compression_type="zstd")
    bench.aside = []
    asked = start_producing(bench, ("t", 0, transactional()))
    answer(bench)
    end_transaction(bench, committed=False)
    bench.aside[0]()
    assert ended(asked.answer()) is ErrorCode.INVALID_TXN_STATE


def test_a_question_that_two_coordinators_died_with_is_not_sent_to_a_third(
    bench: HandlerBench,
) -> None:
    asked = start_producing(bench, ("t", 0, transactional()))
    for turn in range(2):
        assert asked.answer() is None
        bench.transactions.done[turn](ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert len(bench.transactions.forwarded) == 2
    assert ended(asked.answer()) is ErrorCode.NOT_ENOUGH_REPLICAS
    begun(bench)


@pytest.mark.parametrize("compression", ["producer", "zstd"])
def test_a_question_that_is_refused_at_once_leaves_nothing_of_its_request_in_memory(
    tmp_path: Path, compression: str
) -> None:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", compression_type=compression)
    bench.transactions.says_at_once = ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = start_producing(bench, ("t", 0, transactional()))
    assert ended(asked.answer()) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.broker.received.used == 0


def test_a_fault_behind_the_word_leaves_nothing_of_the_request_in_memory(
    bench: HandlerBench,
) -> None:
    start_producing(bench, ("t", 0, transactional()))
    assert bench.broker.received.used > 0
    replica = bench.broker.replicas.get(("t", Partition(0)))
    assert replica is not None
    del replica.rules
    answer(bench)
    assert bench.faults
    assert bench.broker.received.used == 0
