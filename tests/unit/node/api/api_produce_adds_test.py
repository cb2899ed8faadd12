"""Batches that make their partition part of the transaction: version 2, what it asks and says."""

from pathlib import Path

import pytest

from harness.machines.brokers import HandlerBench
from harness.machines.group_bench import Asked
from harness.machines.transaction_bench import (
    answer,
    codes,
    end_transaction,
    ended,
    log_of,
    question,
    start_producing,
    transactional,
)
from tidelog.wire.errors import ErrorCode

ADDS = 12


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", 3)
    return bench


def produced(
    bench: HandlerBench, *batches: tuple[str, int, bytearray | None], version: int = ADDS
) -> Asked:
    return start_producing(bench, *batches, version=version)


def begun(bench: HandlerBench, epoch: int = 0) -> None:
    asked = produced(bench, ("t", 0, transactional(epoch=epoch)))
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE


@pytest.mark.parametrize("version", [11, ADDS])
def test_the_coordinator_is_told_of_the_partition_or_only_asked(
    bench: HandlerBench, version: int
) -> None:
    produced(bench, ("t", 0, transactional()), version=version)
    assert question(bench).verify_only == (version < ADDS)


def test_all_new_partitions_of_a_request_are_added_by_one_question(bench: HandlerBench) -> None:
    begun(bench)
    batches = [("t", index, transactional(1 if index == 0 else 0)) for index in range(3)]
    asked = produced(bench, *batches)
    assert [one.partitions for one in question(bench).topics] == [[1, 2]]
    answer(bench)
    assert codes(asked.answer()) == [0, 0, 0]
    assert len(bench.transactions.forwarded) == 2


def test_once_a_batch_is_in_nobody_is_asked_until_the_next_transaction(
    bench: HandlerBench,
) -> None:
    begun(bench)
    assert ended(produced(bench, ("t", 0, transactional(1))).answer()) is ErrorCode.NONE
    assert len(bench.transactions.forwarded) == 1
    end_transaction(bench, epoch=1)
    begun(bench, epoch=1)
    assert len(bench.transactions.forwarded) == 2


def test_to_ask_is_no_matter_of_settings(tmp_path: Path) -> None:
    """Without it nobody would know of the partition at the end."""
    bench = HandlerBench(tmp_path / "log0", transaction_partition_verification_enable="false")
    bench.topic("t")
    asked = produced(bench, ("t", 0, transactional()))
    assert asked.answer() is None
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_its_clients_are_told_what_they_understand(
    bench: HandlerBench, said: ErrorCode, told: ErrorCode
) -> None:
    asked = produced(bench, ("t", 0, transactional()))
    answer(bench, said)
    assert ended(asked.answer()) is told
    assert log_of(bench).end == 0


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.NONE), (ADDS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
)
def test_who_is_not_known_begins_at_the_first_number_or_anywhere(
    bench: HandlerBench, version: int, code: ErrorCode
) -> None:
    """Each transaction has an epoch of its own, so nothing of it can have been forgotten."""
    asked = produced(bench, ("t", 0, transactional(4)), version=version)
    answer(bench)
    assert ended(asked.answer()) is code
    asked = produced(bench, ("t", 0, transactional(0)))
    if version == ADDS:
        answer(bench)
        assert ended(asked.answer()) is ErrorCode.NONE


def test_what_comes_late_is_refused_without_a_question(bench: HandlerBench) -> None:
    """Its marker has the next epoch: the log itself tells the past by that."""
    begun(bench)
    end_transaction(bench, epoch=1)
    late = produced(bench, ("t", 0, transactional(1)))
    assert ended(late.answer()) is ErrorCode.INVALID_PRODUCER_EPOCH
    begun(bench, epoch=1)
    late = produced(bench, ("t", 0, transactional(1)))
    assert ended(late.answer()) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(bench.transactions.forwarded) == 2


def test_a_word_that_an_end_has_overtaken_is_worth_nothing(bench: HandlerBench) -> None:
    asked = produced(bench, ("t", 0, transactional()))
    end_transaction(bench, epoch=1, committed=False)
    answer(bench)
    assert ended(asked.answer()) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log_of(bench).end == 1, "the marker alone"
