"""One node of Apache Kafka itself, for tests that hold our commands against the original."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.cluster import until

CLUSTER_ID = "dGlkZWxvZy1jb21tYW5kcw"
PATIENCE_S = 60.0


@contextmanager
def kafka_node(folder: Path, classpath: str) -> Iterator[str]:
    """Broker and controller in one process; gives the bootstrap address."""
    ports = _free_ports(2)
    config = folder / "node.properties"
    config.write_text(_properties(folder, *ports), encoding="ascii")
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    subprocess.run([*java, *tool], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
    with (folder / "said").open("wb") as said:
        node = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=said, stderr=said)
    try:
        until(lambda: _is_open(ports[0], node), "Kafka takes connections", PATIENCE_S)
        yield f"127.0.0.1:{ports[0]}"
    finally:
        node.terminate()
        try:
            node.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _is_open(port: int, node: subprocess.Popen[bytes]) -> bool:
    assert node.poll() is None, "Kafka ended at its start"
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _properties(folder: Path, client_port: int, controller_port: int) -> str:
    rows = {
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
        "listeners": f"CLIENT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{client_port}",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "logs"),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())
