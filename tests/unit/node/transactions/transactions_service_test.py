"""What a broker and the transaction coordinator do for each other, and what a lost broker does."""

from pathlib import Path

import pytest

from harness.machines.peers import change, shown
from harness.machines.transaction_service import EPOCH, LIFE, ServiceBench, state_batch
from tidelog.kernel.ids import Epoch, ProducerEpoch, ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import TRANSACTIONS_DOWN_WAIT_MS
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Answered,
    Forward,
    Hello,
    Mark,
    Marked,
    Marker,
    Welcome,
)


@pytest.fixture
def bench(tmp_path: Path) -> ServiceBench:
    return ServiceBench(tmp_path / "log0")


class Client:
    """Who waits for an answer."""

    def __init__(self, bench: ServiceBench, wait_ms: int = 10_000) -> None:
        self.answers: list[bytes | ErrorCode] = []
        now = bench.bench.now
        self.forget = bench.service.forward(
            now, b"frame", "127.0.0.1:1", Instant(now + ms(wait_ms)), self._done
        )

    def _done(self, now: Instant, answer: bytes | ErrorCode) -> None:
        assert now
        self.answers.append(answer)


def marker(leader_epoch: int = 0, topic: str = STATE_TOPIC, partition: int = 0) -> Marker:
    return Marker(
        topic, partition, Epoch(leader_epoch), ProducerId(7), ProducerEpoch(1), committed=True
    )


def later(bench: ServiceBench, milliseconds: float) -> None:
    bench.bench.now = Instant(bench.bench.now + ms(milliseconds))
    bench.service.ring(bench.bench.now)


def test_a_request_goes_there_and_its_answer_comes_back(bench: ServiceBench) -> None:
    client = Client(bench)
    (sent,) = bench.take()
    assert isinstance(sent, Forward)
    assert (sent.frame, sent.client.address) == (b"frame", "127.0.0.1:1")
    bench.hear(Answered(bench.session, sent.call, b"answer"))
    assert client.answers == [b"answer"]


def test_while_nobody_is_there_it_waits_for_a_moment(bench: ServiceBench) -> None:
    bench.service.down(bench.bench.now)
    client = Client(bench)
    assert bench.alarms[-1] == bench.bench.now + ms(TRANSACTIONS_DOWN_WAIT_MS)
    later(bench, TRANSACTIONS_DOWN_WAIT_MS)
    assert client.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_who_goes_away_meanwhile_is_forgotten(bench: ServiceBench) -> None:
    bench.service.down(bench.bench.now)
    Client(bench).forget(bench.bench.now)
    bench.meet()
    assert bench.take() == []


# -- markers


def test_markers_are_written_under_the_epoch_they_come_with(bench: ServiceBench) -> None:
    call = bench.mark(marker(), marker())
    assert bench.marks.asked == [(EPOCH, (marker(), marker()))]
    assert bench.take() == []
    outcomes = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.marks.done[0](bench.bench.now, outcomes)
    assert bench.take() == [Marked(LIFE, call, outcomes)]


def test_one_of_a_newer_leader_epoch_holds_its_message_up(bench: ServiceBench) -> None:
    bench.mark(marker(0), marker(2))
    assert bench.marks.asked == []
    change(bench.bench, bench.topic, shown(0, 1, epoch=2, change=2))
    bench.service.image_changed(bench.bench.now)
    assert bench.marks.asked == [(EPOCH, (marker(0), marker(2)))]


@pytest.mark.parametrize("nowhere", [marker(5, "nowhere"), marker(5, partition=9)])
def test_one_of_a_partition_that_is_nowhere_waits_for_nothing(
    bench: ServiceBench, nowhere: Marker
) -> None:
    bench.mark(nowhere)
    assert bench.marks.asked == [(EPOCH, (nowhere,))]


def test_what_waited_for_our_metadata_is_refused_where_a_later_coordinator_is_known_by_then(
    bench: ServiceBench,
) -> None:
    bench.mark(marker(2))
    call = bench.mark(marker(0), epoch=EPOCH + 1)
    change(bench.bench, bench.topic, shown(0, 1, epoch=2, change=2))
    bench.service.image_changed(bench.bench.now)
    assert bench.marks.asked == [(EPOCH + 1, (marker(0),))]
    assert bench.take() == [Marked(LIFE, call - 1, (ErrorCode.TRANSACTION_COORDINATOR_FENCED,))]


# -- a broker that was given up


def test_a_lost_broker_answers_nothing_and_its_clients_are_told_at_once(
    bench: ServiceBench,
) -> None:
    client = Client(bench)
    bench.append(state_batch(b"a"))
    bench.mark(marker())
    bench.take()
    bench.is_lost = True
    bench.service.lost(bench.bench.now)
    assert client.answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    bench.peer.ack(1)
    bench.marks.done[0](bench.bench.now, (ErrorCode.NONE,))
    bench.read(0)
    assert bench.take() == []


def test_one_that_finds_out_while_it_speaks_says_no_more(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a"))
    bench.is_lost = True
    bench.peer.ack(1)
    assert bench.take() == []


def test_taken_back_it_says_hello_in_a_session_of_its_own(bench: ServiceBench) -> None:
    before = bench.session
    bench.service.lost(bench.bench.now)
    bench.service.registered(bench.bench.now)
    (hello,) = bench.take()
    assert isinstance(hello, Hello)
    assert hello.session > before


def test_it_says_hello_to_nobody_before_it_is_taken_back(bench: ServiceBench) -> None:
    bench.service.lost(bench.bench.now)
    bench.service.down(bench.bench.now)
    bench.service.up(bench.bench.now)
    assert bench.take() == []
    bench.service.registered(bench.bench.now)
    assert [type(one) for one in bench.take()] == [Hello]


def test_nor_without_a_connection(bench: ServiceBench) -> None:
    bench.service.down(bench.bench.now)
    bench.service.lost(bench.bench.now)
    bench.service.registered(bench.bench.now)
    assert bench.take() == []


def test_what_is_said_before_the_welcome_is_not_done(bench: ServiceBench) -> None:
    bench.service.up(bench.bench.now)
    (hello,) = bench.take()
    assert isinstance(hello, Hello)
    bench.hear(Mark(hello.session, 1, EPOCH, (marker(),)))
    assert bench.marks.asked == []
    bench.hear(Welcome(hello.session, LIFE, EPOCH))
    bench.hear(Mark(hello.session, 1, EPOCH, (marker(),)))
    assert len(bench.marks.asked) == 1
