"""A standalone Spark on this machine: a master and two workers, each a process of its own."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.processes.cluster import until

_DEPLOY = "org.apache.spark.deploy"
_MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")
WORKERS = 2
READY_S = 120


def spark_home() -> Path:
    """Where pip has put Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def bare_python(folder: Path) -> Path:
    """A Python that has what pip has installed, but not this project, as a worker's may be."""
    path = folder / "python"
    installed = sysconfig.get_path("purelib")
    path.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="$PYTHONPATH:{installed}" exec {shlex.quote(sys.executable)} -S "$@"\n'
    )
    path.chmod(0o755)
    return path


def clean_python(folder: Path) -> Path:
    """A virtual environment that has what tidelog needs, but not tidelog."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    # Files .pth of a folder that is named in one are not read: so this project stays out of sight.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin/python"
    lacks = subprocess.run([python, "-c", "import tidelog.spark"], check=False, capture_output=True)
    assert b"No module named 'tidelog'" in lacks.stderr, "install this project with pip install -e"
    return python


def environment(python: Path) -> dict[str, str]:
    """What Spark's own scripts need; and no word of where our sources are."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_DAEMON_MEMORY": "256m",
    }


@contextmanager
def standalone(folder: Path, python: Path) -> Iterator[str]:
    """The master's address, once both workers are there."""
    with ExitStack() as stack:
        log = folder / "master.log"
        asked = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_daemon("master.Master", asked, log, python))
        until(lambda: _MASTER.search(log.read_text()) is not None, "a master of Spark", READY_S)
        found = _MASTER.search(log.read_text())
        assert found is not None
        for number in range(WORKERS):
            work = folder / f"worker-{number}"
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            asked = [*options, "--work-dir", str(work), found[0]]
            stack.enter_context(
                _daemon("worker.Worker", asked, folder / f"worker-{number}.log", python)
            )
        until(
            lambda: log.read_text().count("Registering worker") == WORKERS, "its workers", READY_S
        )
        yield found[0]


@contextmanager
def _daemon(name: str, asked: Sequence[str], log: Path, python: Path) -> Iterator[None]:
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(spark_home() / "bin/spark-class"), f"{_DEPLOY}.{name}", *asked],
            env=environment(python),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        with process:
            try:
                yield
            finally:
                process.terminate()  # a worker ends its executors
