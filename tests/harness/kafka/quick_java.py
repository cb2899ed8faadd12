"""JVMs of Kafka's programs that start with less work.

They read the classes that they need from an archive, which is half of what a start costs, and
compile only what is quickly compiled: they live for seconds.
"""

import os
import shutil
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Final

from harness.clients import built
from harness.kafka.jars import KAFKA_VERSION, need_kafka
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from harness.suite.tools_cache import BUILD_SECONDS_MAX, made_once

QUICK: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
NO_WORD: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""A JVM with other jars has no use for the archive, and would say so."""
NODE: Final = "node"
CLIENTS: Final = "clients"
"""The archives: of the classes of a node, and of those of clients and tools."""
FORMATTED: Final = "formatted"
"""What a node keeps its logs in, before its first start."""


def libs() -> Path:
    """The folder of Kafka's jars."""
    return Path(need_kafka().split(":", maxsplit=1)[0])


def quick_java(archive: str, *words: str, program: Path | None = None) -> list[str]:
    """What runs a main class of Kafka's jars, or of another jar beside them."""
    return java(f"-XX:SharedArchiveFile={prepared() / archive}.jsa", *words, program=program)


def java(option: str, *words: str, program: Path | None = None) -> list[str]:
    """As above, with any option. The archive is used only where its JVM had the same class path,
    and it may not have a folder of files in it."""
    jars = f"{libs()}/*" if program is None else f"{libs()}/*:{program}"
    return ["java", *QUICK, *NO_WORD, option, log_settings(), "-cp", jars, *words]


def log_settings() -> str:
    """Without them a program logs nothing, or complains of that."""
    return f"-Dlog4j2.configurationFile={libs() / 'log4j2.properties'}"


@cache
def prepared() -> Path:
    """The folder with both archives, and a folder that is formatted for a node."""
    jars = sorted(libs().iterdir())
    program = shutil.which("java")
    assert program is not None, "who needs the jars needs Java"
    found = [Path(program).resolve(), built.tools(), *jars]
    facts = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in found]
    name = f"kafka-classes-{KAFKA_VERSION}-{zlib.crc32(repr(facts).encode()):08x}"
    return made_once(name, _prepare)


def _prepare(folder: Path) -> None:
    roots = os.pathsep.join(str(ROOT / top) for top in (*PYTHON_ROOTS, "tests"))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "harness.kafka.classes_program", str(folder)],
        env={**os.environ, "PYTHONPATH": roots},
        timeout=BUILD_SECONDS_MAX,
        capture_output=True,
        check=True,
    )
