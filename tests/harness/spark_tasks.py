"""Tasks of an exactly-once sink as processes of their own, which die at the points they are told.

Run as a program it takes one attempt a line, as JSON, and answers with what became of it. It forks
for each: an attempt is a process without the second that a start of Python takes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.spark_plain import batch_of
from harness.tidy_checks import PYTHON_ROOTS, ROOT
from tidelog.spark.connections import client_of
from tidelog.spark.exactly_once import Sink, Writer
from tidelog.spark.options import Mode, sink_options
from tidelog.spark.tasks import Point, TaskInfo, go_on

ROWS = 25
"""Of each task."""


def values_of(batch: int, partition: int) -> list[bytes]:
    """What a task writes, whenever it is done."""
    return [b"%d/%d/%d" % (batch, partition, n) for n in range(ROWS)]


def write_task(options: dict[str, str], task: TaskInfo, dies_at: str = "") -> dict[str, Any]:
    """One attempt in this process, which may not live through it."""

    def reached(point: Point, _batch: int, _partition: int) -> None:
        if point.value == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    chosen = sink_options(options, Mode.STREAM)
    sink = Sink.of(chosen, task.query)
    writer = Writer(
        client_of(chosen.connection), chosen, sink, reached=reached if dies_at else go_on
    )
    values = values_of(task.batch, task.partition)
    rows = [batch_of(values[:10]), batch_of(values[10:])]
    done = writer.write(task, rows)
    return {"rows": done.rows, "skipped": done.skipped}


def attempt(asked: dict[str, Any]) -> dict[str, Any]:
    """In a child: its answer, or the signal that ended it."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        task = TaskInfo(asked["query"], asked["batch"], asked["partition"])
        try:
            said = write_task(asked["options"], task, asked["dies_at"])
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test is told
            said = {"error": f"{type(error).__name__}: {error}"}
        os.write(tells, json.dumps(said).encode())
        os._exit(0)
    os.close(tells)
    with os.fdopen(told, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    found: dict[str, Any] = json.loads(text)
    return found


class Attempts:
    """The program, from a test's side."""

    def __init__(self, process: subprocess.Popen[str], options: dict[str, str]) -> None:
        self._process = process
        self._options = options

    def __call__(self, batch: int, partition: int, dies_at: str = "") -> dict[str, Any]:
        asked = {
            "options": self._options,
            "query": "a-query",
            "batch": batch,
            "partition": partition,
            "dies_at": dies_at,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def attempts(options: dict[str, str]) -> Iterator[Attempts]:
    """Attempts at tasks of a sink with these options."""
    roots = os.pathsep.join(str(ROOT / top) for top in PYTHON_ROOTS)
    with subprocess.Popen(
        [sys.executable, "-m", "harness.spark_tasks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": roots},
        text=True,
    ) as process:
        try:
            yield Attempts(process, options)
        finally:
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(attempt(json.loads(line))) + "\n")
        sys.stdout.flush()
