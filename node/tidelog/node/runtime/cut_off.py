"""Ends the connections of a process that cannot do it itself, because it hangs. (shell)

A stopped broker's clients would wait for their own time-outs, a minute with librdkafka's defaults.
Its parent duplicates the sockets with `pidfd_getfd(2)` and shuts them: the kernel tells the clients
at once, and the broker too, as soon as it moves again.
"""

import ctypes
import errno
import os
import platform
import socket
from pathlib import Path

from msgspec import Struct

_PIDFD_GETFD = 438
"""The same number on every architecture but Alpha; glibc has no name for it before 2.36."""
_library = ctypes.CDLL(None, use_errno=True)
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


class CannotCutError(Exception):
    """The kernel keeps us from it; the text says why, and what to do."""


class Cut(Struct, frozen=True):
    """What was shut."""

    listening: int
    connected: int


def cut_off(pid: int, pidfd: int, port: int) -> Cut:
    """Shut every TCP socket of a process that has this local port.

    Descriptor numbers may come to mean something else while we look (the process may hang in one
    thread only), so each socket is asked itself what it is, after it was duplicated.
    """
    listening = connected = 0
    for number in _sockets(pid):
        duplicate = _take(pidfd, number)
        if duplicate is None:
            continue
        with duplicate:
            if not _is_ours(duplicate, port):
                continue
            listens = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if _shut(duplicate):
                listening += bool(listens)
                connected += not listens
    return Cut(listening, connected)


def _sockets(pid: int) -> list[int]:
    """Descriptors that were sockets a moment ago."""
    found = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(entry.path).startswith("socket:"):  # noqa: PTH115 -- thousands of them
                    found.append(int(entry.name))
            except FileNotFoundError:
                continue
    except FileNotFoundError:
        return []  # it has ended
    except PermissionError as error:
        raise CannotCutError(f"the descriptors of process {pid} may not be seen") from error
    return found


def _take(pidfd: int, number: int) -> socket.socket | None:
    """A duplicate of a process's descriptor, as a socket; None where it is none any more."""
    duplicate = _library.syscall(_PIDFD_GETFD, pidfd, number, 0)
    if duplicate < 0:
        code = ctypes.get_errno()
        if code in {errno.EBADF, errno.ESRCH}:
            return None
        raise CannotCutError(_refusal(code))
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return None


def _is_ours(duplicate: socket.socket, port: int) -> bool:
    if duplicate.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    if duplicate.type != socket.SOCK_STREAM:
        return False
    try:
        return bool(duplicate.getsockname()[1] == port)
    except OSError:
        return False


def _shut(duplicate: socket.socket) -> bool:
    """Whether there was something to shut."""
    try:
        duplicate.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # its other end, or an earlier look, was faster
    return True


def _refusal(code: int) -> str:
    """Why the kernel said no, for people."""
    if code == errno.ENOSYS:
        return f"Linux {platform.release()} has no pidfd_getfd: it needs 5.6 or newer"
    try:
        scope = _PTRACE_SCOPE.read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    if scope in {"2", "3"}:
        return (
            f"kernel.yama.ptrace_scope is {scope}: set it to 1, or run as root (with 2), so that a "
            "parent may take descriptors of its children"
        )
    return (
        f"pidfd_getfd is refused ({os.strerror(code)}): in a container, allow it in the seccomp "
        "profile, or add the capability SYS_PTRACE"
    )
