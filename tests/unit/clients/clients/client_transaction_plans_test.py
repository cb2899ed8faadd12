"""Plans of coordinators, producer ids and transactions, driven by hand."""

import pytest

from harness.machines.plans import Reply, by_api, drive, metadata, replies, view_of
from tidelog.clients.admin.coordinators import KeyType, ask_coordinator, find_coordinator
from tidelog.clients.asking import Call, Cause, Pause, Somewhere
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import add_partitions, end_transaction
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.k22_init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.k26_end_txn import EndTxnResponse

ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))


def coordinator(broker: int = 0, code: int = 0) -> FindCoordinatorResponse:
    row = Coordinator(
        key="x", node_id=broker, host="b0", port=9092, error_code=code, error_message=None
    )
    return FindCoordinatorResponse(error_message=None, coordinators=[row])


def test_a_coordinator_is_asked_for_until_there_is_one() -> None:
    pauses: list[Pause] = []
    late = coordinator(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answers = by_api(
        FindCoordinator=[late, coordinator(broker=5), coordinator(broker=1)], Metadata=metadata(0)
    )
    plan = find_coordinator(view_of(0), "x", KeyType.TRANSACTION)
    assert drive(plan, answers, pauses) == 1
    assert len(pauses) == 2


def test_an_old_broker_answers_one_key() -> None:
    old = FindCoordinatorResponse(
        error_code=15, error_message="later", node_id=-1, host="", port=-1
    )
    answer = drive(ask_coordinator("g", KeyType.GROUP), replies(Cause.UNREACHABLE, old))
    assert (answer.code, answer.detail) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "later")


def test_a_key_that_nobody_will_coordinate_is_refused() -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(Rejected):
        drive(find_coordinator(view_of(0), "x", KeyType.TRANSACTION), replies(coordinator(0, code)))


def test_a_plain_producer_gets_its_id_from_any_broker() -> None:
    asked: list[int | Somewhere] = []
    waiting = [
        Cause.UNREACHABLE,
        InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
        ),
        InitProducerIdResponse(error_code=0, producer_id=9, producer_epoch=2),
    ]

    def answer(call: Call) -> Reply:
        asked.append(call.to)
        return waiting.pop(0)

    assert drive(init_producer_id(view_of(0), None), answer) == Identity(9, 2)
    assert set(asked) == {Somewhere.ANY}


def test_a_transactional_producer_gets_its_id_from_its_coordinator() -> None:
    answers = by_api(
        FindCoordinator=coordinator(1),
        InitProducerId=InitProducerIdResponse(error_code=0, producer_id=9, producer_epoch=2),
    )
    assert drive(init_producer_id(view_of(0), "x"), answers) == Identity(9, 2)


def test_a_producer_id_that_is_refused_is_an_error() -> None:
    refused = InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED, producer_epoch=-1)
    with pytest.raises(Rejected):
        drive(init_producer_id(view_of(0), None), replies(refused))


def added(*codes: int) -> k24.AddPartitionsToTxnResponse:
    rows = [
        k24.AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
        for n, code in enumerate(codes)
    ]
    topic = k24.AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)
    return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def test_partitions_join_a_transaction_once_the_last_one_is_over() -> None:
    answers = by_api(
        FindCoordinator=coordinator(1),
        Metadata=metadata(0),
        AddPartitionsToTxn=[Cause.UNREACHABLE, added(51, 55), added(0, 0)],
    )
    pauses: list[Pause] = []
    drive(add_partitions(view_of(0), "x", Identity(9, 2), [ZERO, ONE]), answers, pauses)
    assert [one.because for one in pauses] == [
        "unreachable",
        "transaction x: CONCURRENT_TRANSACTIONS",
    ]


def test_a_fenced_producer_cannot_join() -> None:
    answers = by_api(FindCoordinator=coordinator(1), AddPartitionsToTxn=added(55, 90))
    with pytest.raises(Rejected, match="PRODUCER_FENCED"):
        drive(add_partitions(view_of(0), "x", Identity(9, 2), [ZERO, ONE]), answers)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_as_it_was_said(committed: bool) -> None:  # noqa: FBT001 -- a case
    ends: list[bool] = []

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "FindCoordinator":
            return coordinator(1)
        ends.append(call.ask.message.committed)
        return EndTxnResponse(error_code=0)

    drive(end_transaction(view_of(0), "x", Identity(9, 2), committed=committed), answer)
    assert ends == [committed]
