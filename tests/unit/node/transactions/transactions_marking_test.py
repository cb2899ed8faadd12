"""Markers as a leader writes them: under which epochs, each once, and told when it is committed."""

from pathlib import Path
from typing import Any

import pytest

from harness.logs.transactions import Writer
from harness.machines.brokers import START_MS, FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from harness.machines.transactions import Marked, marker_of, write
from tidelog.kernel.ids import Epoch, Incarnation, Partition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.log.log import Log
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k27_write_txn_markers as k27
from tidelog.wire.messages import k61_describe_producers as k61
from tidelog.wire.metadata_records import TransactionsActivated
from tidelog.wire.transactions import STATE_TOPIC

NONE = ErrorCode.NONE


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.fixture
def led(bench: HandlerBench) -> HandlerBench:
    """Alone with a topic."""
    bench.topic("t", 2)
    return bench


@pytest.fixture
def peer(bench: HandlerBench) -> Peer:
    """One that is in sync, of two: what it has not acknowledged is not committed."""
    peer = Peer(bench, 1)
    peer.follow(replicated(bench, "t", shown(0, 1, replicas=(0, 1)), min_in_sync=2))
    return peer


def log_of(bench: HandlerBench, topic: str = "t", partition: int = 0) -> Log:
    replica = bench.broker.replicas.get((topic, Partition(partition)))
    assert replica is not None
    return replica.log


def topic_id(bench: HandlerBench) -> Uuid:
    return bench.image.names["t"].id


def activated(bench: HandlerBench, epoch: int) -> None:
    bench.replay(TransactionsActivated(Epoch(epoch), Incarnation(epoch)))


# -- what becomes of one


def test_alone_a_marker_is_committed_at_once(led: HandlerBench) -> None:
    writer = Writer()
    write(led, writer, 2)
    marked = Marked(led, marker_of(writer, committed=True), epoch=3)
    assert marked.outcomes == (NONE,)
    producer = log_of(led).producers.get(7)
    assert producer is not None
    assert (log_of(led).end, producer.txn_start, producer.coordinator_epoch) == (3, -1, 3)


def test_it_is_told_once_all_in_sync_replicas_have_it(bench: HandlerBench, peer: Peer) -> None:
    writer = Writer()
    write(bench, writer)
    peer.ack(1)
    marked = Marked(bench, marker_of(writer, committed=True))
    assert (marked.outcomes, log_of(bench).end) == (None, 2)
    peer.ack(2)
    assert marked.outcomes == (NONE,)


def test_of_several_all_are_told_together_in_their_order(bench: HandlerBench, peer: Peer) -> None:
    bench.topic("u", 1)
    writer, unknown = Writer(), Writer(8)
    write(bench, writer)
    marked = Marked(
        bench,
        marker_of(unknown, committed=True, topic="nowhere"),
        marker_of(writer, committed=True),
        marker_of(writer, committed=True, topic="u"),
    )
    assert not marked.outcomes
    peer.ack(2)
    assert marked.outcomes == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE, NONE)


def test_a_marker_that_is_there_is_told_when_the_first_one_is_committed(
    bench: HandlerBench, peer: Peer
) -> None:
    writer = Writer()
    write(bench, writer)
    first = Marked(bench, marker_of(writer, committed=True), epoch=1)
    again = Marked(bench, marker_of(writer, committed=True), epoch=2)
    assert (first.outcomes, again.outcomes, log_of(bench).end) == (None, None, 2)
    peer.ack(2)
    assert (first.outcomes, again.outcomes) == ((NONE,), (NONE,))
    late = Marked(bench, marker_of(writer, committed=True), epoch=2)
    assert (late.outcomes, log_of(bench).end) == ((NONE,), 2)


def test_a_partition_without_records_of_the_transaction_gets_its_marker_too(
    led: HandlerBench,
) -> None:
    writer = Writer()
    marker = marker_of(writer, committed=True, partition=1)
    assert Marked(led, marker).outcomes == (NONE,)
    assert Marked(led, marker).outcomes == (NONE,)
    assert log_of(led, partition=1).end == 1


# -- who may not write one


def test_below_min_in_sync_none_is_written(bench: HandlerBench, peer: Peer) -> None:
    writer = Writer()
    write(bench, writer)
    peer.ack(1)
    change(bench, topic_id(bench), shown(0, replicas=(0, 1), change=1))
    marked = Marked(bench, marker_of(writer, committed=True))
    assert marked.outcomes == (ErrorCode.NOT_ENOUGH_REPLICAS,)
    assert log_of(bench).end == 1


def test_below_min_in_sync_one_that_is_committed_is_told_all_the_same(
    bench: HandlerBench, peer: Peer
) -> None:
    writer = Writer()
    write(bench, writer)
    Marked(bench, marker_of(writer, committed=True))
    peer.ack(2)
    change(bench, topic_id(bench), shown(0, replicas=(0, 1), change=1))
    assert Marked(bench, marker_of(writer, committed=True)).outcomes == (NONE,)


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.NONE),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ],
)
def test_the_leader_epoch_is_the_one_it_is_meant_for(
    bench: HandlerBench, leader_epoch: int, code: ErrorCode
) -> None:
    replicated(bench, "t", shown(0, epoch=2, replicas=(0,)))
    marker = marker_of(Writer(), committed=True, leader_epoch=leader_epoch)
    assert Marked(bench, marker).outcomes == (code,)
    assert log_of(bench).end == (code is NONE)


def test_who_does_not_lead_writes_none(bench: HandlerBench, peer: Peer) -> None:
    marker = marker_of(Writer(), committed=True, leader_epoch=-1)
    view = shown(1, leader=1, epoch=1, change=1, replicas=(1,))
    change(bench, topic_id(bench), view)
    assert Marked(bench, marker).outcomes == (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
    assert peer.id == 1


def test_who_is_about_to_leave_writes_none(led: HandlerBench) -> None:
    led.broker.replicas.retiring = True
    marked = Marked(led, marker_of(Writer(), committed=True))
    assert marked.outcomes == (ErrorCode.NOT_LEADER_OR_FOLLOWER,)


def test_a_coordinator_of_the_past_is_refused(led: HandlerBench) -> None:
    fenced = (ErrorCode.TRANSACTION_COORDINATOR_FENCED,)
    activated(led, 5)
    assert Marked(led, marker_of(Writer(7), committed=True), epoch=4).outcomes == fenced
    assert Marked(led, marker_of(Writer(8), committed=True), epoch=5).outcomes == (NONE,)
    # A newer one may be heard of before the image tells it.
    assert Marked(led, marker_of(Writer(9), committed=True), epoch=6).outcomes == (NONE,)
    assert Marked(led, marker_of(Writer(8), committed=False), epoch=5).outcomes == fenced
    assert log_of(led).end == 2


@pytest.mark.parametrize(
    ("writer", "code"),
    [
        (Writer(-1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Writer(7, -1), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_ends_what_some_producer_has_begun(
    led: HandlerBench, writer: Writer, code: ErrorCode
) -> None:
    assert Marked(led, marker_of(writer, committed=True)).outcomes == (code,)
    assert log_of(led).end == 0


def test_a_producer_of_the_past_has_nothing_ended(led: HandlerBench) -> None:
    old, new = Writer(7, 1), Writer(7, 2)
    write(led, new)
    marked = Marked(led, marker_of(old, committed=True))
    assert marked.outcomes == (ErrorCode.INVALID_PRODUCER_EPOCH,)


def test_a_disk_that_takes_nothing_is_told_and_reported(
    led: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "disk is full")

    writer = Writer()
    write(led, writer)
    monkeypatch.setattr(type(log_of(led).segments[-1]), "append", full)
    marked = Marked(led, marker_of(writer, committed=True))
    assert marked.outcomes == (ErrorCode.KAFKA_STORAGE_ERROR,)
    assert [key for key, _ in led.failures] == [("t", 0)]


# -- while it waits


def test_who_stops_to_lead_does_not_know_what_becomes_of_it(
    bench: HandlerBench, peer: Peer
) -> None:
    marked = Marked(bench, marker_of(Writer(), committed=True))
    change(bench, topic_id(bench), shown(1, leader=1, epoch=1, change=1, replicas=(0, 1)))
    assert marked.outcomes == (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
    assert peer.id == 1


def test_without_a_deadline_it_waits_for_as_long_as_that_takes(
    bench: HandlerBench, peer: Peer
) -> None:
    marked = Marked(bench, marker_of(Writer(), committed=True))
    for _ in range(3):
        bench.now = Instant(bench.now + ms(100_000))
        bench.broker.waiting.expire(bench.now)
    assert not marked.outcomes
    peer.ack(1)
    assert marked.outcomes == (NONE,)


def test_at_its_deadline_nobody_knows_yet(bench: HandlerBench, peer: Peer) -> None:
    deadline = Instant(bench.now + ms(50))
    marked = Marked(bench, marker_of(Writer(), committed=True), deadline=deadline)
    bench.broker.waiting.expire(Instant(deadline - 1))
    assert not marked.outcomes
    bench.broker.waiting.expire(deadline)
    assert marked.outcomes == (ErrorCode.REQUEST_TIMED_OUT,)
    peer.ack(1)
    assert marked.outcomes == (ErrorCode.REQUEST_TIMED_OUT,)


def test_offsets_that_a_transaction_committed_hear_of_it_at_once(bench: HandlerBench) -> None:
    """They count once it is committed: `groups_pending_test.py` has what becomes of them."""
    bench.topic(OFFSETS_TOPIC, 1, cleanup_policy="compact")
    heard: list[tuple[Any, ...]] = []
    groups = bench.broker.groups
    groups.marked = lambda _now, *what, **more: heard.append((*what, *more.values()))  # type: ignore[method-assign] # to listen
    marker = marker_of(Writer(7), committed=False, topic=OFFSETS_TOPIC)
    Marked(bench, marker)
    Marked(bench, marker)
    assert heard == [(0, 7, False, 1)], "nothing is written the second time"


# -- WriteTxnMarkers and DescribeProducers


def asked(*rows: tuple[Writer, bool, dict[str, list[int]], int]) -> k27.WriteTxnMarkersRequest:
    return k27.WriteTxnMarkersRequest(
        markers=[
            k27.WritableTxnMarker(
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
                transaction_result=committed,
                topics=[
                    k27.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=epoch,
            )
            for writer, committed, topics, epoch in rows
        ]
    )


def codes(answer: Any) -> list[dict[str, list[int]]]:
    return [
        {topic.name: [one.error_code for one in topic.partitions] for topic in row.topics}
        for row in answer.markers
    ]


def test_an_operator_ends_what_no_coordinator_knows_of(led: HandlerBench) -> None:
    """As `kafka-transactions abort` does: the coordinator's epoch is the one it finds, or 0."""
    activated(led, 9)
    writer = Writer()
    write(led, writer)
    answer = led.ask(k27.API, 1, asked((writer, False, {"t": [0, 1, 7], STATE_TOPIC: [0]}, 0)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(answer) == [{"t": [NONE, NONE, unknown], STATE_TOPIC: [refused]}]
    assert answer.markers[0].producer_id == 7
    assert log_of(led).last_stable_offset(2) == 2


def test_an_operator_s_epoch_holds_back_operators_and_no_coordinator(led: HandlerBench) -> None:
    activated(led, 9)
    writer, highest = Writer(), (1 << 31) - 1
    write(led, writer)
    led.ask(k27.API, 1, asked((writer, False, {"t": [0]}, highest)))
    write(led, writer)
    refused = led.ask(k27.API, 1, asked((writer, False, {"t": [0]}, highest - 1)))
    assert codes(refused) == [{"t": [ErrorCode.TRANSACTION_COORDINATOR_FENCED]}]
    assert Marked(led, marker_of(writer, committed=True), epoch=9).outcomes == (NONE,)
    assert log_of(led).last_stable_offset(4) == 4


def test_it_answers_when_all_of_it_is_committed(bench: HandlerBench, peer: Peer) -> None:
    client = FakeClient()
    one, other = Writer(7), Writer(8)
    request = asked((one, True, {"t": [0]}, 1), (other, False, {"t": [0]}, 1))
    bench.begin(client, k27.API, 1, request)
    peer.ack(1)
    assert client.frames() == []
    peer.ack(2)
    (frame,) = client.frames()
    answer = decode_response(k27.API, 1, memoryview(frame))[1]
    assert codes(answer) == [{"t": [NONE]}, {"t": [NONE]}]


def test_who_asks_for_nothing_is_answered(led: HandlerBench) -> None:
    assert led.ask(k27.API, 1, asked()).markers == []


def test_it_does_not_wait_for_ever(bench: HandlerBench, peer: Peer) -> None:
    client = FakeClient()
    bench.begin(client, k27.API, 1, asked((Writer(), True, {"t": [0]}, 1)))
    bench.broker.waiting.expire(Instant(bench.now + ms(30_000)))
    (frame,) = client.frames()
    answer = decode_response(k27.API, 1, memoryview(frame))[1]
    assert codes(answer) == [{"t": [ErrorCode.REQUEST_TIMED_OUT]}]
    assert peer.id == 1


def described(bench: HandlerBench) -> Any:
    wanted = k61.TopicRequest(name="t", partition_indexes=[0])
    request = k61.DescribeProducersRequest(topics=[wanted])
    (row,) = bench.ask(k61.API, 0, request).topics[0].partitions
    (producer,) = row.active_producers
    return producer


def test_an_open_transaction_is_told_with_where_it_began(led: HandlerBench) -> None:
    writer = Writer()
    write(led, writer)
    Marked(led, marker_of(writer, committed=True), epoch=4)
    write(led, writer)
    row = described(led)
    assert (row.coordinator_epoch, row.current_txn_start_offset) == (4, 2)
    writer.bump()
    led.now = Instant(led.now + ms(5_000))
    Marked(led, marker_of(writer, committed=False), epoch=5)
    row = described(led)
    assert (row.coordinator_epoch, row.current_txn_start_offset) == (5, -1)
    assert (row.producer_epoch, row.last_sequence) == (1, -1)
    assert row.last_timestamp == START_MS + 5_000, "of the marker, not of a record before it"


def test_a_leader_again_goes_on_waiting_for_what_it_wrote(bench: HandlerBench, peer: Peer) -> None:
    marked = Marked(bench, marker_of(Writer(), committed=True))
    change(bench, topic_id(bench), shown(0, 1, epoch=1, change=1, replicas=(0, 1)))
    assert not marked.outcomes
    peer.follow(topic_id(bench), 1)
    peer.ack(1)
    assert marked.outcomes == (NONE,)


def test_of_a_topic_that_is_deleted_nothing_is_known_any_more(
    bench: HandlerBench, peer: Peer
) -> None:
    marked = Marked(bench, marker_of(Writer(), committed=True))
    bench.delete(topic_id(bench))
    assert marked.outcomes == (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
    again = Marked(bench, marker_of(Writer(), committed=True))
    assert again.outcomes == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    assert peer.id == 1
