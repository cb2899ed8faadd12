"""Builds the driver programs of clients that are not Python, once for each state of their source.

What is built lies in the tools' cache under a name made from the sources, so a change builds anew
and a second run of the tests builds nothing. Of many test processes one builds, the others wait.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.need import need

HERE = Path(__file__).resolve().parent
CACHE_VARIABLE = "HARNESS_TOOLS_CACHE"
DEFAULT_CACHE = HERE.parents[2] / ".tools-cache"


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


def tools(classpath: str) -> Path:
    """The folder of the classes that run Kafka's tools, and of its clients."""
    sources = ["Member.java", "Producers.java", "Tools.java", "Transformer.java"]
    return _java("jvm", classpath, sources)


def streams(classpath: str) -> Path:
    """The folder of an application of Kafka Streams."""
    return _java("streams", classpath, ["StreamsTransformer.java"])


def _java(name: str, classpath: str, sources: list[str]) -> Path:
    need("javac")

    def compiled(folder: Path) -> None:
        _run(folder, "javac", "-Xlint:all", "-Werror", "-cp", classpath, *sources)

    return built(name, sources, compiled)


def built(name: str, sources: list[str], build: Callable[[Path], None]) -> Path:
    """The folder that `build` made from a copy of these sources."""
    digest = hashlib.sha256(b"".join((HERE / name / source).read_bytes() for source in sources))
    folder = _cache() / f"{name}-{digest.hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _build_aside(folder, [HERE / name / source for source in sources], build)
    return folder


def _cache() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else DEFAULT_CACHE


def _build_aside(folder: Path, sources: list[Path], build: Callable[[Path], None]) -> None:
    """Build elsewhere and rename last: whoever sees the folder sees all of it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch) / "work"
        work.mkdir()
        for source in sources:
            shutil.copy(source, work)
        build(work)
        work.rename(folder)


def _go_build(folder: Path) -> None:
    go_build(folder, "driver")


def go_build(folder: Path, program: str) -> None:
    """Build the Go program of a folder.

    There is no time limit but the test's own: on a new machine the command first downloads its
    modules and compiles the standard library. All programs share the flags, and so that work.
    """
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
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
