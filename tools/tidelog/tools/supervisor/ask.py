"""Asks a running supervisor, from another process."""

import contextlib
import json
import os
import select
import signal
import socket
import struct
from pathlib import Path
from typing import Any, Self

from msgspec import structs

from tidelog.kernel.launch import supervisor_socket
from tidelog.node.runtime.lives import identity
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.folder import find, run_in
from tidelog.tools.supervisor.runs import Run

_CREDENTIALS = struct.Struct("@3i")
_ANSWER_WITHIN_S = 90.0
_ENDED = "the cluster ended meanwhile"
FAILED, UNREACHABLE = 1, 4


class NotRunningError(Exception):
    """No supervisor answers for this folder."""


class SaidNoError(Exception):
    """The supervisor refused; the text is its sentence."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class EndedError(SaidNoError):
    """The supervisor ended before it answered."""


class SilentError(SaidNoError):
    """The supervisor lives and does not answer."""


class Link:
    """One connection to the supervisor of a cluster."""

    def __init__(self, run: Run, folder: Path, stream: socket.socket) -> None:
        self.run = run
        self.folder = folder
        self._stream = stream
        self._lines = stream.makefile("rb")
        credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid = int(_CREDENTIALS.unpack(credentials)[0])
        """The supervisor's, as the kernel knows it; 0 where it runs in another container."""
        self._pidfd = os.pidfd_open(self.pid) if self.pid else None

    @classmethod
    def to(cls, data: Path) -> Self:
        """NotRunningError where nobody listens."""
        folder = find(data)
        run = run_in(folder)
        if run is None:
            raise NotRunningError
        if identity(run.data_dir) != run.folder:  # moved, or seen at another place from here
            run = structs.replace(run, data_dir=str(folder))
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(_ANSWER_WITHIN_S)
        try:
            stream.connect(supervisor_socket(run.runtime_dir))
        except OSError as error:
            stream.close()
            raise NotRunningError from error
        try:
            link = cls(run, folder, stream)
        except OSError as error:  # it has ended since it listened
            stream.close()
            raise NotRunningError from error
        if link.pid not in {0, run.pid} and (run.life is None or run.life.is_counted_here()):
            link.close()
            raise NotRunningError  # whoever listens there is not the supervisor of this run
        return link

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        """The answer; SaidNoError where it is no."""
        if proc.is_stopped(self.pid):
            raise SilentError(
                f"the supervisor (pid {self.pid}) is stopped: let it go on with fg or "
                f"kill -CONT {self.pid}, or end the cluster with tidelog down",
                UNREACHABLE,
            )
        timeout = more.get("timeout_s")
        patience = float(timeout) if isinstance(timeout, int | float) else 0.0
        self._stream.settimeout(_ANSWER_WITHIN_S + patience)
        try:
            # One that hangs up at once may have said why: the answer is read all the same.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._stream.sendall(json.dumps({"do": what, **more}).encode() + b"\n")
            answer = self.read()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EndedError(_ENDED, FAILED) from error
        except OSError as error:
            raise SilentError(
                f"the supervisor (pid {self.pid}) does not answer: see tidelog logs supervisor",
                UNREACHABLE,
            ) from error
        if not answer["ok"]:
            raise SaidNoError(str(answer["error"]), int(answer["code"]))
        return answer

    def watch(self) -> None:
        """From now on `read` gives events: what is, then what happens."""
        self._stream.sendall(b'{"do": "watch"}\n')

    def read(self) -> dict[str, Any]:
        """The next line."""
        line = self._lines.readline()
        if not line:
            raise EndedError(_ENDED, FAILED)
        document: dict[str, Any] = json.loads(line)
        return document

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Whether the supervisor, and with it everything, has ended in time."""
        poll = select.poll()
        if self._pidfd is None:
            poll.register(self._stream, select.POLLRDHUP)
        else:
            poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def wake(self) -> None:
        """A supervisor that is stopped goes on, and all it has to do with it."""
        if proc.is_stopped(self.pid):
            self._send(signal.SIGCONT)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
        self._lines.close()
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
