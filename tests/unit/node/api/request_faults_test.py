"""A fault of ours that one request brings out ends that request, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.controllers import topic
from harness.machines.conversations import Conversation
from harness.machines.group_bench import GroupBench, commit, fetch_offsets
from harness.machines.transaction_scenes import KEYS, Scene
from harness.simulation.living import Life
from tidelog.coordinator.controller import front
from tidelog.coordinator.controller.forwarding import Forwarded
from tidelog.coordinator.controller.front import RequestFailed
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.transactions.forwarded import Forwarded as ForwardedTransaction
from tidelog.coordinator.transactions.requests import MarkersWritten
from tidelog.coordinator.transactions.shard import TxnShard
from tidelog.kernel.ids import BrokerId, Incarnation, Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api import k01_fetch as handler
from tidelog.node.api.call import Call
from tidelog.node.log.log import Log
from tidelog.node.net.client import RequestFailedError
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, WireError
from tidelog.wire.messages import k00_produce, k01_fetch, k19_create_topics, k22_init_producer_id
from tidelog.wire.messages import k21_delete_records as k21
from tidelog.wire.messages import k27_write_txn_markers as k27
from tidelog.wire.messages.k03_metadata import API as METADATA
from tidelog.wire.messages.k03_metadata import MetadataRequest, MetadataResponse

E = ErrorCode
FAULTS = (
    WireError("bytes"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
    OverflowError(),
    KeyError("a"),
    IndexError(),
    AttributeError(),
    TypeError(),
    RecursionError(),
)


def raising(fault: BaseException) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise fault

    return raises


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    made = HandlerBench(tmp_path / "log0")
    made.topic("t")
    return made


def fetch(bench: HandlerBench, client: FakeClient) -> None:
    """A fetch that waits for a record."""
    asked = k01_fetch.FetchTopic(
        topic="t",
        partitions=[
            k01_fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        ],
    )
    request = k01_fetch.FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[asked])
    bench.begin(client, k01_fetch.API, 11, request)


def produce(bench: HandlerBench) -> Any:
    request = produce_request("t", batch_of(b"a"))
    return bench.ask(k00_produce.API, 9, request).responses[0].partition_responses[0]


@pytest.mark.parametrize("fault", FAULTS[1:], ids=repr)
def test_a_fault_in_a_handler_ends_the_connection_and_is_told(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr("tidelog.node.api.k03_metadata._told", raising(fault))
    with pytest.raises(RequestFailedError, match=type(fault).__name__):
        bench.begin(FakeClient(), METADATA, 12, MetadataRequest(topics=None))
    assert len(bench.faults) == 1
    assert "request_faults_test.py" in bench.faults[0]


def test_an_assertion_about_our_own_state_is_no_fault_of_a_request(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.node.api.k03_metadata._told", raising(AssertionError("ours")))
    with pytest.raises(AssertionError, match="ours"):
        bench.begin(FakeClient(), METADATA, 12, MetadataRequest(topics=None))
    assert not issubclass(AssertionError, REQUEST_FAULTS)
    assert bench.faults == []


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_late_answer_that_fails_ends_its_connection_and_the_next_one_is_answered(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    first, second = FakeClient(), FakeClient()
    fetch(bench, first)
    fetch(bench, second)
    look = k01_looks(monkeypatch)
    look.insert(0, raising(fault))
    assert produce(bench).error_code == 0
    assert first.closed is not None
    assert first.frames() == []
    assert len(second.frames()) == 1
    assert len(bench.faults) == 1


def k01_looks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What the next looks of waiting fetches do in place of what they would."""
    planned: list[Callable[..., Any]] = []
    usual = handler._again

    def looks(*given: Any) -> Any:
        return (planned.pop(0) if planned else usual)(*given)

    monkeypatch.setattr(handler, "_again", looks)
    return planned


@pytest.mark.parametrize("asked", ["ready", "grown"])
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_waiting_request_that_fails_at_being_looked_at_ends_and_others_are_served(
    bench: HandlerBench, fault: Exception, asked: str
) -> None:
    waiting, key, now = bench.broker.waiting, ("t", Partition(0)), bench.now
    woken: list[str] = []
    failed: list[Exception] = []
    first = Waiter((key,), Instant(now + ms(9)), lambda _: woken.append("first"), missing=1)
    second = Waiter((key,), Instant(now + ms(9)), lambda _: woken.append("second"), missing=1)
    setattr(first, asked, raising(fault))
    first.failed = failed.append
    waiting.park(first)
    waiting.park(second)
    waiting.advanced(now, key, 1)
    assert (woken, failed, waiting.count) == (["second"], [fault], 0)


def test_two_requests_of_one_connection_that_fail_together_end_once(bench: HandlerBench) -> None:
    """The first one's fault ends the connection, and that takes the second one along."""
    waiting, key, now = bench.broker.waiting, ("t", Partition(0)), bench.now
    failed: list[Exception] = []
    both = [
        Waiter(
            (key,), Instant(now + ms(9)), raising(AssertionError()), missing=1, ready=raising(one)
        )
        for one in (KeyError("first"), KeyError("second"))
    ]

    def close(fault: Exception) -> None:
        failed.append(fault)
        for waiter in both:
            waiting.cancel(waiter)

    for waiter in both:
        waiter.failed = close
        waiting.park(waiter)
    waiting.advanced(now, key, 1)
    assert (list(map(str, failed)), waiting.count) == (["'first'"], 0)


def test_a_fault_of_who_waits_for_no_request_is_one_of_our_own(bench: HandlerBench) -> None:
    waiting, key, now = bench.broker.waiting, ("t", Partition(0)), bench.now
    waiting.park(Waiter((key,), Instant(now + ms(9)), raising(KeyError("ours")), missing=1))
    with pytest.raises(KeyError, match="ours"):
        waiting.advanced(now, key, 1)


def test_a_late_answer_that_cannot_be_encoded_ends_its_connection(bench: HandlerBench) -> None:
    client = FakeClient()
    calls: list[Call] = []

    def hold(call: Call, _request: object) -> None:
        calls.append(call)
        deadline = Instant(call.now + ms(1_000))
        call.park(Waiter((("t", Partition(0)),), deadline, answer, missing=1))

    def answer(_now: Instant) -> None:
        too_long = k22_init_producer_id.InitProducerIdResponse(producer_id=2**70)
        calls[0].answer(too_long)

    routes = bench.dispatcher._routes
    known = routes[k22_init_producer_id.API.key]
    routes[known.key] = type(known)(known.api, known.versions, hold, known.note)
    bench.begin(client, known.api, 4, k22_init_producer_id.InitProducerIdRequest())
    assert produce(bench).error_code == 0
    assert client.closed is not None
    assert client.frames() == []


def test_an_answer_given_at_once_that_cannot_be_encoded_is_told_and_ends_its_connection(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = MetadataResponse(cluster_id="c" * 40_000)
    monkeypatch.setattr("tidelog.node.api.k03_metadata.in_parts", lambda *_: said)
    client = FakeClient()
    bench.begin(client, METADATA, 12, MetadataRequest(topics=None))
    assert client.closed is not None
    assert client.frames() == []
    assert len(bench.faults) == 1


def test_a_checked_batch_that_fails_within_the_log_is_a_fault_of_ours(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "append_as_leader", raising(OverflowError("index")))
    with pytest.raises(AssertionError, match="OverflowError"):
        produce(bench)


def test_a_fault_while_a_batch_is_passed_to_followers_is_one_in_our_own_state(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replication, "appended", raising(KeyError("follower")))
    with pytest.raises(AssertionError, match="follower"):
        produce(bench)


def test_a_fault_while_a_marker_is_written_is_one_in_our_own_state(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [k27.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = k27.WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
        transaction_version=0,
    )
    monkeypatch.setattr(Log, "append_as_follower", raising(IndexError("index")))
    with pytest.raises(AssertionError, match="a marker failed: IndexError"):
        bench.begin(FakeClient(), k27.API, 1, k27.WriteTxnMarkersRequest(markers=[marker]))


def test_a_fault_while_records_are_deleted_is_one_in_our_own_state(
    bench: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(bench)
    rows = [k21.DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [k21.DeleteRecordsTopic(name="t", partitions=rows)]
    monkeypatch.setattr(Log, "advance_start", raising(LookupError("segment")))
    with pytest.raises(AssertionError, match="a deletion of records failed: LookupError"):
        bench.begin(FakeClient(), k21.API, 2, k21.DeleteRecordsRequest(topics=topics))


def test_a_fault_of_a_groups_coordinator_behind_its_decision_is_one_in_our_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = GroupBench(tmp_path)
    bench.topic("t")
    monkeypatch.setattr(Replication, "appended", raising(KeyError("follower")))
    with pytest.raises(AssertionError, match="follower"):
        commit(bench, "g", {"t": [5]})


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_groups_whose_records_cannot_be_written_are_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    bench = GroupBench(tmp_path, partitions=1)
    bench.topic("t")
    assert commit(bench, "g", {"t": [5]}) == [0]
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.node.groups.codec.pair", raising(fault))
        assert commit(bench, "g", {"t": [6]}) == [E.NOT_COORDINATOR]
    assert len(bench.faults) == 1
    bench.load()
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 5}
    assert commit(bench, "g", {"t": [7]}) == [0]


# -- the coordinator


def controller(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A conversation whose coordinator says what failed in it."""
    talk = Conversation()
    failed: list[str] = []
    usual = talk._coordinator_effect

    def effect(one: front.Effect) -> None:
        if isinstance(one, RequestFailed):
            failed.append(one.reason)
        else:
            usual(one)

    monkeypatch.setattr(talk, "_coordinator_effect", effect)
    talk.start_coordinator()
    talk.start_broker(0)
    talk.settle()
    return talk, failed


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_the_coordinator_refuses_a_request_that_it_fails_at(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    talk, failed = controller(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(ControllerShard, "decide", raising(fault))
        created = talk.create(0, topic())
        talk.settle()
    assert created.codes() == [E.UNKNOWN_SERVER_ERROR]
    assert len(failed) == 1
    again = talk.create(0, topic())
    talk.settle()
    assert again.codes() == [0]


def test_a_fault_in_the_news_of_a_death_ends_the_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passed over, it would leave partitions without a leader; the next one hears of it again."""
    talk, _ = controller(monkeypatch)
    monkeypatch.setattr(ControllerShard, "decide", raising(KeyError("broker")))
    with pytest.raises(AssertionError, match="BrokerLost failed: KeyError"):
        talk.tell(BrokerLost(BrokerId(0), Incarnation(1)))


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_the_coordinator_says_so_if_an_answer_cannot_be_encoded(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    talk, failed = controller(monkeypatch)
    usual = Forwarded.answer

    def answer(self: Forwarded, reply: Any) -> bytes:
        if isinstance(reply, k19_create_topics.CreateTopicsResponse):
            raise fault
        return usual(self, reply)

    monkeypatch.setattr(Forwarded, "answer", answer)
    created = talk.create(0, topic())
    talk.settle()
    assert created.codes() == [E.UNKNOWN_SERVER_ERROR]
    assert failed
    assert "t" in talk.shard.image.names


def test_the_coordinator_refuses_a_frame_that_it_fails_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk, failed = controller(monkeypatch)
    monkeypatch.setattr(Forwarded, "request", raising(ValueError("digits")))
    created = talk.create(0, topic())
    talk.settle()
    assert created.result is E.UNKNOWN_SERVER_ERROR
    assert len(failed) == 1


# -- the transaction coordinator


def init(name: str = "tx") -> k22_init_producer_id.InitProducerIdRequest:
    return k22_init_producer_id.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=1_000
    )


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_the_transaction_coordinator_refuses_a_request_that_it_fails_at(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    scene = Scene()
    with monkeypatch.context() as patch:
        patch.setattr(TxnShard, "decide", raising(fault))
        asked = scene.forward(k22_init_producer_id.API, 4, init())
        scene.world.run(20)
    assert asked.answer().error_code == E.UNKNOWN_SERVER_ERROR
    again = scene.forward(k22_init_producer_id.API, 4, init())
    scene.world.run(20)
    assert again.answer().error_code == 0


@pytest.mark.parametrize("place", ["parts", "answer", "asks_all"])
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_the_transaction_coordinator_says_so_if_it_cannot_read_or_answer(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, place: str
) -> None:
    scene = Scene()
    with monkeypatch.context() as patch:
        patch.setattr(ForwardedTransaction, place, raising(fault))
        asked = scene.forward(k22_init_producer_id.API, 4, init())
        scene.world.run(20)
    expected = {E.UNKNOWN_SERVER_ERROR}
    if isinstance(fault, WireError):
        expected.add(E.INVALID_REQUEST)
    assert asked.answer() in expected
    again = scene.forward(k22_init_producer_id.API, 4, init())
    scene.world.run(20)
    assert again.answer().error_code == 0


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_transactional_ids_whose_records_cannot_be_written_are_loaded_again(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    scene = Scene()
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.coordinator.transactions.records.pair", raising(fault))
        asked = scene.forward(k22_init_producer_id.API, 4, init())
    scene.world.run(20)
    assert asked.answer().error_code == E.NOT_COORDINATOR
    again = scene.forward(k22_init_producer_id.API, 4, init())
    scene.world.run(20)
    assert again.answer().error_code == 0


def test_a_fault_in_the_news_of_written_markers_ends_the_transaction_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passed over, the transaction would never be complete; the next one writes them again."""
    scene, key = Scene(), KEYS[0]
    producer = scene.producer
    decide = TxnShard.decide

    def fails(self: TxnShard, now: Instant, asked: Any, request: Any) -> Any:
        if isinstance(request, MarkersWritten):
            raise KeyError("markers")
        return decide(self, now, asked, request)

    monkeypatch.setattr(TxnShard, "decide", fails)

    def life() -> Life:
        transaction = producer.begin()
        yield from producer.add(transaction, key)
        yield from producer.write(transaction, key)
        yield from producer.end(transaction, committed=True)

    with pytest.raises(AssertionError, match="MarkersWritten failed: KeyError"):
        producer.finish(life())
