"""Pythons of Spark as forks of one that has imported what they need.

Spark starts a Python for each stream, and daemons of Python workers for each thing that it asks a
data source. Each imports pyspark, pyarrow and tidelog: half a second of a processor. Here a program
that is named like a Python (`python_in`) hands its words, its environment and its open files over
to a process that forks for it, and stays until the fork has ended. The JVM is no parent of such
forks.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOCKET: Final = "SPARK_FORKS_SOCKET"
"""Names the place where it is told what to fork."""
MODULES: Final = (
    "pyarrow",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "tidelog.spark.datasource",
)

_QUICK = """#!{python} -S
import json, os, socket, sys
if sys.argv[1:2] == ["-m"] and sys.argv[2].startswith("pyspark."):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(os.environ["{name}"])
        told = json.dumps([sys.argv[2:], dict(os.environ)]).encode()
        socket.send_fds(one, [len(told).to_bytes(4, "big")], [0, 1, 2])
        one.sendall(told)
        for number in (0, 1):
            os.close(number)
        one.recv(1)
else:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
"""


def python_in(folder: Path) -> Path:
    """What Spark takes for a Python."""
    path = folder / "python"
    path.write_text(_QUICK.format(python=sys.executable, name=SOCKET))
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def forking(folder: Path) -> Iterator[None]:
    """A process that forks, and what sends this process's Spark to it."""
    place = folder / "forks"
    place.unlink(missing_ok=True)
    os.environ[SOCKET] = str(place)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(python_in(folder))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        # Strings have the same hashes in all Pythons of Spark.
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "harness.spark.forks", str(listener.fileno())],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            pass_fds=[listener.fileno()],
        ) as process:
            try:
                yield
            finally:
                process.kill()


def serve(listener: socket.socket) -> None:
    """Fork for whoever asks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        one, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(one)
        one.close()


def _become(one: socket.socket) -> None:
    """What was asked for, to its end. The socket stays open until then."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        head, files, _, _ = socket.recv_fds(one, 4, 3)
        with one.makefile("rb") as rest:
            words, environment = json.loads(rest.read(int.from_bytes(head, "big")))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def main() -> None:
    for one in MODULES:
        importlib.import_module(one)
    # Workers collect garbage after each thing that they do: this is none.
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
