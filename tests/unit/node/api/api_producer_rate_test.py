"""A flood of InitProducerId: whoever asks as programs do notices nothing of it."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient, HandlerBench
from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.producer_rate import ProducerRate, is_too_long
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k22_init_producer_id

BURST = limits.PRODUCERS_BEGUN_BURST_OF_CLIENT
PER_S = limits.PRODUCERS_BEGUN_PER_S_OF_CLIENT
NOW = Instant(10**15)


def test_ten_thousand_clients_at_once_do_not_wait() -> None:
    rate = ProducerRate()
    assert not any(rate.begin(NOW, str(client)) for client in range(limits.CONNECTIONS_MAX))


def test_one_client_may_begin_many_producers_and_then_so_many_a_second() -> None:
    rate = ProducerRate()
    assert not any(rate.begin(NOW, "a") for _ in range(BURST))
    assert rate.begin(NOW, "a") == ms(1_000) // PER_S
    later = Instant(NOW + ms(10_000))
    assert sum(not rate.begin(later, "a") for _ in range(BURST)) == 10 * PER_S - 1


def test_one_client_s_flood_does_not_hold_up_another() -> None:
    rate = ProducerRate()
    refused = sum(is_too_long(rate.begin(NOW, "a")) for _ in range(100_000))
    assert refused == 100_000 - BURST - PER_S * limits.PRODUCERS_BEGUN_WAIT_MS // 1_000
    assert rate.begin(NOW, "b") == 0


def test_a_flood_of_new_connections_is_bounded_in_total_and_in_memory() -> None:
    rate = ProducerRate()
    done = sum(
        not is_too_long(rate.begin(NOW, str(client)))
        for client in range(2 * limits.PRODUCERS_BEGUN_BURST)
    )
    at_most = limits.PRODUCERS_BEGUN_PER_S * limits.PRODUCERS_BEGUN_WAIT_MS // 1_000
    assert done == limits.PRODUCERS_BEGUN_BURST + at_most
    assert len(rate) <= limits.CONNECTIONS_MAX


def test_a_client_that_asked_long_ago_is_forgotten() -> None:
    rate = ProducerRate()
    for client in range(1_000):
        rate.begin(NOW, str(client))
    for client in range(1_000):
        rate.begin(Instant(NOW + ms(5_000)), f"later {client}")
    assert len(rate) <= 1_001


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path)


def begin(bench: HandlerBench, version: int = 4, *, client: FakeClient | None = None) -> FakeClient:
    client = client or FakeClient()
    request = k22_init_producer_id.InitProducerIdRequest(transactional_id=None)
    bench.begin(client, k22_init_producer_id.API, version, request)
    return client


def answer_of(client: FakeClient, version: int = 4) -> Any:
    (frame,) = client.frames()
    return decode_response(k22_init_producer_id.API, version, memoryview(frame))[1]


def exhaust(bench: HandlerBench, count: int) -> None:
    for _ in range(count):
        bench.broker.producer_rate.begin(bench.now, FakeClient().address)


def test_who_asks_too_often_is_answered_when_its_time_has_come(bench: HandlerBench) -> None:
    exhaust(bench, BURST)
    client = begin(bench)
    assert client.frames() == []
    bench.now = Instant(bench.now + ms(1_000) // PER_S)
    bench.broker.waiting.expire(bench.now)
    answer = answer_of(client)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)


def test_a_client_that_leaves_while_it_waits_gets_no_id(bench: HandlerBench) -> None:
    exhaust(bench, BURST)
    client = begin(bench)
    client.session.abandon()
    bench.now = Instant(bench.now + ms(10_000))
    bench.broker.waiting.expire(bench.now)
    assert bench.link.next_id == 1000, "nobody asked the coordinator for any"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (4, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (5, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ],
)
def test_who_would_wait_long_is_told_how_long_in_words_it_knows(
    bench: HandlerBench, version: int, code: ErrorCode
) -> None:
    exhaust(bench, BURST + 1_000)
    answer = answer_of(begin(bench, version), version)
    assert answer.error_code == code
    assert answer.throttle_time_ms > limits.PRODUCERS_BEGUN_WAIT_MS
    assert answer.producer_id == -1
