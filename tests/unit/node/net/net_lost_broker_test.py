"""A broker that was given up, at its sockets: it begins nothing, sends nothing, lets nobody in."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import RawClient, request_bytes
from harness.machines.connected import Connected
from tidelog.node.net.connection import Connection
from tidelog.node.net.listener import Listener, ListenerLimits
from tidelog.wire.messages import k00_produce, k01_fetch, k18_api_versions

VERSIONS = k18_api_versions.ApiVersionsRequest(
    client_software_name="test", client_software_version="1"
)
PRODUCE = request_bytes(k00_produce.API, 9, produce_request("t", batch_of(b"x")), 1)
FETCH = request_bytes(k01_fetch.API, 11, fetch_request("t", 0, max_wait_ms=300_000), 1)


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    with Connected(tmp_path) as made:
        made.bench.topic("t")
        yield made


def end(connected: Connected) -> int:
    """The end of the topic's log."""
    (replica,) = connected.bench.broker.replicas
    return int(replica.log.end)


def test_a_request_that_comes_after_the_loss_is_not_begun(connected: Connected) -> None:
    connected.send(PRODUCE)
    assert connected.frame() is not None
    connected.lost = True
    connected.send(PRODUCE)
    assert connected.frame() is None
    assert end(connected) == 1


def test_an_answer_that_was_waited_for_is_not_sent_after_the_loss(connected: Connected) -> None:
    connected.send(FETCH)
    connected.lost = True
    waiting = connected.bench.broker.waiting
    waiting.expire(waiting.deadline() or connected.bench.now)
    assert waiting.count == 0
    assert connected.frame() is None


class Door:
    """A broker's listener on a port of its own, and clients that come to it."""

    def __init__(self, connected: Connected) -> None:
        self.connected = connected
        self.listener = Listener(connected.parts, ListenerLimits(10, 600_000))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.listener.listen("127.0.0.1", self.port)
        self.listener.accept()

    @property
    def socket(self) -> socket.socket:
        assert self.listener._sock is not None
        return self.listener._sock

    def comes(self) -> RawClient:
        return RawClient(f"127.0.0.1:{self.port}")

    def let_in(self) -> Connection:
        """Turn until someone is in."""
        for _ in range(1000):
            self.connected.turn()
            if self.listener.connections:
                (connection,) = self.listener.connections
                return connection
        raise AssertionError("nobody was let in")

    def serves(self, client: RawClient) -> bool:
        client.start(k18_api_versions.API, 3, VERSIONS)
        for _ in range(1000):
            self.connected.turn()
            if self.connected.parts.stats.bytes_out:
                return len(client.receive_frame()) > 0
        return False


@pytest.fixture
def door(connected: Connected) -> Iterator[Door]:
    made = Door(connected)
    yield made
    made.listener.close()


def test_a_suspended_broker_ends_its_clients_and_refuses_the_next(door: Door) -> None:
    with door.comes() as client:
        door.let_in()
        door.listener.suspend()
        assert client.is_closed_by_peer()
    assert not door.listener.connections
    with pytest.raises(ConnectionRefusedError):
        door.comes()
    door.listener.suspend()


def test_a_broker_that_is_taken_back_serves_on_the_same_port(door: Door) -> None:
    door.listener.suspend()
    door.listener.resume()
    with door.comes() as client:
        door.let_in()
        assert door.serves(client)


def test_a_broker_whose_sockets_the_supervisor_shut_serves_again_once_taken_back(
    door: Door,
) -> None:
    for _ in range(2):  # it may be taken for hung twice before it has a turn
        with contextlib.suppress(OSError):
            door.socket.shutdown(socket.SHUT_RDWR)
    door.listener.suspend()
    door.listener.resume()
    with door.comes() as client:
        door.let_in()
        assert door.serves(client)


def test_a_broker_that_was_cut_off_and_not_given_up_listens_again_by_itself(door: Door) -> None:
    door.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionRefusedError):
        door.comes()
    door.connected.turn()
    with door.comes() as client:
        door.let_in()
        assert door.serves(client)


def test_who_knocks_at_a_lost_broker_is_not_let_in(door: Door) -> None:
    with door.comes():
        door.connected.lost = True
        for _ in range(10):
            door.connected.turn()
        assert not door.listener.connections


def test_running_out_of_descriptors_does_not_open_a_suspended_door(door: Door) -> None:
    door.listener._pause_accepting()
    door.listener.suspend()
    door.listener._resume_accepting()
    with pytest.raises(ConnectionRefusedError):
        door.comes()


def test_a_broker_that_stopped_accepting_is_not_opened_by_what_comes_late(door: Door) -> None:
    door.listener.suspend()
    door.listener.stop_accepting()
    door.listener.resume()
    with pytest.raises(ConnectionRefusedError):
        door.comes()
