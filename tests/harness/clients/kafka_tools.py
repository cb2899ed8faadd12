"""Kafka's console tools, many calls in one JVM: each answers in a fraction of what a JVM costs."""

import os
import select
import struct
import subprocess
import time
from typing import NamedTuple, Self

from harness.clients import built
from harness.clients.java import Java

CALL_S = 60.0
_SIZE = struct.Struct(">i")


class Said(NamedTuple):
    """What a tool ended with, printed, and logged or complained of."""

    code: int
    out: str
    err: str


class KafkaTools:
    """`with KafkaTools(bootstrap) as tools` keeps one JVM for all its calls."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        java = Java(bootstrap)
        classes = built.tools(java.classpath)
        command = java.command("Tools", classpath=f"{classes}:{java.classpath}")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CALL_S)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def tool(self, name: str, *arguments: str) -> str:
        """What the tool prints; it must succeed, and log no error."""
        return _good(self.run(name, "--bootstrap-server", self.bootstrap, *arguments))

    def verb(self, name: str, verb: str, *arguments: str) -> str:
        """As `tool`, of one that wants the bootstrap behind its verb."""
        return _good(self.run(name, verb, "--bootstrap-server", self.bootstrap, *arguments))

    def refused(self, name: str, *arguments: str) -> str:
        """All that is said by a tool that must fail."""
        said = self.run(name, "--bootstrap-server", self.bootstrap, *arguments)
        assert said.code != 0, said
        return said.out + said.err

    def run(self, *words: str) -> Said:
        """A main class and its arguments."""
        assert self._process.stdin is not None
        pieces = [word.encode() for word in words]
        call = b"".join(_SIZE.pack(len(piece)) + piece for piece in pieces)
        self._process.stdin.write(_SIZE.pack(len(pieces)) + call)
        self._process.stdin.flush()
        deadline = time.monotonic() + CALL_S
        (code,) = _SIZE.unpack(self._read(4, deadline))
        out, err = (self._text(deadline) for _ in range(2))
        return Said(code, out, err)

    def _text(self, deadline: float) -> str:
        (size,) = _SIZE.unpack(self._read(4, deadline))
        return self._read(size, deadline).decode()

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        taken = bytearray()
        while len(taken) < count:
            wait_s = max(0.0, deadline - time.monotonic())
            assert select.select([descriptor], [], [], wait_s)[0], "the tool hangs"
            piece = os.read(descriptor, count - len(taken))
            assert piece, "the JVM has ended"
            taken += piece
        return bytes(taken)


def _good(said: Said) -> str:
    assert said.code == 0, said
    # The log of the tools goes to standard error: warnings are findings too.
    assert " ERROR " not in said.err, said
    return said.out
