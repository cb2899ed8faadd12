"""Kept ports: refused to others, free for the broker, the same again when it comes back."""

import errno
import os
import socket
import subprocess
from pathlib import Path

import pytest

from harness.processes.other_user import as_other_user, needs_root
from tidelog.kernel.failures import CannotStartError
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.ports import HOST, PortKeeper, bootstrap, ranges_of_free_ports


def listening(port: int) -> socket.socket:
    """As a broker does it."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((HOST, port))
    listener.listen()
    return listener


def taken(port: int, host: str, *options: int) -> str:
    """What another program gets that tries to listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as other:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            other.bind((host, port))
            other.listen()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "taken"


def broken_off(port: int) -> None:
    """A broker that served a client has ended first: its side of the connection lingers."""
    with listening(port) as broker, socket.create_connection((HOST, port)) as client:
        broker.accept()[0].close()
        assert client.recv(1) == b""


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


@pytest.mark.parametrize("host", [HOST, "0.0.0.0", "::"])  # noqa: S104 -- as others may try
@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_KEEPALIVE])
def test_no_other_program_listens_on_a_kept_port_also_after_a_broker_did(
    keeper: PortKeeper, host: str, option: int
) -> None:
    port = keeper.keep(0)
    assert taken(port, host, option) == "EADDRINUSE"
    broken_off(port)
    assert taken(port, host, option) == "EADDRINUSE"
    with listening(port):
        assert taken(port, host, option) == "EADDRINUSE"
    keeper.close()


@needs_root
@pytest.mark.parametrize("host", [HOST, "0.0.0.0", "::"])  # noqa: S104 -- as others may try
def test_no_other_user_listens_on_a_kept_port_whatever_the_options(
    keeper: PortKeeper, host: str
) -> None:
    port = keeper.keep(0)
    options = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    assert as_other_user(lambda: taken(port, host, *options)) == "'EADDRINUSE'"
    broken_off(port)
    assert as_other_user(lambda: taken(port, host, *options)) == "'EADDRINUSE'"
    keeper.close()


def test_a_port_on_which_a_broker_of_another_cluster_listens_is_refused(
    keeper: PortKeeper,
) -> None:
    other = PortKeeper()
    port = other.keep(0)
    with listening(port), pytest.raises(CannotStartError, match=f"port {port} is in use"):
        keeper.keep(port)
    other.close()


def test_a_port_whose_connections_linger_is_kept_again_at_once(keeper: PortKeeper) -> None:
    port = keeper.keep(0)
    for _ in range(3):
        broken_off(port)
        keeper.close()
        assert keeper.keep(port) == port
    broken_off(port)
    keeper.close()


def test_a_name_that_anybody_may_take_keeps_nobody_from_a_port(keeper: PortKeeper) -> None:
    port = keeper.keep(0)
    keeper.close()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0tidelog-port-{port}")
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


LINUX = range(32_768, 61_000)


@pytest.mark.parametrize(
    ("ephemeral", "unprivileged_from", "expected"),
    [
        (LINUX, 1024, [(10_000, 32_768), (61_000, 65_536), (1024, 10_000)]),
        (LINUX, 0, [(10_000, 32_768), (61_000, 65_536), (1024, 10_000)]),
        (LINUX, 20_000, [(20_000, 32_768), (61_000, 65_536)]),
        (range(5_000, 65_536), 1024, [(1024, 5_000)]),
        (range(1024, 65_536), 1024, []),
        (range(1024, 65_001), 1024, [(65_001, 65_536)]),
        (range(0), 1024, [(10_000, 65_536), (1024, 10_000)]),
    ],
)
def test_free_ports_are_looked_for_where_no_client_connection_gets_its_port(
    ephemeral: range, unprivileged_from: int, expected: list[tuple[int, int]]
) -> None:
    ranges = ranges_of_free_ports(ephemeral, unprivileged_from)
    assert [(one.start, one.stop) for one in ranges] == expected


def test_a_free_port_is_none_that_the_kernel_gives_to_a_connection(keeper: PortKeeper) -> None:
    ephemeral = proc.ephemeral_ports()
    if not ranges_of_free_ports(ephemeral, proc.unprivileged_from()):
        pytest.skip("the kernel gives every port to connections")
    ports = {keeper.keep(0) for _ in range(20)}
    assert len(ports) == 20
    assert not ports & set(ephemeral)
    keeper.close()


def test_where_every_port_is_for_connections_or_taken_the_kernel_chooses() -> None:
    taken = PortKeeper()
    port = taken.keep(0)
    for ranges in ([], [range(port, port + 1)]):
        keeper = PortKeeper(ranges)
        assert keeper.keep(0) != port
        keeper.close()
    taken.close()


@pytest.mark.parametrize("host", ["::1", "127.0.0.2"])
def test_a_port_on_which_another_address_of_this_machine_listens_is_not_free(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        keeper = PortKeeper([range(port, port + 1)])
        assert keeper.keep(0) != port
        keeper.close()


def test_it_is_told_that_a_client_connection_took_the_port_of_a_broker(keeper: PortKeeper) -> None:
    port = keeper.keep(0)
    keeper.close()
    with socket.create_server((HOST, 0)) as server, socket.socket() as client:
        client.bind((HOST, port))
        client.connect(server.getsockname())
        other = keeper.keep(0, preferred=port)
    (sentence,) = keeper.moved
    assert f"port {port}, which a broker had before, is in use by " in sentence
    assert f"(pid {os.getpid()})" in sentence
    assert f"gets port {other}" in sentence
    keeper.close()


def test_who_has_a_port_is_found_in_one_look_at_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server whose process cannot be looked at there may be thousands of connections."""
    rows = [f"0: 0100007F:2384 0100007F:{at:04X} 01 0 0 0 0 0 {at}" for at in range(1, 1_000)]
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text("\n".join(["header", *rows]), encoding="ascii")
    descriptors = tmp_path / "7" / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "0").symlink_to("socket:[0]")
    looks: list[Path] = []
    readlink = Path.readlink

    def noted(path: Path) -> Path:
        looks.append(path)
        return readlink(path)

    monkeypatch.setattr(Path, "readlink", noted)
    monkeypatch.setattr(proc, "_PROC", tmp_path)
    assert proc.holder(0x2384) is None
    assert len(looks) == 1


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
    assert proc.switches(os.getpid()) > 0
    assert not proc.is_ending(os.getpid())
    with subprocess.Popen(["true"]) as other:
        pid = other.pid
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert proc.is_gone(pid)  # dead, and not yet reaped
    assert proc.is_gone(pid)
    assert proc.memory_of(pid).pss_bytes == 0
    assert proc.age_ns(pid) == 0
    assert proc.switches(pid) == 0
