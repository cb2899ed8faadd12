"""Clients that produce one number after the other and read them back, whatever befalls the cluster.

All of them at once against one cluster, each a program of its own. Each is set up once; nothing
here restarts a client or says a number again: retries are the client's own.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.clients import built
from harness.clients.tools_jvm import java_command

PARTITIONS = 3
EVERY_MS = 20
DEADLINE_S = 120.0
ACKED_MIN = 100
_HERE = Path(__file__).parent


class Outcome(NamedTuple):
    """What a client was told of its numbers, and what it read."""

    acked: list[int]
    refused: list[str]
    read: dict[int, list[int]]
    """By partition."""


def faults(outcome: Outcome, logs: Sequence[list[int]]) -> list[str]:
    """What is wrong with what a client was told and read, a line each; `logs` by partition."""
    found = [f"refused: {reason}" for reason in outcome.refused[:3]]
    if len(outcome.acked) < ACKED_MIN:
        found.append(f"only {len(outcome.acked)} numbers were acknowledged")
    for partition, log in enumerate(logs):
        found += [f"partition {partition}: {fault}" for fault in _faults(outcome, partition, log)]
    return found


def _faults(outcome: Outcome, partition: int, log: list[int]) -> Iterator[str]:
    acked = {number for number in outcome.acked if number % PARTITIONS == partition}
    lost = sorted(acked.difference(log))
    if lost:
        yield f"{len(lost)} lost, the first is {lost[0]}"
    if len(log) != len(set(log)):
        yield f"{len(log) - len(set(log))} twice"
    if log != sorted(log):
        yield "out of order"
    read = outcome.read.get(partition, [])
    if read != log:
        yield f"read were {len(read)}, there are {len(log)}"


class Steady:
    """One client, under way from its start to `finish`: its program ends when its input does."""

    name: str

    def __init__(self, bootstrap: str, topic: str, command: list[str]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        call = {
            "verb": "steady",
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "partitions": PARTITIONS,
            "every_ms": EVERY_MS,
        }
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Where it cannot be finished."""
        if self._process is not None and self._process.poll() is None:
            with self._process as process:
                process.kill()

    def finish(self) -> Outcome:
        assert self._process is not None
        with self._process as process:
            try:
                output, errors = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, (self.name, errors)
        answer = json.loads(output)
        assert answer.get("outcome"), (self.name, answer, errors)
        said = answer["outcome"]
        read = said["read"]
        by_partition = {int(key): row for key, row in read.items()}
        return Outcome(said["acked"], said["refused"], by_partition)


class SteadyPython(Steady):
    """One of those in `steady_python.py`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        program = str(_HERE / "steady_python.py")
        super().__init__(bootstrap, topic, [sys.executable, "-W", "ignore", program, self.name])


class SteadyConfluent(SteadyPython):
    name = "confluent-kafka"


class SteadyKafkaPython(SteadyPython):
    name = "kafka-python"


class SteadyAioKafka(SteadyPython):
    name = "aiokafka"


class SteadyFranz(Steady):
    name = "franz-go"

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic, built.franz())


class SteadySarama(Steady):
    name = "sarama"

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic, built.sarama())


class SteadyKafkaJs(Steady):
    name = "kafkajs"

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic, built.kafkajs())


class SteadyJava(Steady):
    name = "java"

    def __init__(self, bootstrap: str, topic: str) -> None:
        words = ["Steady", bootstrap, topic, str(PARTITIONS), str(EVERY_MS)]
        super().__init__(bootstrap, topic, java_command(*words))


NEEDS: dict[Callable[[str, str], Steady], tuple[str, ...]] = {
    SteadyConfluent: (),
    SteadyKafkaPython: (),
    SteadyAioKafka: (),
    SteadyFranz: ("go",),
    SteadySarama: ("go",),
    SteadyKafkaJs: ("node", "npm"),
    SteadyJava: ("java", "mvn"),
}
