"""One connection, step by step: order, bounds, and what is left when either side goes away."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.connected import Connected
from tidelog.kernel import limits
from tidelog.wire.messages import k00_produce, k01_fetch, k03_metadata, k18_api_versions

pytestmark = pytest.mark.slow

VERSIONS = k18_api_versions.ApiVersionsRequest(
    client_software_name="test", client_software_version="1"
)
BAD_FRAME = struct.pack(">i", 3) + b"xxx"


def versions(number: int) -> bytes:
    return request_bytes(k18_api_versions.API, 3, VERSIONS, number)


def produce(topic: str, number: int, value: bytes = b"x") -> bytes:
    return request_bytes(k00_produce.API, 9, produce_request(topic, batch_of(value)), number)


def fetch(topic: str, number: int, offset: int, max_wait_ms: int = 0) -> bytes:
    request = fetch_request(topic, offset, max_wait_ms=max_wait_ms)
    return request_bytes(k01_fetch.API, 11, request, number)


def number_of(frame: bytes | None) -> int | None:
    return None if frame is None else int.from_bytes(frame[:4], "big")


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    with Connected(tmp_path) as made:
        made.bench.topic("t")
        yield made


def test_a_client_that_leaves_takes_its_waiting_fetch_along(connected: Connected) -> None:
    connected.send(fetch("t", 1, 0, max_wait_ms=300_000))
    assert connected.bench.broker.waiting.count == 1
    connected.client.close()
    connected.turn()
    assert connected.closed
    assert connected.bench.broker.waiting.count == 0


def test_a_parked_fetch_holds_back_what_follows_until_its_record_comes(
    connected: Connected,
) -> None:
    connected.send(fetch("t", 1, 0, max_wait_ms=300_000) + versions(2) + produce("t", 3))
    assert connected.frame() is None
    bench = connected.bench
    bench.broker.waiting.expire(bench.broker.waiting.deadline() or bench.now)
    assert [number_of(connected.frame()) for _ in range(3)] == [1, 2, 3]


def test_a_bad_frame_behind_an_answer_nobody_reads_ends_the_connection_once_it_is_read(
    connected: Connected,
) -> None:
    value = bytes(900_000)
    connected.send(produce("t", 1, value))
    assert number_of(connected.frame()) == 1
    connected.send(fetch("t", 2, 0) + fetch("t", 3, 0) + BAD_FRAME)
    assert not connected.closed
    assert [number_of(connected.frame()) for _ in range(2)] == [2, 3]
    assert connected.frame() is None
    assert connected.closed


def test_a_body_nobody_can_read_behind_a_full_socket_ends_the_connection(
    connected: Connected,
) -> None:
    value = bytes(900_000)
    connected.send(produce("t", 1, value))
    connected.frame()
    senseless = request_bytes(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))
    senseless = senseless[:-1] + b"\x05"  # so many tagged fields follow, and none is there
    connected.send(fetch("t", 2, 0) + senseless)
    assert number_of(connected.frame()) == 2
    connected.frame()
    assert connected.closed


def test_a_connection_closed_in_the_middle_of_a_request_appends_nothing(
    connected: Connected,
) -> None:
    connected.send(produce("t", 1)[:-1])
    connected.client.close()
    connected.turn()
    assert connected.closed
    (replica,) = connected.bench.broker.replicas
    assert replica.log.end == 0


def test_a_hundred_produces_in_one_write_are_answered_in_order(connected: Connected) -> None:
    connected.send(b"".join(produce("t", number) for number in range(100)))
    assert [number_of(connected.frame()) for _ in range(100)] == list(range(100))
    (replica,) = connected.bench.broker.replicas
    assert replica.log.end == 100


def test_answers_of_every_kind_keep_the_order_of_their_requests(connected: Connected) -> None:
    parts = [
        (produce("t", number), fetch("t", number, 0), versions(number))[number % 3]
        for number in range(60)
    ]
    connected.send(b"".join(parts))
    assert [number_of(connected.frame()) for _ in parts] == list(range(60))


def test_who_reads_nothing_is_not_read_from_either(connected: Connected) -> None:
    connected.send(produce("t", 0, bytes(900_000)))
    connected.frame()
    flood = b"".join(fetch("t", number, 0) for number in range(20_000))
    sent = connected.send(flood)
    assert sent < len(flood)
    held = connected.connection.session.undelivered_bytes
    assert held <= limits.UNDELIVERED_ANSWER_BYTES_MAX + 1_000_000
    assert connected.connection.receive_capacity <= limits.RECEIVE_BUFFER_BYTES_KEPT
    assert [number_of(connected.frame()) for _ in range(50)] == list(range(50))


def test_small_requests_behind_a_waiting_one_fit_in_however_small_the_largest_may_be(
    tmp_path: Path,
) -> None:
    with Connected(tmp_path, frame_bytes_max=1024) as connected:
        connected.bench.topic("t")
        connected.send(fetch("t", 0, 0, max_wait_ms=300_000))
        flood = b"".join(versions(number) for number in range(1, 20_001))
        sent = connected.send(flood)
        assert sent < len(flood)
        assert connected.connection.receive_capacity <= 2 * limits.RECEIVE_BUFFER_BYTES_STEADY
        waiting = connected.bench.broker.waiting
        waiting.expire(waiting.deadline() or connected.bench.now)
        assert [number_of(connected.frame()) for _ in range(500)] == list(range(500))
