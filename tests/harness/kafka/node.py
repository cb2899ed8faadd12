"""One node of Apache Kafka itself, for tests that hold our commands against the original.

A test skips where it cannot be had, as with `need`.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from harness.kafka.quick_java import FORMATTED, NODE, prepared, quick_java
from harness.processes.cluster import until

CLUSTER_ID = "dGlkZWxvZy1jb21tYW5kcw"
PATIENCE_S = 60.0
TRANSACTIONS: Mapping[str, str] = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""What one node alone needs to have transactions, and has at once."""


TRIES = 3
"""Ports that were free may be taken when Kafka is up to them: then with others."""


class KafkaNode:
    """Broker and controller in one process, which may be killed and started again where it was."""

    def __init__(self, command: Sequence[str], said: Path, port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.said = said
        self._command = command
        self._port = port
        self.start()

    def start(self) -> None:
        """Until it takes connections, or has ended."""
        with self.said.open("ab") as file:
            self.process = subprocess.Popen(self._command, stdout=file, stderr=file)
        try:
            until(partial(_is_up, self._port, self.process), "Kafka takes connections", PATIENCE_S)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def mortal_kafka_node(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[KafkaNode]:
    """One that the test may kill."""
    node = _started(folder, settings or {})
    try:
        yield node
    finally:
        node.stop()


@contextmanager
def kafka_node(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Broker and controller in one process; gives the bootstrap address."""
    with mortal_kafka_node(folder, settings) as node:
        yield node.bootstrap


def logs_of(folder: Path) -> Path:
    """Where the node that was started last in that folder keeps its partitions."""
    return max(folder.glob("logs-*"))


def _started(folder: Path, settings: Mapping[str, str]) -> KafkaNode:
    """One that takes connections."""
    java = quick_java(NODE)
    for tried in range(TRIES):
        ports = free_ports(2)
        config = folder / f"node-{tried}.properties"
        logs = folder / f"logs-{tried}"
        config.write_text(properties(logs, ports, settings), encoding="ascii")
        shutil.copytree(prepared() / FORMATTED, logs)
        said = folder / f"said-{tried}"
        node = KafkaNode([*java, "kafka.Kafka", str(config)], said, ports[0])
        if node.process.poll() is None:
            return node
        assert b"Address already in use" in said.read_bytes(), f"Kafka ended at its start: {said}"
    raise AssertionError(f"of {TRIES} pairs of free ports none was free")


def format_folders(java: Sequence[str], config: Path) -> None:
    """What a node needs before its first start. It takes a JVM of its own, but nothing of what that
    writes is about the one node: a copy serves any."""
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    subprocess.run([*java, *tool], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)


def _is_up(port: int, node: subprocess.Popen[bytes]) -> bool:
    """Whether it takes connections, or has ended."""
    if node.poll() is not None:
        return True
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def properties(logs: Path, ports: list[int], settings: Mapping[str, str]) -> str:
    client_port, controller_port = ports
    rows = {
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
        "listeners": f"CLIENT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{client_port}",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(logs),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())
