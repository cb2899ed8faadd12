"""The sockets of a process that cannot move are shut for it, and no others."""

import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.node.runtime import cut_off as cutting
from tidelog.node.runtime.cut_off import CannotCutError, Cut, cut_off

WAIT_S = 10.0


class Hung:
    """A child that has a listening socket, a client, a pipe and a second port, and is stopped."""

    def __init__(self) -> None:
        self.listener, self.other = (
            socket.create_server(("127.0.0.1", 0)),
            socket.create_server(("127.0.0.1", 0)),
        )
        self.port: int = self.listener.getsockname()[1]
        self.client = self._comes(self.listener)
        self.stranger = self._comes(self.other)
        self.unix, unix_theirs = socket.socketpair()
        accepted = [self.listener.accept()[0], self.other.accept()[0]]
        self.pid = os.fork()
        if self.pid == 0:
            signal.pause()
            os._exit(0)
        self.pidfd = os.pidfd_open(self.pid)
        for theirs in (self.listener, self.other, unix_theirs, *accepted):
            theirs.close()
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def _comes(self, listener: socket.socket) -> socket.socket:
        client = socket.create_connection(listener.getsockname(), timeout=WAIT_S)
        client.settimeout(WAIT_S)
        return client

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        for ours in (self.client, self.stranger, self.unix):
            ours.close()


@pytest.fixture
def hung() -> Iterator[Hung]:
    made = Hung()
    yield made
    made.close()


def test_the_clients_of_a_stopped_process_see_the_end_of_their_connections(hung: Hung) -> None:
    assert cut_off(hung.pid, hung.pidfd, hung.port) == Cut(listening=1, connected=1)
    assert hung.client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", hung.port), timeout=WAIT_S)


def test_what_has_another_port_or_none_is_left_alone(hung: Hung) -> None:
    cut_off(hung.pid, hung.pidfd, hung.port)
    for ours in (hung.stranger, hung.unix):
        ours.settimeout(0)
        with pytest.raises(BlockingIOError):
            ours.recv(1)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left_open_here(hung: Hung) -> None:
    before = descriptors()
    cut_off(hung.pid, hung.pidfd, hung.port)
    assert descriptors() == before


def test_what_was_shut_is_not_shut_again(hung: Hung) -> None:
    cut_off(hung.pid, hung.pidfd, hung.port)
    again = cut_off(hung.pid, hung.pidfd, hung.port)
    assert again.listening == 0


def test_a_process_that_is_dead_by_now_has_nothing_to_shut(hung: Hung) -> None:
    os.kill(hung.pid, signal.SIGKILL)
    os.waitid(os.P_PID, hung.pid, os.WEXITED | os.WNOWAIT)
    assert cut_off(hung.pid, hung.pidfd, hung.port) == Cut(0, 0)


def test_a_refusal_says_why_and_what_to_do(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "5.6" in cutting._refusal(errno.ENOSYS)
    assert "seccomp" in cutting._refusal(errno.EPERM)
    monkeypatch.setattr(cutting, "_PIDFD_GETFD", 100_000)  # as a kernel that has no such call
    with pytest.raises(CannotCutError, match="or newer"):
        cut_off(hung.pid, hung.pidfd, hung.port)
