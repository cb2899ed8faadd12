"""Programs of PySpark, and its Kafka connector's jars, fetched once into the tools' cache."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.kafka_jars import CACHE_VARIABLE, DEFAULT_CACHE
from harness.need import need
from harness.tidy_checks import PYTHON_ROOTS, ROOT

SPARK_VERSION = "4.2.0"
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""These JVMs live for seconds: what they compile better they have no time to gain from."""


def connector_jars() -> Path:
    """The folder that holds the four jars."""
    need("java", "mvn")
    return _made(f"spark-jars-{SPARK_VERSION}", _fetch_jars)


def environment() -> dict[str, str]:
    """What a program needs that has a session of its own."""
    roots = os.pathsep.join(str(ROOT / top) for top in PYTHON_ROOTS)
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": QUICK_START,
        "PYTHONPATH": roots,
    }


def kept_in(folder: Path) -> dict[str, str]:
    """Has Spark make its scratch files there: one that is killed removes none of them."""
    return {
        "SPARK_LOCAL_DIRS": str(folder),
        "TMPDIR": str(folder),
        "JAVA_TOOL_OPTIONS": f"{QUICK_START} -Djava.io.tmpdir={folder}",
    }


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache; of many test processes one makes it, the others wait."""
    given = os.environ.get(CACHE_VARIABLE)
    folder = (Path(given) if given else DEFAULT_CACHE) / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                    work = Path(scratch) / "work"
                    work.mkdir()
                    make(work)
                    work.rename(folder)
    return folder


def _fetch_jars(folder: Path) -> None:
    rows = "".join(
        f"<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></artifactItem>"
        for group, artifact, version in JARS
    )
    with tempfile.TemporaryDirectory() as project:
        pom = Path(project) / "pom.xml"
        pom.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>tidelog</groupId>"
            "<artifactId>spark-jars</artifactId><version>1</version><build><plugins><plugin>"
            "<artifactId>maven-dependency-plugin</artifactId><configuration><artifactItems>"
            f"{rows}</artifactItems></configuration></plugin></plugins></build></project>"
        )
        goal = ["dependency:copy", f"-DoutputDirectory={folder}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True, capture_output=True)
