"""Programs of PySpark, and its Kafka connector's jars, fetched once into the tools' cache."""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path

import pyspark

from harness.kafka.jars import run_maven
from harness.suite.need import need
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from harness.suite.tools_cache import BUILD_SECONDS_MAX, made_once

SPARK_VERSION = "4.2.0"
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=200m"
"""These JVMs live for seconds: what they compile better they have no time to gain from, and with
room for all compiled code they need not look for some to throw away."""
_NO_WORD = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM with other jars has no use for the archive, and would say so."""


def connector_jars() -> Path:
    """The folder that holds the four jars."""
    need("java", "mvn")
    return made_once(f"spark-jars-{SPARK_VERSION}", _fetch_jars)


def environment() -> dict[str, str]:
    """What a program needs that has a session of its own."""
    roots = os.pathsep.join(str(ROOT / top) for top in (*PYTHON_ROOTS, "tests"))
    return {
        **os.environ,
        **quick_start(),
        **preloaded_workers(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": roots,
    }


def kept_in(folder: Path) -> dict[str, str]:
    """Has Spark make its scratch files there: one that is killed removes none of them."""
    quick = quick_start()
    return {
        **quick,
        "SPARK_LOCAL_DIRS": str(folder),
        "TMPDIR": str(folder),
        "JAVA_TOOL_OPTIONS": f"{quick['JAVA_TOOL_OPTIONS']} -Djava.io.tmpdir={folder}",
    }


def quick_start() -> dict[str, str]:
    """Variables that have Spark's processes start with less work, and change nothing else: its
    JVMs read the classes that they need from an archive."""
    return {
        "SPARK_HOME": str(home()),
        "JAVA_TOOL_OPTIONS": f"{QUICK_START} -XX:SharedArchiveFile={_class_archive()} {_NO_WORD}",
    }


def preloaded_workers() -> dict[str, str]:
    """Has sessions fork their Python workers from a daemon that has imported what they need. Its
    module must be in PYTHONPATH."""
    conf = "spark.python.daemon.module=harness.spark.daemon"
    return {"PYSPARK_SUBMIT_ARGS": f"--conf {conf} pyspark-shell"}


def home() -> Path:
    """A home of Spark whose Python processes import the installed pyspark.

    Spark puts its own `pyspark.zip` first in their path. Python cannot keep what it compiles out of
    a zip file, so each process would compile pyspark anew: half a second of a processor.
    """
    return made_once(f"spark-home-{_installed()}", _link_home)


def _link_home(folder: Path) -> None:
    installed = Path(pyspark.__file__).parent
    for one in ("bin", "jars"):
        (folder / one).symlink_to(installed / one)


@cache
def _installed() -> str:
    """Names the installed Java and Spark: a JVM refuses an archive of other files."""
    java = shutil.which("java")
    assert java is not None
    jars = Path(pyspark.__file__).parent / "jars"
    found = [Path(java).resolve(), *sorted(jars.iterdir())]
    facts = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in found]
    return f"{SPARK_VERSION}-{zlib.crc32(repr(facts).encode()):08x}"


def _class_archive() -> Path:
    """The classes of a session as its JVM has them in memory, from which others start: half of
    what the start costs."""
    return made_once(f"spark-classes-{_installed()}", _archive_classes) / "classes.jsa"


def _archive_classes(folder: Path) -> None:
    """As a JVM writes them at its end."""
    need("java")
    work = folder / "work"
    work.mkdir()
    ends = f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"
    roots = os.pathsep.join(str(ROOT / top) for top in (*PYTHON_ROOTS, "tests"))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "harness.spark.classes_program", str(work)],
        env={
            **os.environ,
            "SPARK_HOME": str(home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": ends,  # for the driver's JVM alone
            "JAVA_TOOL_OPTIONS": f"{QUICK_START} {_NO_WORD}",
            "PYTHONPATH": roots,
        },
        cwd=work,
        timeout=BUILD_SECONDS_MAX,
        capture_output=True,
        check=True,
    )
    shutil.rmtree(work)


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
