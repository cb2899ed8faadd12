"""Runs command lines of `tidelog` without starting Python for each of them.

Python needs 0.15 s of processor time to start and to import a command. Here one process imports all
commands once, and forks for each command line, which takes 0.01 s. A command still is a process of
its own: its pid, streams, folder, environment, signal handlers and exit are nobody else's.

`python -m harness.processes.command_server` listens on a Unix socket until its standard input ends.
A client sends three streams and a request, and is sent the exit code. If it closes the connection
before, its command is killed.
"""

import gc
import importlib
import os
import pkgutil
import selectors
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import tidelog.tools
from harness.processes.served_client import LENGTH, STREAMS, send
from tidelog.tools.__main__ import main
from tidelog.tools.supervisor import entries

MARK = "HARNESS_CLUSTER"
"""The variable by which `Cluster.pids` finds the processes of a cluster."""
MARK_ROOM = "-" * 4_096
"""The mark of the server itself: no folder, and longer than the name of any."""
_ENV_START, _ENV_END = 47, 48
"""Fields of /proc/PID/stat behind the name of the process."""
_BACKLOG = 64
_REQUEST_WITHIN_S = 10.0
_DESCRIPTORS_MAX = 1 << 20
_ALSO_IMPORTED = ("importlib.metadata", "rich.console", "rich.progress", "rich.table")
_FAILED = 1
_CANNOT_FLUSH = 120
"""The exit code of Python if it cannot flush its standard streams at the end."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a shell gives to a command, but for the streams."""

    words: Sequence[str]
    folder: str
    variables: Mapping[str, str]

    def send(self, connection: socket.socket, streams: Sequence[int]) -> None:
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        send(connection, streams, [self.folder, str(len(self.words)), *self.words, *variables])

    @classmethod
    def receive(cls, connection: socket.socket) -> tuple[Self, list[int]]:
        head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, len(STREAMS))
        (left,) = LENGTH.unpack(head)
        data = b""
        while len(data) < left:
            chunk = connection.recv(left - len(data))
            if not chunk:
                raise EOFError("the client left in the middle of its request")
            data += chunk
        folder, count, *fields = os.fsdecode(data).split("\0")
        words, variables = fields[: int(count)], fields[int(count) :]
        return cls(words, folder, dict(one.split("=", 1) for one in variables)), streams


@dataclass(slots=True)
class Server:
    """One thread, so that it may fork."""

    listener: socket.socket
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _commands: dict[socket.socket, int] = field(default_factory=dict)
    """The pid of each running command, by its client's connection."""

    def serve(self) -> None:
        """Until the standard input ends: whoever started this process has ended."""
        self._watch(self.listener, self._accept)
        self._selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                key.data()

    def kill_all(self) -> None:
        for pid in self._commands.values():
            os.kill(pid, signal.SIGKILL)

    def _watch(self, what: socket.socket | int, then: Callable[[], None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, then)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(_REQUEST_WITHIN_S)
        try:
            request, streams = Request.receive(connection)
        except (OSError, EOFError, struct.error):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            _run(request, streams)
        for stream in streams:
            os.close(stream)
        pidfd = os.pidfd_open(pid)
        self._commands[connection] = pid
        self._watch(connection, lambda: self._client_left(connection))
        self._watch(pidfd, lambda: self._ended(connection, pidfd))

    def _client_left(self, connection: socket.socket) -> None:
        """The pid is still the command's: only `_ended` reaps it."""
        self._selector.unregister(connection)
        os.kill(self._commands[connection], signal.SIGKILL)

    def _ended(self, connection: socket.socket, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(self._commands.pop(connection), 0)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with connection, suppress(OSError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _run(request: Request, streams: Sequence[int]) -> NoReturn:
    """In the forked process: run the command, and end as Python itself does."""
    code = _FAILED
    try:
        _become(request, streams)
        main()
        code = 0
    except SystemExit as error:
        code = _code_of(error)
    except BaseException:  # noqa: BLE001 -- the last frame of the process: show it, then end
        traceback.print_exc()
    finally:
        os._exit(_flushed(code))


def _become(request: Request, streams: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(len(STREAMS), _DESCRIPTORS_MAX)
    # The server's own may be a file, and its object would move about in this one as in a file.
    errors = sys.stderr.errors
    sys.stderr = os.fdopen(2, "w", buffering=1, errors=errors, closefd=False)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)
    time.tzset()
    _show_mark(request.variables.get(MARK, ""))
    sys.argv = ["tidelog", *request.words]


def _show_mark(mark: str) -> None:
    """/proc/PID/environ shows the part of the memory that has the variables which the server was
    started with, also for processes that this one forks: write the mark of the command there."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(start)
        old = os.fsencode(f"{MARK}={MARK_ROOM}")
        at = memory.read(end - start).index(old)
        memory.seek(start + at)
        memory.write(os.fsencode(f"{MARK}={mark}").ljust(len(old), b"\0"))


def _code_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    sys.stderr.write(f"{error.code}\n")
    return _FAILED


def _flushed(code: int) -> int:
    """The exit code, when other threads have ended and all output is written."""
    threading._shutdown()  # type: ignore[attr-defined] # as Python itself ends
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return _CANNOT_FLUSH
    return code


def import_all_commands() -> None:
    """Whatever a command could import later, so that no command has to. What makes the tables of
    the documentation is no command, and imports half of the world."""
    for module in pkgutil.walk_packages(tidelog.tools.__path__, "tidelog.tools."):
        name = module.name.removeprefix("tidelog.tools.")
        if name != "__main__" and not name.startswith("doc_"):
            importlib.import_module(module.name)
    for other in _ALSO_IMPORTED:
        importlib.import_module(other)
    entries.load()  # of `up`, which gives them to all processes of its cluster
    # Nothing of it is ever garbage. A collection in a forked process would write into each object,
    # and the kernel would copy the memory for it.
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Print the path of the socket as soon as commands can be sent there."""
    import_all_commands()
    place = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 -- a folder of its own is made in it
    with (
        tempfile.TemporaryDirectory(prefix="harness-commands-", dir=place) as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{folder}/s"
        listener.bind(path)
        listener.listen(_BACKLOG)
        sys.stdout.write(f"{path}\n")
        sys.stdout.flush()
        server = Server(listener)
        try:
            server.serve()
        finally:
            server.kill_all()


if __name__ == "__main__":
    serve()
