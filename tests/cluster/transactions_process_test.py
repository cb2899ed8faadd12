"""The transaction coordinator by its socket: whom it welcomes, and as whom it returns."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from harness.processes.cluster import Cluster, until
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.launch import transactions_endpoint
from tidelog.wire.transactions import Hello, Welcome, decode_from_transactions, encode

pytestmark = pytest.mark.slow

NOBODY = BrokerId(63)
"""No broker of this cluster."""
WAIT_MS = 20_000


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("transactions-process"), brokers=1) as cluster:
        cluster.done("wait", "ready")
        yield cluster


@contextmanager
def connected(cluster: Cluster, name: bytes) -> Iterator[zmq.Socket[bytes]]:
    endpoint = transactions_endpoint(cluster.runs[-1].runtime_dir)
    until(lambda: Path(endpoint.removeprefix("ipc://")).exists(), "its socket")
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.set(zmq.IDENTITY, name)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, WAIT_MS)
        socket.connect(endpoint)
        yield socket
    finally:
        socket.close(linger=0)
        context.term()


def hello(cluster: Cluster, session: int, cluster_id: str | None = None) -> bytes:
    known = cluster.status()["cluster_id"] if cluster_id is None else cluster_id
    return encode(Hello(session, known, NOBODY, Incarnation(1)))


def welcome(socket: "zmq.Socket[bytes]") -> Welcome:
    message = decode_from_transactions(socket.recv())
    assert isinstance(message, Welcome)
    return message


def coordinator_pid(cluster: Cluster) -> int | None:
    """None between one life and the next."""
    pid: int | None = cluster.process("transaction-coordinator")["pid"]
    return pid


def test_it_welcomes_a_broker_of_its_cluster_and_nobody_else(one: Cluster) -> None:
    with connected(one, b"stranger") as stranger, connected(one, b"broker") as broker:
        stranger.send(b"no message")
        stranger.send(hello(one, 7, "another cluster"))
        broker.send(hello(one, 5))
        assert welcome(broker).session == 5
        assert not stranger.poll(100)
    with connected(one, b"broker") as again:
        again.send(hello(one, 6))
        assert welcome(again).session == 6


def test_each_life_of_it_has_a_higher_epoch_and_takes_brokers_at_once(one: Cluster) -> None:
    with connected(one, b"broker") as broker:
        broker.send(hello(one, 10))
        before = welcome(broker)
        pid = coordinator_pid(one)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: coordinator_pid(one) not in {None, pid}, "another life")
        broker.send(hello(one, 11))
        after = welcome(broker)
    assert after.epoch == before.epoch + 1
    assert after.coordinator > before.coordinator
    assert "crashed" not in one.logs()
