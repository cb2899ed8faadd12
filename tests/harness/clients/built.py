"""Builds the driver programs of clients that are not Python, once for each state of their source.

What is built lies in the tools' cache under a name made from the sources, so a change builds anew
and a second run of the tests builds nothing.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness.kafka.jars import need_kafka, need_streams
from harness.suite.need import need
from harness.suite.tools_cache import BUILD_SECONDS_MAX, clock_stopped, made_once

HERE = Path(__file__).resolve().parent
_JAR = "programs.jar"


def franz() -> list[str]:
    """The command that runs the Go program; its modules come through the ordinary go command."""
    sources = ["go.mod", "go.sum", "main.go", "admin.go", "data.go", "describe.go"]
    sources += ["member.go", "steady.go", "transform.go"]
    return [str(built("franz", sources, _go_build) / "driver")]


def sarama() -> list[str]:
    """As `franz`, for the other client in Go."""
    sources = ["go.mod", "go.sum", "main.go", "member.go", "transform.go"]
    return [str(built("sarama", sources, _go_build) / "driver")]


def kafkajs() -> list[str]:
    """The command that runs the Node program; kafkajs comes through the ordinary npm command."""
    sources = ["package.json", "package-lock.json", "main.js", "member.js"]
    folder = built("kafkajs", sources, _npm_install)
    return ["node", str(folder / "main.js")]


def tools() -> Path:
    """The jar with what runs Kafka's tools, with clients, and with what asks Kafka's classes."""
    clients = ["Member.java", "Producers.java", "Steady.java", "Transformer.java"]
    return _java("jvm", need_kafka(), ["KafkaSettings.java", "Tools.java", *clients])


def streams() -> Path:
    """The jar with an application of Kafka Streams."""
    return _java("streams", need_streams(), ["StreamsTransformer.java"])


def _java(name: str, classpath: str, sources: list[str]) -> Path:
    need("javac")

    def compiled(folder: Path) -> None:
        _run(folder, "javac", "-Xlint:all", "-Werror", "-cp", classpath, "-d", "classes", *sources)
        _run(folder, "jar", "--create", "--file", _JAR, "-C", "classes", ".")

    return built(name, sources, compiled, makes=_JAR) / _JAR


def built(name: str, sources: list[str], build: Callable[[Path], None], *, makes: str = "") -> Path:
    """The folder that `build` made from a copy of these sources; `makes` tells it from one that was
    built of them in another way."""
    texts = [(HERE / name / source).read_bytes() for source in sources]
    digest = hashlib.sha256(b"".join([*texts, makes.encode()]))

    def copied_and_built(folder: Path) -> None:
        for source in sources:
            shutil.copy(HERE / name / source, folder)
        build(folder)

    return made_once(f"{name}-{digest.hexdigest()[:16]}", copied_and_built)


def _go_build(folder: Path) -> None:
    go_build(folder, "driver")


def go_build(folder: Path, program: str) -> None:
    """Build the Go program of a folder.

    On a new machine the command first downloads its modules and compiles the standard library.
    All programs share the flags, and so that work.
    """
    with clock_stopped():
        _run(folder, "go", "build", "-mod=readonly", "-trimpath", "-o", program, ".")


def _npm_install(folder: Path) -> None:
    _run(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
