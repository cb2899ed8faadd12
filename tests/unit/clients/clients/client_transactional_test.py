"""The blocking producer of transactions over a fake network: what is asked, and what errors do."""

import pytest

from harness.machines.plans import FakeNetwork
from harness.machines.toy_transactions import BAD, ToyTransactions
from tidelog.clients.asking import Address, Cause
from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError, FatalError, TimedOutError
from tidelog.clients.producer.life import Phase
from tidelog.clients.producer.sender import Delivered, Failed, Identity
from tidelog.clients.producer.transaction import Membership, end_transaction
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import s
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from tidelog.wire.records import Record

PLACE = ("in", Partition(3))
ME = Membership("g", 4, "member", "instance")


def opened(cluster: ToyTransactions) -> TransactionalProducer:
    client = Client(FakeNetwork(cluster), [Address("b0", 9092)], timeout_ns=s(5))
    client.connect()
    settings = ProducerSettings(
        transactional_id="x",
        request_timeout_ns=s(1),
        delivery_timeout_ns=s(3),
        transaction_timeout_ns=s(45),
    )
    producer = TransactionalProducer(client, settings)
    producer.open("t")
    return producer


def send(producer: TransactionalProducer, *values: bytes) -> None:
    for value in values:
        producer.send("t", Record(0, 0, None, value), Partition(0))


def test_a_transaction_is_written_and_committed_in_the_order_of_the_protocol() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a", b"b")
    producer.commit()
    assert [one for one in cluster.done if one != "Metadata"] == [
        "FindCoordinator",
        "InitProducerId",
        "FindCoordinator",
        "AddPartitionsToTxn",
        "Produce",
        "EndTxn",
    ], "who coordinates is asked once for the id, once for all that follows"
    assert cluster.logs[0].visible() == [b"a", b"b"]
    assert [type(one) for one in producer.take_results()] == [Delivered]
    (init,) = [one for one in cluster.asked if isinstance(one, InitProducerIdRequest)]
    assert (init.transactional_id, init.transaction_timeout_ms) == ("x", 45_000)


def test_what_is_aborted_before_it_was_sent_never_goes_out() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a", b"b")
    producer.abort()
    assert "Produce" not in cluster.done
    (failed,) = producer.take_results()
    assert isinstance(failed, Failed)
    assert failed.detail == "its transaction was aborted"
    assert producer.phase is Phase.READY


def test_a_transaction_of_nothing_asks_nobody() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    for end in (producer.commit, producer.abort):
        producer.begin()
        end()
    producer.begin()
    producer.send_offsets({}, ME)
    producer.commit()
    assert "EndTxn" not in cluster.done
    assert "AddOffsetsToTxn" not in cluster.done


def test_offsets_are_committed_with_the_transaction_by_the_member_that_read_them() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    producer.send_offsets({PLACE: 9}, ME)
    assert cluster.offsets == {}
    producer.commit()
    assert cluster.offsets == {PLACE: 9}
    (commit,) = [one for one in cluster.asked if isinstance(one, TxnOffsetCommitRequest)]
    assert (commit.generation_id, commit.member_id, commit.group_instance_id) == (
        4,
        "member",
        "instance",
    )
    producer.begin()
    producer.send_offsets({PLACE: 10}, ME)
    producer.abort()
    assert cluster.offsets == {PLACE: 9}


def test_a_record_that_is_refused_breaks_the_transaction_and_the_next_one_goes_on() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    before = producer.identity
    producer.begin()
    send(producer, b"a", BAD)
    with pytest.raises(AbortableError, match="INVALID_RECORD: t-0"):
        producer.commit()
    with pytest.raises(AbortableError):
        send(producer, b"b")
    with pytest.raises(AbortableError):
        producer.flush()
    producer.abort()
    assert before is not None
    assert producer.identity == Identity(before.producer_id, before.epoch + 1)
    producer.begin()
    send(producer, b"c")
    producer.commit()
    assert cluster.logs[0].visible() == [b"c"]


def test_a_clean_abort_keeps_the_epoch() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    before = producer.identity
    producer.begin()
    send(producer, b"a")
    producer.flush()
    producer.abort()
    assert producer.identity == before
    producer.begin()
    send(producer, b"b")
    producer.commit()
    assert cluster.logs[0].visible() == [b"b"]


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_a_partition_that_may_not_join_breaks_the_transaction(code: ErrorCode) -> None:
    cluster = ToyTransactions(codes={"AddPartitionsToTxn": [code]})
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a")
    with pytest.raises(AbortableError, match=code.name):
        producer.flush()
    producer.abort()
    assert producer.phase is Phase.READY


def test_a_member_that_its_group_left_behind_can_only_abort() -> None:
    cluster = ToyTransactions(codes={"TxnOffsetCommit": [ErrorCode.ILLEGAL_GENERATION]})
    producer = opened(cluster)
    producer.begin()
    with pytest.raises(AbortableError, match="ILLEGAL_GENERATION: g"):
        producer.send_offsets({PLACE: 9}, ME)
    producer.abort()
    assert (cluster.offsets, producer.phase) == ({}, Phase.READY)


def test_who_is_fenced_can_do_nothing_more() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a")
    producer.flush()
    cluster.fence()
    with pytest.raises(FatalError, match="another producer has taken the transactional id over"):
        producer.commit()
    for call in (producer.begin, producer.commit, producer.abort, producer.flush):
        with pytest.raises(FatalError):
            call()
    assert cluster.logs[0].visible() == []


def test_a_commit_that_nobody_answers_is_made_again() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a")
    producer.flush()
    cluster.codes["EndTxn"] = [Cause.UNREACHABLE] * 20
    with pytest.raises(TimedOutError):
        producer.commit()
    assert producer.phase is Phase.COMMITTING
    with pytest.raises(RuntimeError):
        producer.abort()
    cluster.codes.clear()
    producer.commit()
    assert (cluster.logs[0].visible(), producer.phase) == ([b"a"], Phase.READY)


def test_a_transaction_that_is_left_open_is_ended_by_somebody_else() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, b"a", b"b")
    left = producer.leave_open()
    assert cluster.done.count("Produce") == 1, "all of it is written"
    assert cluster.logs[0].visible() == []
    other = Client(FakeNetwork(cluster), [Address("b0", 9092)], timeout_ns=s(5))
    other.connect()
    name, identity, takes_epochs = left
    other.run(end_transaction(other.view, name, identity, committed=True, bumps=takes_epochs))
    assert cluster.logs[0].visible() == [b"a", b"b"]


def test_a_transaction_with_a_batch_that_is_refused_cannot_be_left_to_somebody_else() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, BAD)
    with pytest.raises(AbortableError):
        producer.leave_open()


@pytest.mark.parametrize("waits_for", ["a batch", "the end"])
def test_an_abort_that_takes_longer_than_its_time_is_given_up(waits_for: str) -> None:
    cluster = ToyTransactions()
    network = FakeNetwork(cluster)
    client = Client(network, [Address("b0", 9092)], timeout_ns=s(60))
    client.connect()
    producer = TransactionalProducer(client, ProducerSettings(transactional_id="x", batch_bytes=70))
    producer.open("t")
    producer.begin()
    send(producer, b"a")
    producer.flush()
    network.delay_ns = s(20)
    if waits_for == "a batch":
        send(producer, b"b", b"c")  # the first of them fills a batch, which goes out
    before = network.now()
    late = {"a batch": "a broker does not answer", "the end": "did not answer in time"}
    with pytest.raises(TimedOutError, match=late[waits_for]):
        producer.abort(s(2))
    assert network.now() - before < s(10)


def test_an_abort_goes_on_where_it_was_when_the_next_epoch_is_late() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    producer.begin()
    send(producer, BAD)
    with pytest.raises(AbortableError):
        producer.flush()
    cluster.codes["InitProducerId"] = [Cause.UNREACHABLE] * 20
    with pytest.raises(TimedOutError):
        producer.abort()
    cluster.codes.clear()
    ends = cluster.done.count("EndTxn")
    producer.abort()
    assert cluster.done.count("EndTxn") == ends, "it is over already"
    assert producer.phase is Phase.READY


def test_an_id_that_is_refused_ends_the_producer_before_it_began() -> None:
    cluster = ToyTransactions(codes={"InitProducerId": [ErrorCode.INVALID_TRANSACTION_TIMEOUT]})
    with pytest.raises(FatalError, match="does not take this producer"):
        opened(cluster)


def test_a_cluster_without_transactions_is_told() -> None:
    cluster = ToyTransactions(codes={"InitProducerId": [Cause.UNSUPPORTED]})
    with pytest.raises(FatalError, match="UNSUPPORTED_VERSION"):
        opened(cluster)


def test_a_topic_that_is_not_there_is_no_end_of_a_producer() -> None:
    cluster = ToyTransactions()
    producer = opened(cluster)
    with pytest.raises(Rejected):
        producer.open("u")
    producer.begin()
    send(producer, b"a")
    producer.commit()
    assert cluster.logs[0].visible() == [b"a"]
