"""Programs of PySpark, and its Kafka connector's jars, fetched once into the tools' cache."""

import os
import sys
import tempfile
from pathlib import Path

import pyspark

from harness.kafka.jars import run_maven
from harness.suite.need import need
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from harness.suite.tools_cache import made_once

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
    return made_once(f"spark-jars-{SPARK_VERSION}", _fetch_jars)


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


def unpacked_home(folder: Path) -> dict[str, str]:
    """Has Spark's Python processes import the installed pyspark, from a home made in this folder.

    Spark puts its own `pyspark.zip` first in their path. Python cannot keep what it compiles out of
    a zip file, so each process compiles pyspark anew: half a second of a processor.
    """
    folder.mkdir()
    installed = Path(pyspark.__file__).parent
    for one in ("bin", "jars"):
        (folder / one).symlink_to(installed / one)
    return {"SPARK_HOME": str(folder)}


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
        run_maven(pom, "dependency:copy", f"-DoutputDirectory={folder}")
