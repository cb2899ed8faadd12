"""Apache Kafka's own jars, for tests that hold our files and our wire against the original.

They come from Maven Central through the ordinary `mvn`, once, into a cache directory.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.suite.need import need
from harness.suite.tools_cache import BUILD_SECONDS_MAX, is_made, made_once

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.24.3"

Artifacts = Sequence[tuple[str, str, str]]
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)

PLACER_VERSION = "3.9.2"
"""The last one whose placement of replicas can be told where to start; newer ones draw that."""
PLACER_ARTIFACTS = (
    ("org.apache.kafka", "kafka-server-common", PLACER_VERSION),
    ("org.apache.kafka", "kafka-clients", PLACER_VERSION),
)

STREAMS_ARTIFACTS = (
    ("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)

LOG4J_PROPERTIES = """\
status = error
appender.c.type = Console
appender.c.name = C
appender.c.target = SYSTEM_ERR
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
"""


def need_kafka() -> str:
    """A class path with Kafka's broker, clients and tools; as `need` where it cannot be had."""
    return _classpath(f"kafka-{KAFKA_VERSION}", ARTIFACTS)


def need_placer() -> str:
    """One with the placement of replicas of an older Kafka; as above."""
    return _classpath(f"kafka-placer-{PLACER_VERSION}", PLACER_ARTIFACTS)


def need_streams() -> str:
    """One with Kafka Streams; as above."""
    return _classpath(f"kafka-streams-{KAFKA_VERSION}", STREAMS_ARTIFACTS)


def _classpath(name: str, artifacts: Artifacts) -> str:
    """Java runs it; Maven is needed only by who has to fetch it."""
    need("java")
    if not is_made(name):
        need("mvn")
    libs = made_once(name, partial(_fetch, artifacts))
    return f"{libs}:{libs}/*"


def run_source(source: Path, *, classpath: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in Java that was not compiled, to its end; both outputs as text."""
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return subprocess.run(
        ["java", *options, "-cp", classpath, source],
        input=text,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def _fetch(artifacts: Artifacts, libs: Path) -> None:
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    with tempfile.TemporaryDirectory() as project:
        pom = Path(project) / "pom.xml"
        pom.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>tidelog</groupId>"
            f"<artifactId>kafka-libs</artifactId><version>1</version><dependencies>{rows}"
            "</dependencies></project>"
        )
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        run_maven(pom, *goal, f"-DoutputDirectory={libs}")
    (libs / "log4j2.properties").write_text(LOG4J_PROPERTIES)


def run_maven(pom: Path, *goal: str) -> None:
    """Run goals of a project, which may download what they need."""
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *goal],
        check=True,
        capture_output=True,
        timeout=BUILD_SECONDS_MAX,
    )
