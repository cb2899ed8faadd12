"""Clusters to measure: tidelog by its command, Apache Kafka by its own classes from Maven."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_PATIENCE_S = 60.0


class Cluster(Protocol):
    """One broker on this machine."""

    name: str
    bootstrap: str
    pid: int


def free_port() -> int:
    """A port nobody uses at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def command() -> str:
    """The console script beside this interpreter, else the one on the path."""
    beside = Path(sys.executable).with_name("tidelog")
    found = str(beside) if beside.exists() else shutil.which("tidelog")
    if found is None:
        raise SystemExit("tidelog is not installed: pip install -e .")
    return found


def environment() -> dict[str, str]:
    """Ours, but with byte code kept: a start that compiles every module measures the compiler."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Tidelog:
    """One `tidelog up` in the foreground, in a folder of its own."""

    name = "tidelog"

    def __init__(self, *settings: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._said = Path(self._folder.name) / "said"
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        words = [command(), "up", "--ephemeral", "--base-port", str(port), "--json"]
        words += [word for setting in settings for word in ("--set", setting)]
        self.launched = time.monotonic()
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                words,
                cwd=self._folder.name,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=said,
            )
        self.pid = self._process.pid

    def wait_ready(self) -> None:
        """Until `up` has printed its document."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_PATIENCE_S)
            self.check_alive()
        json.loads(line)

    def check_alive(self) -> None:
        """Ends this program with what `up` said, where it has ended."""
        if self._process.poll() is not None:
            raise SystemExit(self._said.read_text(encoding="utf-8").strip() or "tidelog up ended")

    def stop(self) -> float:
        """Ask for a clean end; the seconds it took."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_PATIENCE_S)
        seconds = time.monotonic() - began
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()
        return seconds


@contextlib.contextmanager
def running(*settings: str) -> Iterator[Tidelog]:
    """A cluster of one broker that takes clients."""
    cluster = Tidelog(*settings)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()


# -- Apache Kafka -------------------------------------------------------------------------------

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.24.3"
KAFKA_HEAP = "512m"
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)
_LOG4J = """status = error
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
"""


def fetch_kafka(folder: Path) -> Path:
    """The broker's jars in `folder`, from Maven Central at the first call."""
    marker = folder / "VERSION"
    if marker.exists() and marker.read_text(encoding="ascii").strip() == KAFKA_VERSION:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version></dependency>"
        for group, artifact, number in _ARTIFACTS
    )
    pom = folder / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>"
        f"<artifactId>kafka</artifactId><version>1</version><dependencies>{rows}</dependencies>"
        "</project>",
        encoding="utf-8",
    )
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={folder}"],
        check=True,
        stdout=sys.stderr,
    )
    (folder / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
    marker.write_text(KAFKA_VERSION, encoding="ascii")
    return folder


class Kafka:
    """One combined KRaft node, formatted; `launched` is after the formatting."""

    name = "kafka"

    def __init__(self, jars: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-kafka-")
        port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        config = Path(self._folder.name) / "server.properties"
        config.write_text(_properties(self._folder.name, port, controller), encoding="ascii")
        java = ["java", f"-Dlog4j2.configurationFile={jars}/log4j2.properties"]
        java += ["-cp", f"{jars}:{jars}/*"]
        cluster_id = "dGlkZWxvZy1hbmNob3ItMQ"
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
        subprocess.run([*java, "-Xmx128m", *tool], check=True, stdout=subprocess.DEVNULL)
        heap = [f"-Xms{KAFKA_HEAP}", f"-Xmx{KAFKA_HEAP}", "-XX:+UseG1GC"]
        heap += ["-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
        self.launched = time.monotonic()
        self._process = subprocess.Popen(
            [*java, *heap, "kafka.Kafka", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid

    def wait_ready(self) -> None:
        host, port = self.bootstrap.split(":")
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                self.check_alive()
                time.sleep(0.05)
            else:
                return

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit("Kafka ended at its start")

    def stop(self) -> float:
        began = time.monotonic()
        self._process.terminate()
        self._process.wait(_PATIENCE_S)
        seconds = time.monotonic() - began
        self._folder.cleanup()
        return seconds


def _properties(folder: str, port: int, controller: int) -> str:
    rows = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": f"{folder}/log",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{key}={value}\n" for key, value in rows.items())
