"""The jars of Spark's own Kafka connector: which, and how they are known to be the right ones."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.tools.output import fail


@dataclass(frozen=True, slots=True)
class Jar:
    """One of them, by its coordinates."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


JARS: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(  # serves Kerberos logins alone; later versions are not everywhere, and this one fits
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)

Fetch = Callable[[Jar, Path], str]
"""Puts a jar into a folder, or gives the sentence that says why not."""


def gather_jars(folder: Path, fetch: Fetch) -> list[Jar]:
    """All jars into the folder; those that had to be fetched. One that lies is not left there."""
    folder.mkdir(parents=True, exist_ok=True)
    fetched = []
    for jar in JARS:
        path = folder / jar.name
        if path.exists() and _is_right(path, jar):
            continue
        path.unlink(missing_ok=True)
        trouble = fetch(jar, folder)
        if not path.exists():
            fail(f"{jar.name} could not be fetched: {trouble or 'nothing came'}")
        if not _is_right(path, jar):
            path.unlink()
            fail(f"{jar.name} is not the one that was published: its SHA-256 must be {jar.sha256}")
        fetched.append(jar)
    return fetched


def fetch_by_maven(jar: Jar, folder: Path) -> str:
    """By name, never what it depends on: that asks repositories that may be out of reach."""
    maven = shutil.which("mvn")
    if maven is None:
        return f"Maven (mvn) is not here; put {jar.coordinates} into {folder} by hand"
    goal = ["dependency:copy", f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={folder}"]
    done = subprocess.run(  # noqa: S603 -- the user's own Maven
        [maven, "-q", "-B", *goal], check=False, capture_output=True, text=True
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
    return said[0].removeprefix("[ERROR]").strip()[:300] if said else ""


def _is_right(path: Path, jar: Jar) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
