"""No allocation grows with the payload: but for the receive buffer, bytes pass through untouched.

The peak of all that Python allocates is taken over one request, after the same request has warmed
every cache; the client allocates nothing.
"""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.connected import Connected
from tidelog.kernel.limits import RECEIVE_BUFFER_BYTES_FIRST, RECEIVE_BUFFER_BYTES_KEPT
from tidelog.wire.messages import k00_produce, k01_fetch

pytestmark = pytest.mark.slow

KIB = 1024
SIZES = [KIB, 16 * KIB, 256 * KIB, 1024 * KIB, 8 * 1024 * KIB]
FLAT_BYTES = 16 * KIB
"""What a request may allocate whatever its size: messages, pieces, index entries."""


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    with Connected(tmp_path) as made:
        made.bench.topic("t", max_message_bytes=str(64 * 1024 * KIB))
        yield made


def produce(size: int) -> memoryview:
    request = produce_request("t", batch_of(bytes(size)))
    return memoryview(request_bytes(k00_produce.API, 9, request))


def fetch() -> memoryview:
    return memoryview(request_bytes(k01_fetch.API, 11, fetch_request("t", 0)))


def peak_of(connected: Connected, request: memoryview, answer: memoryview) -> int:
    """Bytes allocated at the same time, at most, while one request is answered."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert connected.send(request) == len(request)
        assert connected.receive_into(answer) == len(answer)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", SIZES)
def test_a_produce_allocates_nothing_but_the_receive_buffer(
    connected: Connected, size: int
) -> None:
    request = produce(size)
    for _ in range(2):
        connected.send(request)
        answer = memoryview(bytearray(len(connected.frame() or b"") + 4))
    kept = connected.connection.receive_capacity <= RECEIVE_BUFFER_BYTES_KEPT
    peak = peak_of(connected, request, answer)
    (replica,) = connected.bench.broker.replicas
    assert replica.log.end == 3
    # A larger one is given back after each request, and grows by doubling: old and new at once.
    assert peak <= (0 if kept else 3 * len(request)) + FLAT_BYTES


def test_a_buffer_grows_as_bytes_come_and_not_by_the_size_announced(connected: Connected) -> None:
    request = produce(8 * 1024 * KIB)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        connected.send(request[: 2 * RECEIVE_BUFFER_BYTES_FIRST])
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak <= 8 * RECEIVE_BUFFER_BYTES_FIRST + FLAT_BYTES


@pytest.mark.parametrize("size", SIZES)
def test_a_fetch_allocates_nothing_that_grows(connected: Connected, size: int) -> None:
    connected.send(produce(size))
    assert connected.frame() is not None
    request = fetch()
    connected.send(request)
    answer = memoryview(bytearray(len(connected.frame() or b"") + 4))
    assert len(answer) > size
    peak = peak_of(connected, request, answer)
    assert bytes(answer[-64:]).count(0) > 32
    assert peak <= FLAT_BYTES
