"""Transactional producers of the Java client, as `transactional.py` has those in Python."""

import itertools
import os
import select
import subprocess
from typing import Self

from harness.clients.facts import DEADLINE_S
from harness.clients.tools_jvm import java_command
from harness.clients.transactional import TIMEOUT_MS, Fenced

_FENCED = ("ProducerFencedException", "InvalidProducerEpochException")


class Jvm:
    """`with Jvm(bootstrap) as jvm` keeps one process for all the producers that it makes."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            java_command("Producers", bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def make(self, name: str, timeout_ms: int = TIMEOUT_MS) -> "JavaProducer":
        producer = JavaProducer(self, str(next(self._numbers)))
        producer.say("make", name, str(timeout_ms))
        return producer

    def ask(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], DEADLINE_S)
            assert ready, f"no answer to {words}"
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            assert piece, "the JVM has ended"
            answer += piece
        return answer.decode().strip()


class JavaProducer:
    """One of them."""

    def __init__(self, jvm: Jvm, number: str) -> None:
        self._jvm = jvm
        self._number = number

    def say(self, *words: str) -> None:
        failure = self._jvm.ask(self._number, *words)
        if failure.startswith(_FENCED):
            raise Fenced(failure)
        assert not failure, (words, failure)

    def begin(self) -> None:
        self.say("begin")

    def produce(self, topic: str, value: bytes) -> None:
        self.say("produce", topic, value.decode())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self.say("offset", topic, str(offset), group)

    def commit(self) -> None:
        self.say("commit")

    def abort(self) -> None:
        self.say("abort")

    def close(self) -> None:
        """It goes with its process."""
