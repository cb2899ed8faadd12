"""Kept ports: refused to others, free for the broker, the same again when it comes back."""

import os
import socket
import subprocess

import pytest

from tidelog.kernel.failures import CannotStartError
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.ports import HOST, PortKeeper, bootstrap


def listening(port: int) -> socket.socket:
    """As a broker does it."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    return listener


@pytest.fixture
def keeper() -> PortKeeper:
    return PortKeeper()


def test_a_kept_port_refuses_clients_until_a_broker_listens(keeper: PortKeeper) -> None:
    port = keeper.keep(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    with listening(port):
        socket.create_connection((HOST, port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    listening(port).close()
    keeper.close()


def test_a_port_that_someone_uses_is_refused_and_its_user_named(keeper: PortKeeper) -> None:
    with listening(0) as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotStartError) as raised:
            keeper.keep(port)
    assert f"port {port} is in use by" in str(raised.value)
    assert f"(pid {os.getpid()})" in str(raised.value)
    assert "--base-port" in str(raised.value)


def test_a_port_that_another_cluster_only_keeps_is_refused_too(keeper: PortKeeper) -> None:
    other = PortKeeper()
    port = other.keep(0)
    with pytest.raises(CannotStartError, match=f"port {port} is in use"):
        keeper.keep(port)
    other.close()
    assert keeper.keep(port) == port
    keeper.close()


def test_a_preferred_port_is_taken_where_it_is_free(keeper: PortKeeper) -> None:
    other = PortKeeper()
    port = other.keep(0)
    assert keeper.keep(0, preferred=port) != port
    other.close()
    keeper.close()
    assert keeper.keep(0, preferred=port) == port
    keeper.close()


def test_free_ports_differ(keeper: PortKeeper) -> None:
    ports = [keeper.keep(0) for _ in range(10)]
    assert len(set(ports)) == 10
    keeper.close()


def test_clients_are_given_addresses() -> None:
    assert bootstrap([9092, 9093]) == "127.0.0.1:9092,127.0.0.1:9093"


def test_the_kernel_is_asked_who_lives() -> None:
    assert not proc.is_gone(os.getpid())
    assert not proc.is_stopped(os.getpid())
    assert proc.memory_of(os.getpid()).pss_bytes > 0
    assert proc.age_ns(os.getpid()) > 0
    with subprocess.Popen(["true"]) as other:
        pid = other.pid
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert proc.is_gone(pid)  # dead, and not yet reaped
    assert proc.is_gone(pid)
    assert proc.memory_of(pid).pss_bytes == 0
    assert proc.age_ns(pid) == 0
