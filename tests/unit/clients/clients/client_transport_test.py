"""The clients' only shell over real loopback sockets: connects, sends, waits, and loses."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.clients.asking import Address, Answered, Ask, Cause, Lost, Outcome
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.instant import Instant, ms, s
from tidelog.wire.frame import encode_response, joined
from tidelog.wire.messages.k00_produce import API as PRODUCE
from tidelog.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.k03_metadata import API as METADATA
from tidelog.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.k18_api_versions import API as API_VERSIONS
from tidelog.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse

ASK = Ask(METADATA, MetadataRequest(topics=[]))
LONG = s(10)
BIG = 4_000_000

Served = Callable[[socket.socket], None]


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(ConnectionSettings(connect_timeout_ns=s(5)))
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Served], Address]]:
    """Runs a function on the first connection to a fresh port, in a thread."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(served: Served) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        thread = threading.Thread(target=_serve_one, args=(listener, served))
        threads.append(thread)
        thread.start()
        return Address("127.0.0.1", listener.getsockname()[1])

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    for listener in listeners:
        listener.close()


def _serve_one(listener: socket.socket, served: Served) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(10)
        served(sock)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def read_frame(sock: socket.socket) -> bytes:
    return read_exactly(sock, int.from_bytes(read_exactly(sock, 4), "big"))


def correlation(frame: bytes) -> int:
    return int.from_bytes(frame[4:8], "big")


def greet(sock: socket.socket, epoch: int = -1) -> None:
    """Answer the first request: what this broker offers, and of which epoch its features are."""
    rows = [ApiVersion(api_key=key, min_version=0, max_version=9) for key in (0, 3, 18)]
    number = correlation(read_frame(sock))
    answer = ApiVersionsResponse(error_code=0, api_keys=rows, finalized_features_epoch=epoch)
    pieces = encode_response(API_VERSIONS, 4, number, answer)
    sock.sendall(joined(pieces))


def answer_metadata(sock: socket.socket, portion: int = 1_000) -> None:
    number = correlation(read_frame(sock))
    data = joined(encode_response(METADATA, 9, number, MetadataResponse(controller_id=4)))
    for at in range(0, len(data), portion):
        sock.sendall(data[at : at + portion])


def until_hung_up(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass


def first(transport: Transport) -> Outcome:
    (outcome,) = transport.poll(Instant(transport.now() + LONG))
    return outcome


def test_a_question_is_answered(transport: Transport, serve: Callable[[Served], Address]) -> None:
    def broker(sock: socket.socket) -> None:
        greet(sock)
        answer_metadata(sock, portion=1)

    ticket = transport.ask(serve(broker), ASK)
    outcome = first(transport)
    assert isinstance(outcome, Answered)
    assert (outcome.ticket, outcome.message.controller_id) == (ticket, 4)


def test_the_latest_word_on_what_the_cluster_can_do_counts(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    for told, known in ((7, 7), (9, 9), (8, 9)):

        def broker(sock: socket.socket, epoch: int = told) -> None:
            greet(sock, epoch)
            answer_metadata(sock)

        transport.ask(serve(broker), ASK)
        first(transport)
        assert transport.features.epoch == known


def test_one_connection_serves_many_questions(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    def broker(sock: socket.socket) -> None:
        greet(sock)
        for _ in range(3):
            answer_metadata(sock)

    address = serve(broker)
    tickets = [transport.ask(address, ASK) for _ in range(3)]
    outcomes: list[Outcome] = []
    while len(outcomes) < 3:
        outcomes += transport.poll(Instant(transport.now() + LONG))
    assert [one.ticket for one in outcomes] == tickets


def test_nobody_listening_is_unreachable(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
    transport.ask(address, ASK)
    outcome = first(transport)
    assert isinstance(outcome, Lost)
    assert (outcome.cause, outcome.detail) == (
        Cause.UNREACHABLE,
        f"{address}: connection refused",
    )


def test_the_second_address_of_a_host_is_tried(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    def broker(sock: socket.socket) -> None:
        greet(sock)
        answer_metadata(sock)

    # "localhost" may be ::1 first, where nobody listens.
    port = serve(broker).port
    transport.ask(Address("localhost", port), ASK)
    assert isinstance(first(transport), Answered)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "a..b"])
def test_a_host_that_is_not_known_is_unreachable(transport: Transport, host: str) -> None:
    transport.ask(Address(host, 1), ASK)
    outcome = first(transport)
    assert isinstance(outcome, Lost)
    assert "is not a known host" in outcome.detail


def test_a_broker_that_hangs_up_loses_its_questions_and_may_be_asked_again(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    address = serve(greet)
    transport.ask(address, ASK)
    outcome = first(transport)
    assert isinstance(outcome, Lost)
    assert outcome.cause is Cause.UNREACHABLE
    transport.ask(address, ASK)  # a new connection: its broker never answers
    assert transport.poll(transport.now()) == []


def closed_after_an_answer(sock: socket.socket) -> None:
    greet(sock)
    answer_metadata(sock)


def kept_open_after_an_answer(sock: socket.socket) -> None:
    closed_after_an_answer(sock)
    until_hung_up(sock)


@pytest.mark.parametrize(
    ("lives", "idle_ns_max"), [(closed_after_an_answer, s(540)), (kept_open_after_an_answer, 1)]
)
def test_a_question_after_an_idle_time_goes_over_a_new_connection(
    lives: Served, idle_ns_max: int
) -> None:
    """Else a request that may not be repeated fails, though its broker is healthy."""
    closed = threading.Event()
    transport = Transport(ConnectionSettings(idle_ns_max=idle_ns_max))

    def broker() -> None:
        _serve_one(listener, lives)
        closed.set()
        _serve_one(listener, closed_after_an_answer)

    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.closing(transport):
        thread = threading.Thread(target=broker, daemon=True)
        thread.start()
        address = Address("127.0.0.1", listener.getsockname()[1])
        transport.ask(address, ASK)
        assert isinstance(first(transport), Answered)
        assert idle_ns_max == 1 or closed.wait(10)
        transport.ask(address, ASK)
        assert isinstance(first(transport), Answered)
        thread.join(10)


def test_a_broker_that_does_not_answer_is_given_up(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    def broker(sock: socket.socket) -> None:
        greet(sock)
        until_hung_up(sock)

    transport.ask(serve(broker), Ask(METADATA, MetadataRequest(topics=[]), timeout_ns=ms(300)))
    outcome = first(transport)
    assert isinstance(outcome, Lost)
    assert outcome.cause is Cause.TIMED_OUT


def test_a_server_of_another_protocol_is_told_apart(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    def web(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        until_hung_up(sock)

    transport.ask(serve(web), ASK)
    outcome = first(transport)
    assert isinstance(outcome, Lost)
    assert outcome.cause is Cause.BROKEN


def test_a_large_request_is_written_as_the_broker_reads_it(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    sizes: list[int] = []

    def broker(sock: socket.socket) -> None:
        greet(sock)
        frame = read_frame(sock)
        sizes.append(len(frame))
        pieces = encode_response(PRODUCE, 9, correlation(frame), ProduceResponse())
        sock.sendall(joined(pieces))

    data = PartitionProduceData(index=0, records=memoryview(bytes(BIG)))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    transport.ask(serve(broker), Ask(PRODUCE, request))
    assert isinstance(first(transport), Answered)
    assert sizes[0] > BIG


def test_a_request_without_an_answer_is_done_once_it_is_written(
    transport: Transport, serve: Callable[[Served], Address]
) -> None:
    def broker(sock: socket.socket) -> None:
        greet(sock)
        read_frame(sock)

    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    transport.ask(serve(broker), Ask(PRODUCE, request, answered=False))
    outcome = first(transport)
    assert isinstance(outcome, Answered)
    assert outcome.message is None


def test_polling_without_a_question_waits_for_its_time(transport: Transport) -> None:
    until = Instant(transport.now() + ms(5))
    assert transport.poll(until) == []
    assert transport.now() >= until
