"""One JVM for each test process, in which Kafka's tools run one after the other.

A JVM costs one to two seconds of processor time until a tool in it has done its first work; a
call in a JVM that runs costs a tenth of that.
"""

import atexit
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from harness.clients import built
from harness.kafka.jars import need_streams
from harness.kafka.quick_java import CLIENTS, QUICK, log_settings, quick_java

CALL_S = 90.0
_SIZE = struct.Struct(">i")


class Said(NamedTuple):
    """What a tool ended with, printed, and logged or complained of."""

    code: int
    out: str
    err: str


def java_command(*words: str) -> list[str]:
    """What runs one of our programs in Java, or of Kafka's: a main class, and its words."""
    return quick_java(CLIENTS, *words, program=built.tools())


def streams_command(*words: str) -> list[str]:
    """As above, of a program that uses Kafka Streams."""
    return ["java", *QUICK, log_settings(), "-cp", f"{built.streams()}:{need_streams()}", *words]


def run_tool(*words: str, text: str = "") -> Said:
    """Run a main class with its arguments in the JVM of this test process."""
    jvm = _jvm()
    try:
        return jvm.run(words, text)
    except BaseException:
        # Its next answer would be that to this call.
        _jvm.cache_clear()
        jvm.kill()
        raise


class ToolsJvm:
    """A JVM, and who may call it: one thread at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lock = threading.Lock()

    def kill(self) -> None:
        with self._process:
            self._process.kill()

    def end(self) -> None:
        """As a JVM ends itself, when nothing more is asked of it."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(CALL_S) == 0

    def run(self, words: Sequence[str], text: str) -> Said:
        assert self._process.stdin is not None
        pieces = [word.encode() for word in (*words, text)]
        call = b"".join(_SIZE.pack(len(piece)) + piece for piece in pieces)
        with self._lock:
            self._process.stdin.write(_SIZE.pack(len(words)) + call)
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


@cache
def _jvm() -> ToolsJvm:
    jvm = ToolsJvm(java_command("Tools"))
    atexit.register(jvm.kill)
    return jvm
