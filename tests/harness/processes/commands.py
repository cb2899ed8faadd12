"""Runs one command line of `tidelog` to its end: by a command server, or as a program.

`HARNESS_COMMANDS=programs` starts Python for each command, as a shell does it.
"""

import atexit
import io
import json
import os
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.processes import served_client
from harness.processes.command_server import MARK, MARK_ROOM, Request
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT

TIDELOG = ("-m", "tidelog.tools")
VARIABLE = "HARNESS_COMMANDS"
PROGRAMS = "programs"
ALWAYS_PROGRAMS = frozenset({"pipeline"})
"""`pipeline` replaces its process by another program."""
_READ_AT_START = ("PYTHON", "LC_", "LANG")
"""Python reads variables with these beginnings when it starts, and not again."""
_PIPE_BYTES = 65_536
"""So much can be written into a pipe before anybody reads."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def _inherited() -> tuple[object, ...]:
    """What a program has from the thread that starts it, and tests change."""
    names = ("mnt", "net", "pid_for_children")
    namespaces = tuple(Path(f"/proc/thread-self/ns/{name}").readlink() for name in names)
    return (os.geteuid(), resource.getrlimit(resource.RLIMIT_NOFILE), *namespaces)


_USUAL = _inherited()
"""Of a test process before its first test, and so of its command server."""


def variables() -> dict[str, str]:
    """The environment of commands: the source tree's code, none of the caller's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TIDELOG_", "KAFKA_"))}
    roots = [ROOT / top for top in PYTHON_ROOTS]
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, roots)), "NO_COLOR": "1"}


def run(request: Request, text: str = "", timeout_s: float = 60.0) -> Finished:
    """A command line of `tidelog`, to its end, in the cheapest way."""
    if can_be_served(request, text):
        return run_served(request, text, timeout_s)
    return run_program(TIDELOG, request, text, timeout_s)


def run_program(program: Sequence[str], request: Request, text: str, timeout_s: float) -> Finished:
    """Start Python for this command line."""
    done = subprocess.run(
        [sys.executable, *program, *request.words],
        cwd=request.folder,
        env=request.variables,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def can_be_served(request: Request, text: str) -> bool:
    """Whether the command server does for this command line what a program does."""
    if os.environ.get(VARIABLE) == PROGRAMS or ALWAYS_PROGRAMS.intersection(request.words[:1]):
        return False
    if len(text.encode()) > _PIPE_BYTES or _inherited() != _USUAL:
        return False
    return _for_python(request.variables) == _for_python(server().variables)


def run_served(request: Request, text: str, timeout_s: float) -> Finished:
    """Have the command server of this test process run this command line."""
    with (
        _in_memory("out") as out,
        _in_memory("err") as err,
        closing(socket.socket(socket.AF_UNIX)) as connection,
    ):
        connection.connect(server().path)
        stdin = _filled_pipe(text)
        try:
            request.send(connection, [stdin, out.fileno(), err.fileno()])
        finally:
            os.close(stdin)
        connection.settimeout(timeout_s)
        try:
            code = connection.recv(_PIPE_BYTES)
        except TimeoutError:
            raise subprocess.TimeoutExpired(list(request.words), timeout_s) from None
        assert code, "the command server has ended"
        return Finished(int(code), _text(out), _text(err))


def words_of_shell(*, as_programs: bool) -> str:
    """What a shell runs for `tidelog`: Python, or what has the command server run it."""
    if as_programs or os.environ.get(VARIABLE) == PROGRAMS:
        return shlex.join([sys.executable, *TIDELOG])
    return shlex.join([sys.executable, "-IS", served_client.__file__, server().path])


def _for_python(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.startswith(_READ_AT_START)}


def _in_memory(name: str) -> io.FileIO:
    return io.FileIO(os.memfd_create(name), "r+")


def _filled_pipe(text: str) -> int:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    return reader


def _text(file: io.FileIO) -> str:
    """As a program's output is read: each end of a line becomes a newline."""
    file.seek(0)
    return io.TextIOWrapper(io.BytesIO(file.read()), encoding="utf-8").read()


@dataclass(frozen=True, slots=True)
class Started:
    """A command server that this test process has started."""

    process: subprocess.Popen[str]
    path: str
    variables: Mapping[str, str]

    def close(self) -> None:
        """The server ends when its standard input does."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


@cache
def server() -> Started:
    """The command server of this test process; the first call starts it."""
    environment = variables()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.processes.command_server"],
        env={**environment, MARK: MARK_ROOM},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    path = process.stdout.readline().rstrip("\n")
    assert path, "the command server could not start"
    started = Started(process, path, environment)
    atexit.register(started.close)
    return started
