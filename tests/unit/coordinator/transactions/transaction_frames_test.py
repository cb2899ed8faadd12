"""Frames about transactions: what they ask, and every code in every version as clients know it."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from harness.machines.transaction_ids import EPOCH, ID, OTHER, PLACE, PRODUCER, WALL_MS, standing
from tidelog.coordinator.transactions.forwarded import Forwarded
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Describe,
    Described,
    Done,
    EndTxn,
    Identity,
    InitProducerId,
    ListAll,
    Listed,
    Reply,
    Verified,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import NO_LEADER, BrokerId, Partition, Uuid
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66
from tidelog.wire.metadata_records import PartitionCreated, PartitionView, TopicCreated
from tidelog.wire.transactions import STATE_TOPIC

E = ErrorCode
TOPICS = [k24.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]


def frame(api: AnyApi, version: int, message: object) -> bytes:
    return joined(encode_request(api, version, 7, "client", message))[4:]


def read(api: AnyApi, version: int, message: object) -> Forwarded:
    return Forwarded.read(frame(api, version, message))


def answer(forwarded: Forwarded, api: AnyApi, *replies: Reply) -> Any:
    said = forwarded.answer(replies)
    correlation, response = decode_response(api, forwarded.header.version, memoryview(said))
    assert correlation == 7
    return response


def image_with_offsets(partitions: int = 4) -> MetadataImage:
    image = MetadataImage()
    uuid = Uuid(bytes(16))
    image.replay(TopicCreated(uuid, OFFSETS_TOPIC))
    for index in range(partitions):
        view = PartitionView((BrokerId(0),), (BrokerId(0),), NO_LEADER)
        image.replay(PartitionCreated(uuid, Partition(index), view))
    return image


def init(version: int, **fields: Any) -> Forwarded:
    known = {"transactional_id": ID, "transaction_timeout_ms": 5, **fields}
    return read(k22.API, version, k22.InitProducerIdRequest(**known))


def add(version: int, name: str = ID) -> Forwarded:
    if version < 4:
        message = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=PRODUCER,
            v3_and_below_producer_epoch=EPOCH,
            v3_and_below_topics=TOPICS,
        )
    else:
        message = k24.AddPartitionsToTxnRequest(
            transactions=[
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=f"{name}{verify_only or ''}",
                    producer_id=PRODUCER,
                    producer_epoch=EPOCH,
                    verify_only=verify_only,
                    topics=TOPICS,
                )
                for verify_only in (False, True)
            ]
        )
    return read(k24.API, version, message)


def add_offsets(version: int, name: str = ID) -> Forwarded:
    message = k25.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=PRODUCER, producer_epoch=EPOCH, group_id="g"
    )
    return read(k25.API, version, message)


def end(version: int, name: str = ID) -> Forwarded:
    message = k26.EndTxnRequest(
        transactional_id=name, producer_id=PRODUCER, producer_epoch=EPOCH, committed=True
    )
    return read(k26.API, version, message)


PLACES = frozenset({PLACE, OTHER})
NOTHING = MetadataImage()


def test_each_request_becomes_what_it_asks() -> None:
    assert init(2).parts(NOTHING) == [InitProducerId(ID, 5)]
    known = init(3, producer_id=PRODUCER, producer_epoch=EPOCH)
    assert known.parts(NOTHING) == [InitProducerId(ID, 5, PRODUCER, EPOCH)]
    for version in range(4):
        assert add(version).parts(NOTHING) == [AddPartitions(ID, PRODUCER, EPOCH, PLACES)]
    for version in (4, 5):
        assert add(version).parts(NOTHING) == [
            AddPartitions(ID, PRODUCER, EPOCH, PLACES, 2),
            VerifyPartitions(f"{ID}True", PRODUCER, EPOCH, PLACES),
        ]
    for version in range(5):
        where = frozenset({(OFFSETS_TOPIC, Partition(partition_of("g", 4)))})
        asked = add_offsets(version).parts(image_with_offsets())
        assert asked == [AddPartitions(ID, PRODUCER, EPOCH, where)]
        assert end(version).parts(NOTHING) == [EndTxn(ID, PRODUCER, EPOCH, committed=True)]
    ended = EndTxn(ID, PRODUCER, EPOCH, committed=True, version=2)
    assert end(5).parts(NOTHING) == [ended]


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, STATE_TOPIC])
def test_a_client_s_transaction_has_no_part_in_an_internal_topic(topic: str) -> None:
    message = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=PRODUCER,
        v3_and_below_producer_epoch=EPOCH,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    refused = Refusal(E.TOPIC_AUTHORIZATION_FAILED)
    assert read(k24.API, 3, message).parts(NOTHING) == [refused]


@pytest.mark.parametrize("verify_only", [False, True])
def test_a_broker_s_word_makes_none_part_of_what_keeps_transactions(*, verify_only: bool) -> None:
    """Offsets of a group are, for brokers add the partition that keeps them."""
    message = k24.AddPartitionsToTxnRequest(
        transactions=[
            k24.AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=PRODUCER,
                producer_epoch=EPOCH,
                verify_only=verify_only,
                topics=[k24.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            for topic in (STATE_TOPIC, OFFSETS_TOPIC)
        ]
    )
    state, offsets = read(k24.API, 5, message).parts(NOTHING)
    assert state == Refusal(E.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(offsets, VerifyPartitions if verify_only else AddPartitions)


def test_offsets_wait_for_the_topic_that_keeps_them() -> None:
    assert add_offsets(3).parts(NOTHING) == [Refusal(E.COORDINATOR_LOAD_IN_PROGRESS)]


@pytest.mark.parametrize(
    "fields",
    [
        {"transactional_id": ""},
        {"transactional_id": None},
        {"producer_id": 7},
        {"producer_epoch": 3},
    ],
)
def test_a_producer_that_says_half_of_who_it_was_is_refused(fields: dict[str, Any]) -> None:
    assert init(4, **fields).parts(NOTHING) == [Refusal(E.INVALID_REQUEST)]


def test_nobody_has_the_empty_id() -> None:
    invalid = Refusal(E.INVALID_REQUEST)
    assert add(3, "").parts(NOTHING) == [invalid]
    assert add(4, "").parts(NOTHING)[0] == invalid
    assert add_offsets(3, "").parts(image_with_offsets()) == [invalid]
    assert end(3, "").parts(NOTHING) == [invalid]
    describe = read(k65.API, 0, k65.DescribeTransactionsRequest(transactional_ids=["", ID]))
    assert describe.parts(NOTHING) == [invalid, Describe(ID)]


def _codes(code: ErrorCode, versions: int, fenced_from: int) -> list[ErrorCode]:
    """What each version says where the coordinator says this."""
    old = E.INVALID_PRODUCER_EPOCH if code is E.PRODUCER_FENCED else code
    return [old if version < fenced_from else code for version in range(versions)]


CODES = [
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.INVALID_TXN_STATE,
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.INVALID_REQUEST,
    E.INVALID_TRANSACTION_TIMEOUT,
    E.UNKNOWN_TOPIC_OR_PARTITION,
]


@pytest.mark.parametrize("code", CODES)
def test_each_version_says_a_code_that_its_clients_know(code: ErrorCode) -> None:
    refusal = Refusal(code)
    inits = [answer(init(version), k22.API, refusal) for version in range(6)]
    assert [one.error_code for one in inits] == _codes(code, 6, fenced_from=4)
    assert {(one.producer_id, one.producer_epoch) for one in inits} == {(-1, -1)}
    adds = [answer(add(version), k24.API, refusal) for version in range(4)]
    assert [_row_codes(one.results_by_topic_v3_and_below) for one in adds] == [
        [said, said] for said in _codes(code, 4, fenced_from=2)
    ]
    offsets = [answer(add_offsets(version), k25.API, refusal) for version in range(5)]
    assert [one.error_code for one in offsets] == _codes(code, 5, fenced_from=2)
    ends = [answer(end(version), k26.API, refusal) for version in range(6)]
    assert [one.error_code for one in ends] == _codes(code, 6, fenced_from=2)
    assert {(one.producer_id, one.producer_epoch) for one in ends} == {(-1, -1)}


@pytest.mark.parametrize(("code", "version"), list(product(CODES, (4, 5))))
def test_brokers_know_every_code(code: ErrorCode, version: int) -> None:
    said = answer(add(version), k24.API, Refusal(code), Refusal(code))
    assert [_row_codes(one.topic_results) for one in said.results_by_transaction] == [
        [code, code],
        [code, code],
    ]


def _row_codes(rows: Sequence[k24.AddPartitionsToTxnTopicResult]) -> list[int]:
    return [one.partition_error_code for row in rows for one in row.results_by_partition]


def test_what_was_done_is_said() -> None:
    for version in range(6):
        said = answer(init(version), k22.API, Identity(PRODUCER, EPOCH))
        assert (said.error_code, said.producer_id, said.producer_epoch) == (0, PRODUCER, EPOCH)
    for version in range(4):
        said = answer(add(version), k24.API, Done())
        assert _row_codes(said.results_by_topic_v3_and_below) == [0, 0]
    for version in range(5):
        assert answer(add_offsets(version), k25.API, Done()).error_code == 0
        assert answer(end(version), k26.API, Done()).error_code == 0
    for version in range(6):
        said = answer(end(version), k26.API, Identity(PRODUCER, EPOCH))
        told = (PRODUCER, EPOCH) if version == 5 else (-1, -1)
        assert (said.error_code, said.producer_id, said.producer_epoch) == (0, *told)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_is_told_of_each_partition_and_of_each_transaction(version: int) -> None:
    codes = ((PLACE, E.NONE), (OTHER, E.TRANSACTION_ABORTABLE))
    said = answer(add(version), k24.API, Refusal(E.CONCURRENT_TRANSACTIONS), Verified(codes))
    first, second = said.results_by_transaction
    assert (first.transactional_id, second.transactional_id) == (ID, f"{ID}True")
    assert _row_codes(first.topic_results) == [E.CONCURRENT_TRANSACTIONS] * 2
    assert _row_codes(second.topic_results) == [E.NONE, E.TRANSACTION_ABORTABLE]


def test_an_id_is_described() -> None:
    names = [ID, "unknown"]
    asked = read(k65.API, 0, k65.DescribeTransactionsRequest(transactional_ids=names))
    assert asked.asks_all() is None
    known = standing(TxnState.ONGOING, partitions=frozenset({OTHER, PLACE, ("a", Partition(2))}))
    unknown = Refusal(E.TRANSACTIONAL_ID_NOT_FOUND)
    found, missing = answer(asked, k65.API, Described(known), unknown).transaction_states
    assert (found.transactional_id, found.error_code, found.transaction_state) == (ID, 0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (PRODUCER, EPOCH)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, WALL_MS)
    assert [(one.topic, one.partitions) for one in found.topics] == [("a", [2]), ("t", [0, 1])]
    assert (missing.transactional_id, missing.error_code) == ("unknown", 105)
    assert (missing.transaction_state, missing.producer_id, missing.topics) == ("", -1, [])


def listing(version: int, **fields: Any) -> Forwarded:
    known = {"state_filters": [], "producer_id_filters": [], **fields}
    return read(k66.API, version, k66.ListTransactionsRequest(**known))


def test_filters_of_a_list_are_understood() -> None:
    assert listing(0).asks_all() == ListAll()
    asked = listing(1, state_filters=["Ongoing", "Nonsense"], producer_id_filters=[7, 8])
    assert asked.asks_all() == ListAll(frozenset({TxnState.ONGOING}), frozenset({7, 8}))
    assert answer(asked, k66.API).unknown_state_filters == ["Nonsense"]
    assert listing(1, state_filters=["Nonsense"]).asks_all() == ListAll(states=frozenset())
    assert listing(1, duration_filter=0).asks_all() == ListAll(open_longer_than_ms=0)
    assert listing(2, duration_filter=-1).asks_all() == ListAll()


def test_a_list_joins_what_the_partitions_say_and_keeps_what_the_expression_matches() -> None:
    rows = tuple((name, standing(TxnState.ONGOING)) for name in ("app:1", "app:2", "Übung"))
    replies = (Listed(rows[:1]), Listed(rows[1:]))
    said = answer(listing(2), k66.API, *replies)
    assert [one.transactional_id for one in said.transaction_states] == ["app:1", "app:2", "Übung"]
    assert {(one.producer_id, one.transaction_state) for one in said.transaction_states} == {
        (PRODUCER, "Ongoing")
    }
    for pattern, names in (
        ("app:.", ["app:1", "app:2"]),
        ("", ["app:1", "app:2", "Übung"]),
        ("Ü.*", ["Übung"]),
        ("app", []),
    ):
        found = answer(listing(2, transactional_id_pattern=pattern), k66.API, *replies)
        assert [one.transactional_id for one in found.transaction_states] == names


def test_a_list_of_a_partition_that_is_not_open_is_none() -> None:
    said = answer(listing(2), k66.API, Listed(()), Refusal(E.COORDINATOR_LOAD_IN_PROGRESS))
    assert said.error_code == E.COORDINATOR_LOAD_IN_PROGRESS


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(Rejected) as refused:
        listing(2, transactional_id_pattern="(").asks_all()
    assert refused.value.code is E.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        frame(k03.API, 1, k03.MetadataRequest(topics=[])),
        frame(k26.API, 4, k26.EndTxnRequest(transactional_id=ID))[:-3],
    ],
    ids=["nothing", "another API", "cut"],
)
def test_a_frame_that_is_none_of_these_is_turned_down(bytes_: bytes) -> None:
    with pytest.raises(WireError):
        Forwarded.read(bytes_)
