"""What clients ask about transactions: who leads the id's partition passes it on as it came."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import led_here
from harness.machines.group_bench import Asked, GroupBench
from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_known, decode_request, encode_response, joined
from tidelog.wire.header import AnyApi, decode_request_header
from tidelog.wire.messages import (
    k10_find_coordinator,
    k19_create_topics,
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k65_describe_transactions,
    k66_list_transactions,
)
from tidelog.wire.metadata_records import PartitionChanged
from tidelog.wire.transactions import STATE_TOPIC

INIT = k22_init_producer_id.InitProducerIdRequest(
    transactional_id="a", transaction_timeout_ms=60_000
)
END = k26_end_txn.EndTxnRequest(
    transactional_id="a", producer_id=7, producer_epoch=0, committed=True
)
ADD_OFFSETS = k25_add_offsets_to_txn.AddOffsetsToTxnRequest(
    transactional_id="a", producer_id=7, producer_epoch=0, group_id="g"
)
MINE, ELSEWHERE = "a", "b"
"""Of the two partitions of the state topic these ids are kept by one each."""


def adding(**topics: list[int]) -> k24_add_partitions_to_txn.AddPartitionsToTxnRequest:
    return k24_add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="a",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[
            k24_add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )


REQUESTS: list[tuple[AnyApi, int, Any]] = [
    (k22_init_producer_id.API, 4, INIT),
    (k24_add_partitions_to_txn.API, 3, adding(t=[0])),
    (k25_add_offsets_to_txn.API, 3, ADD_OFFSETS),
    (k26_end_txn.API, 3, END),
]
IDS = ["init", "partitions", "offsets", "end"]


def code_of(answer: Any) -> int:
    if isinstance(answer, k24_add_partitions_to_txn.AddPartitionsToTxnResponse):
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return int(answer.error_code)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.topic("t")
    bench.topic(STATE_TOPIC, 2)
    assert partition_of(MINE, 2) != partition_of(ELSEWHERE, 2)
    return bench


def lose(bench: GroupBench, transactional_id: str) -> None:
    """Another broker leads the id's partition now."""
    topic = bench.image.names[STATE_TOPIC]
    gone = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(topic.id, Partition(partition_of(transactional_id, 2)), gone))


def answered(bench: GroupBench, asked: Asked, api: AnyApi, version: int, answer: object) -> Any:
    """Have the transaction coordinator answer the one request that reached it."""
    ((key, _),) = bench.transactions.forwarded
    assert key == api.key
    bench.transactions.done[0](joined(encode_response(api, version, 9, answer))[4:])
    return asked.answer()


def passed_on(bench: GroupBench, api: AnyApi) -> Any:
    """The request as the transaction coordinator gets it."""
    ((_, frame),) = bench.transactions.forwarded
    view = memoryview(frame)
    header = decode_request_header(view, {api.key: api})
    return decode_request(api, header.version, view, header.body_position)


@pytest.mark.parametrize(("api", "version", "request_"), REQUESTS, ids=IDS)
def test_the_leader_of_the_id_s_partition_passes_it_on(
    bench: GroupBench, api: AnyApi, version: int, request_: Any
) -> None:
    asked = bench.start_asking(api, version, request_)
    assert asked.answer() is None
    assert passed_on(bench, api) == request_
    bench.transactions.done[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code_of(asked.answer()) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("api", "version", "request_"), REQUESTS, ids=IDS)
def test_another_broker_sends_the_client_to_look_for_the_right_one(
    bench: GroupBench, api: AnyApi, version: int, request_: Any
) -> None:
    lose(bench, MINE)
    assert code_of(bench.ask(api, version, request_)) == ErrorCode.NOT_COORDINATOR
    assert not bench.transactions.forwarded


def test_the_coordinator_s_answer_is_the_client_s(bench: GroupBench) -> None:
    api = k22_init_producer_id.API
    asked = bench.start_asking(api, 4, INIT)
    answer = k22_init_producer_id.InitProducerIdResponse(producer_id=70, producer_epoch=3)
    found = answered(bench, asked, api, 4, answer)
    assert (found.error_code, found.producer_id, found.producer_epoch) == (0, 70, 3)


@pytest.mark.parametrize(("api", "version", "request_"), REQUESTS, ids=IDS)
def test_what_was_under_way_when_the_coordinator_died_is_soon_asked_again(
    bench: GroupBench, api: AnyApi, version: int, request_: Any
) -> None:
    """For partitions by the code that librdkafka waits 20 ms for, instead of 500."""
    asked = bench.start_asking(api, version, request_)
    bench.transactions.done[0](ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    adds = api is k24_add_partitions_to_txn.API
    loading, sooner = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(asked.answer()) == (sooner if adds else loading)


def test_an_id_without_a_name_is_none(bench: GroupBench) -> None:
    request = k22_init_producer_id.InitProducerIdRequest(
        transactional_id="", transaction_timeout_ms=60_000
    )
    answer = bench.ask(k22_init_producer_id.API, 4, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_with_a_partition_that_is_nowhere_none_is_added(bench: GroupBench) -> None:
    answer = bench.ask(k24_add_partitions_to_txn.API, 3, adding(t=[0, 1], u=[0]))
    rows = {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 1): unknown,
        ("u", 0): unknown,
    }
    assert not bench.transactions.forwarded


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, STATE_TOPIC])
def test_no_client_makes_an_internal_topic_part_of_its_transaction(
    bench: GroupBench, topic: str
) -> None:
    answer = bench.ask(k24_add_partitions_to_txn.API, 3, adding(**{topic: [0], "t": [0]}))
    rows = {
        one.name: [row.partition_error_code for row in one.results_by_partition]
        for one in answer.results_by_topic_v3_and_below
    }
    refused, other = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert rows == {topic: [refused], "t": [other]}
    assert not bench.transactions.forwarded


def test_offsets_can_be_added_before_anybody_looked_for_a_group(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic(STATE_TOPIC, 2)
    asked = bench.start_asking(k25_add_offsets_to_txn.API, 3, ADD_OFFSETS)
    assert created(bench).name == OFFSETS_TOPIC
    assert not bench.transactions.forwarded
    bench.topic(OFFSETS_TOPIC, 2, cleanup_policy="compact")
    bench.link.done[0](b"")
    assert passed_on(bench, k25_add_offsets_to_txn.API) == ADD_OFFSETS
    answer = k25_add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=0)
    found = answered(bench, asked, k25_add_offsets_to_txn.API, 3, answer)
    assert found.error_code == ErrorCode.NONE


def test_who_leads_the_id_s_partition_no_more_by_then_says_so(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic(STATE_TOPIC, 2)
    asked = bench.start_asking(k25_add_offsets_to_txn.API, 3, ADD_OFFSETS)
    lose(bench, MINE)
    bench.topic(OFFSETS_TOPIC, 2, cleanup_policy="compact")
    bench.link.done[0](b"")
    assert asked.answer().error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_are_some_group_s(bench: GroupBench) -> None:
    request = k25_add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id="a", producer_id=7, producer_epoch=0, group_id=""
    )
    answer = bench.ask(k25_add_offsets_to_txn.API, 3, request)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_where_that_topic_cannot_be_made_clients_try_again(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic(STATE_TOPIC, 2)
    asked = bench.start_asking(k25_add_offsets_to_txn.API, 3, ADD_OFFSETS)
    bench.link.done[0](ErrorCode.NOT_CONTROLLER)
    assert asked.answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_request_whose_client_went_away_is_taken_back_if_that_can_be(bench: GroupBench) -> None:
    asked = bench.start_asking(k26_end_txn.API, 3, END)
    assert not bench.transactions.forgotten
    asked.client.session.abandon()
    assert bench.transactions.forgotten == [0]


def created(bench: GroupBench) -> k19_create_topics.CreatableTopic:
    """The one topic that the coordinator is asked to make."""
    ((key, frame),) = bench.link.forwarded
    assert key == k19_create_topics.API.key
    view = memoryview(frame)
    header = decode_request_header(view, {19: k19_create_topics.API})
    (topic,) = decode_request(
        k19_create_topics.API, header.version, view, header.body_position
    ).topics
    found: k19_create_topics.CreatableTopic = topic
    return found


def test_the_first_who_looks_for_an_id_s_coordinator_has_the_topic_made(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0", transaction_state_log_num_partitions="7")
    request = k10_find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    asked = bench.start_asking(k10_find_coordinator.API, 4, request)
    topic = created(bench)
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (STATE_TOPIC, 7, 1)
    configs = {row.name: row.value for row in topic.configs}
    assert configs == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    bench.topic(STATE_TOPIC, 7)
    bench.link.done[0](b"")
    rows = [(row.key, row.error_code, row.node_id) for row in asked.answer().coordinators]
    assert rows == [("a", 0, 0), ("b", 0, 0)]


def test_of_an_id_whose_partition_nobody_leads_there_is_no_coordinator(bench: GroupBench) -> None:
    lose(bench, MINE)
    request = k10_find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    answer = bench.ask(k10_find_coordinator.API, 4, request)
    codes = [row.error_code for row in answer.coordinators]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]


def described(name: str) -> k65_describe_transactions.TransactionState:
    return k65_describe_transactions.TransactionState(
        transactional_id=name,
        error_code=0,
        transaction_state="Ongoing",
        transaction_timeout_ms=1,
        transaction_start_time_ms=2,
        producer_id=3,
        producer_epoch=4,
        topics=[],
    )


def test_each_broker_describes_the_ids_whose_partition_it_leads(bench: GroupBench) -> None:
    lose(bench, ELSEWHERE)
    api = k65_describe_transactions.API
    request = k65_describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[ELSEWHERE, MINE, ""]
    )
    asked = bench.start_asking(api, 0, request)
    assert passed_on(bench, api).transactional_ids == [MINE]
    answer = k65_describe_transactions.DescribeTransactionsResponse(
        transaction_states=[described(MINE)]
    )
    rows = answered(bench, asked, api, 0, answer).transaction_states
    assert [(row.transactional_id, row.error_code, row.transaction_state) for row in rows] == [
        (ELSEWHERE, ErrorCode.NOT_COORDINATOR, ""),
        (MINE, 0, "Ongoing"),
        ("", ErrorCode.INVALID_REQUEST, ""),
    ]


def describe_some(bench: GroupBench, topics: list[k65_describe_transactions.TopicData]) -> int:
    """Answer the piece that is under way; how many ids it asks for."""
    api = k65_describe_transactions.API
    _, message = decode_known(bench.transactions.forwarded[-1][1], {api.key: api})
    rows = [described(name) for name in message.transactional_ids]
    rows[0].topics = topics
    answer = k65_describe_transactions.DescribeTransactionsResponse(transaction_states=rows)
    bench.transactions.done[-1](joined(encode_response(api, 0, 0, answer))[4:])
    return len(rows)


def test_many_ids_are_described_in_pieces(bench: GroupBench) -> None:
    """Those after an id of very many partitions are few: the next one may have as many."""
    api = k65_describe_transactions.API
    names = [f"id-{at}" for at in range(2_000)]
    request = k65_describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
    asked = bench.start_asking(api, 0, request)
    wide = [k65_describe_transactions.TopicData(topic="t", partitions=list(range(1_001)))]
    asked_for = [
        describe_some(bench, wide if len(bench.transactions.done) == 3 else []) for _ in range(11)
    ]
    assert asked_for == [8, 16, 32, 8, 16, 32, 64, 128, 256, 512, 928]
    assert [row.transactional_id for row in asked.answer().transaction_states] == names


def test_ids_that_the_coordinator_was_not_asked_for_have_the_code_of_those_before(
    bench: GroupBench,
) -> None:
    api = k65_describe_transactions.API
    names = [f"id-{at}" for at in range(20)]
    request = k65_describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
    asked = bench.start_asking(api, 0, request)
    describe_some(bench, [])
    bench.transactions.done[-1](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    codes = [row.error_code for row in asked.answer().transaction_states]
    assert codes == [0] * 8 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 12


def test_more_partitions_than_a_transaction_may_have_are_refused_by_the_broker(
    bench: GroupBench,
) -> None:
    """The coordinator of transactions has one loop: it would have to read them first."""
    bench.topic("wide", 2)
    many = [n % 2 for n in range(limits.TRANSACTION_PARTITIONS_MAX + 1)]
    topic = k24_add_partitions_to_txn.AddPartitionsToTxnTopic(name="wide", partitions=many)
    request = k24_add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=MINE, v3_and_below_topics=[topic]
    )
    told = bench.ask(k24_add_partitions_to_txn.API, 3, request)
    (rows,) = told.results_by_topic_v3_and_below
    codes = {row.partition_error_code for row in rows.results_by_partition}
    assert codes == {ErrorCode.POLICY_VIOLATION}
    assert not bench.transactions.forwarded


def test_of_ids_that_are_all_elsewhere_nobody_is_asked(bench: GroupBench) -> None:
    lose(bench, MINE)
    request = k65_describe_transactions.DescribeTransactionsRequest(transactional_ids=[MINE])
    (row,) = bench.ask(k65_describe_transactions.API, 0, request).transaction_states
    assert row.error_code == ErrorCode.NOT_COORDINATOR


def test_each_broker_lists_the_ids_whose_partition_it_leads(bench: GroupBench) -> None:
    lose(bench, ELSEWHERE)
    api = k66_list_transactions.API
    request = k66_list_transactions.ListTransactionsRequest(
        duration_filter=5, transactional_id_pattern="x.*"
    )
    asked = bench.start_asking(api, 2, request)
    assert passed_on(bench, api) == request
    rows = [
        k66_list_transactions.TransactionState(
            transactional_id=name, producer_id=1, transaction_state="Empty"
        )
        for name in (MINE, ELSEWHERE)
    ]
    answer = k66_list_transactions.ListTransactionsResponse(transaction_states=rows)
    found = answered(bench, asked, api, 2, answer)
    assert [row.transactional_id for row in found.transaction_states] == [MINE]


def test_while_the_coordinator_is_away_nothing_is_listed(bench: GroupBench) -> None:
    asked = bench.start_asking(
        k66_list_transactions.API, 2, k66_list_transactions.ListTransactionsRequest()
    )
    bench.transactions.done[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert asked.answer().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_bad_pattern_is_one_also_before_the_first_transaction(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0")
    api = k66_list_transactions.API
    request = k66_list_transactions.ListTransactionsRequest(transactional_id_pattern="(")
    assert bench.ask(api, 2, request).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_before_the_first_transaction_there_are_none(tmp_path: Path) -> None:
    bench = GroupBench(tmp_path / "log0")
    answer = bench.ask(
        k66_list_transactions.API, 2, k66_list_transactions.ListTransactionsRequest()
    )
    assert (answer.error_code, answer.transaction_states) == (0, [])
