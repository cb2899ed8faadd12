"""Members of groups that are no Python programs: they tell what they have, and what they read.

Each is a driver program: it leaves its group when its input ends, commits at each line of it, and
says what happens, a line of JSON each.
"""

import json
import os
import select
import subprocess
from collections.abc import Callable, Sequence
from typing import Self

from harness.clients import built
from harness.clients.tools_jvm import java_command
from harness.processes.cluster import until

LEAVES_S = 20.0


class Member:
    """One member, from its start; `with` ends it whatever happens."""

    def __init__(self, command: Sequence[str], call: dict[str, str] | None) -> None:
        self.has: set[int] = set()
        """The partitions that are its own now."""
        self.read: list[tuple[int, int]] = []
        """Partition and offset, in turn."""
        self._commits = 0
        self._torn = b""
        # It ends when its input does; what it logs goes where the test's own errors go.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if call is not None:
            self._write(json.dumps(call))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def look(self) -> None:
        """Take what it has said meanwhile."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while select.select([descriptor], [], [], 0)[0]:
            piece = os.read(descriptor, 1 << 16)
            assert piece, "the member has ended"
            *lines, self._torn = (self._torn + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, said: dict[str, object]) -> None:
        match said:
            case {"has": list(partitions)}:
                self.has = set(partitions)
            case {"read": [int(partition), int(offset)]}:
                self.read.append((partition, offset))
            case {"committed": True}:
                self._commits += 1
            case _:
                raise AssertionError(said)

    def commit(self) -> None:
        """What it read."""
        wanted = self._commits + 1
        self._write("commit")
        until(lambda: self._has_committed(wanted), "a commit")

    def _has_committed(self, wanted: int) -> bool:
        self.look()
        return self._commits == wanted

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """As an application that ends in order."""
        self._process.communicate(timeout=LEAVES_S)
        assert self._process.returncode == 0

    def kill(self) -> None:
        """As an application that crashes."""
        self._process.kill()


def franz(bootstrap: str, topic: str, group: str) -> Member:
    """With its own choice of assignor, the cooperative one."""
    return _by_program(built.franz(), bootstrap, topic, group, "")


def franz_by_range(bootstrap: str, topic: str, group: str) -> Member:
    return _by_program(built.franz(), bootstrap, topic, group, "range")


def sarama(bootstrap: str, topic: str, group: str) -> Member:
    return _by_program(built.sarama(), bootstrap, topic, group, "range")


def kafkajs(bootstrap: str, topic: str, group: str) -> Member:
    return _by_program(built.kafkajs(), bootstrap, topic, group, "")


def _by_program(
    command: Sequence[str], bootstrap: str, topic: str, group: str, assignor: str
) -> Member:
    call = {
        "verb": "member",
        "bootstrap": bootstrap,
        "topic": topic,
        "group": group,
        "assignor": assignor,
    }
    return Member(command, call)


def java(bootstrap: str, topic: str, group: str) -> Member:
    return _by_java(bootstrap, topic, group, "heartbeat.interval.ms=100")


def java_by_consumer_protocol(bootstrap: str, topic: str, group: str) -> Member:
    return _by_java(bootstrap, topic, group, "group.protocol=consumer")


def _by_java(bootstrap: str, topic: str, group: str, setting: str) -> Member:
    return Member(java_command("Member", bootstrap, topic, group, setting), None)


STARTED: dict[str, tuple[Callable[[str, str, str], Member], tuple[str, ...]]] = {
    "franz-go": (franz, ("go",)),
    "sarama": (sarama, ("go",)),
    "kafkajs": (kafkajs, ("node", "npm")),
    "Java by the consumer protocol": (java_by_consumer_protocol, ("java", "javac", "mvn")),
}
"""How a member is started, and what must be on the machine for it; each JVM costs seconds."""
