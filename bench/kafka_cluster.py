"""Apache Kafka to measure beside: its published jars, as combined KRaft nodes on this machine."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from clusters import HOST, SETTINGS, addresses, dying_with_us, free_ports

KAFKA_VERSION: Final = "4.3.1"
KAFKA_JARS: Final = Path.home() / ".cache" / "tidelog-bench" / f"kafka-{KAFKA_VERSION}"
"""Where they are kept, if nobody says where."""
LOG4J_VERSION: Final = "2.24.3"
KAFKA_HEAP: Final = "512m"
JVM: Final = (
    f"-Xms{KAFKA_HEAP}",
    f"-Xmx{KAFKA_HEAP}",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The heap's size is ours: Kafka's script asks for 1 GiB. The rest is what the script says."""
_CLUSTER_ID: Final = "dGlkZWxvZy1hbmNob3ItMQ"
_PATIENCE_S: Final = 60.0
_LINES_SHOWN: Final = 20
_ARTIFACTS: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)
_LOG4J: Final = """status = error
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
"""


def fetch_kafka(folder: Path) -> Path:
    """The broker's jars in `folder`, from Maven Central at the first call."""
    if (folder / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
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
    return folder


class Kafka:
    """Combined KRaft nodes, formatted; `launched` is after the formatting."""

    name = "kafka"

    def __init__(self, jars: Path, *, brokers: int = 1, replication: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-kafka-")
        root = Path(self._folder.name)
        (root / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
        port = free_ports(2 * brokers)
        self.bootstrap = addresses(port, brokers)
        configs = [root / f"node{number}.properties" for number in range(brokers)]
        for number, config in enumerate(configs):
            text = properties(root, number, port, brokers=brokers, replication=replication)
            config.write_text(text, encoding="ascii")
        java = dying_with_us(["java", f"-Dlog4j2.configurationFile={root}/log4j2.properties"])
        java += ["-cp", f"{jars}/*"]
        for config in configs:
            tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)]
            subprocess.run([*java, "-Xmx128m", *tool], check=True, stdout=subprocess.DEVNULL)
        self.launched = time.monotonic()
        self._said = root / "said"
        self._commands = [[*java, *JVM, "kafka.Kafka", str(config)] for config in configs]
        self._nodes = [self._launch(number) for number in range(brokers)]
        self.pids = [node.pid for node in self._nodes]

    def _launch(self, number: int) -> subprocess.Popen[bytes]:
        with self._said.open("ab") as said:
            return subprocess.Popen(self._commands[number], stdout=said, stderr=said)

    def wait_ready(self) -> None:
        """Until every node takes connections."""
        for address in self.bootstrap.split(","):
            host, _, port = address.partition(":")
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection((host, int(port)), 1).close()
                    break
                self.check_alive()
                time.sleep(0.05)

    def check_alive(self) -> None:
        if any(node.poll() is not None for node in self._nodes):
            said = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
            raise SystemExit("\n".join(["Kafka ended at its start:", *said[-_LINES_SHOWN:]]))

    def pid_of(self, broker: int) -> int:
        return self.pids[broker]

    def start_again(self, broker: int) -> None:
        """One that was killed."""
        self._nodes[broker].wait(_PATIENCE_S)
        self._nodes[broker] = self._launch(broker)
        self.pids[broker] = self._nodes[broker].pid

    def stop(self) -> float:
        began = time.monotonic()
        for node in self._nodes:
            node.terminate()
        for node in self._nodes:
            try:
                node.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                node.kill()  # one that lost its quorum waits for it without end
                node.wait()
        seconds = time.monotonic() - began
        self._folder.cleanup()
        return seconds


def properties(root: Path, number: int, port: int, *, brokers: int, replication: int) -> str:
    """A node's settings: what a combined node cannot start without, all else as Kafka comes."""
    first_controller = port + brokers
    voters = (f"{other}@{HOST}:{first_controller + other}" for other in range(brokers))
    rows = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://{HOST}:{port + number},"
        f"CONTROLLER://{HOST}:{first_controller + number}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port + number}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": f"{root}/log{number}",
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(min(2, replication)),
        **SETTINGS,
    }
    return "".join(f"{key}={value}\n" for key, value in rows.items())
