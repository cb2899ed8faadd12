"""Tasks and drivers of an exactly-once sink as processes of their own, which die at the points they
are told.

Run as a program it takes one attempt a line, as JSON, and answers with what became of it. It forks
for each: an attempt is a process without the second that a start of Python takes.
"""

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.spark.plain import batch_of
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT
from tidelog.spark.connections import client_of
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.options import Mode, sink_options
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.tasks import Point, Reached, TaskInfo, Written

ROWS = 25
"""Of each task."""
QUERY = "a-query"


def values_of(batch: int, partition: int) -> list[bytes]:
    """What a task writes, whenever it is done."""
    return [b"%d/%d/%d" % (batch, partition, n) for n in range(ROWS)]


def _mortal(dies_at: str) -> Reached:
    def reached(point: Point, _batch: int, _partition: int) -> None:
        if point.value == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def write_task(options: dict[str, str], task: TaskInfo, dies_at: str = "") -> dict[str, Any]:
    """One attempt in this process, which may not live through it."""
    chosen = sink_options(options, Mode.STREAM)
    sink = Sink.of(chosen, task.query)
    writer = Writer(client_of(chosen.connection), chosen, sink, reached=_mortal(dies_at))
    values = values_of(task.batch, task.partition)
    rows = [batch_of(values[:10]), batch_of(values[10:])]
    done = writer.write(task, rows)
    return {"rows": done.rows, "skipped": done.skipped, "message": _packed(done)}


def finish(
    options: dict[str, str], batch: Batch, messages: Sequence[Written], dies_at: str
) -> dict[str, Any]:
    """The driver's part, in this process."""
    chosen = sink_options(options, Mode.STREAM)
    sink = Sink.of(chosen, batch.query)
    client = client_of(chosen.connection)
    Committer(client, chosen, sink, reached=_mortal(dies_at)).finish(batch, messages)
    return {"finished": batch.number}


def write_whole(options: dict[str, str], batch: Batch, dies_at: str) -> dict[str, Any]:
    """The driver of exactly-once-atomic, in this process; the rows of two tasks."""
    chosen = sink_options(options, Mode.STREAM)
    sink = Sink.of(chosen, batch.query)
    committer = Committer(client_of(chosen.connection), chosen, sink, reached=_mortal(dies_at))
    rows = [batch_of(values_of(batch.number, number)) for number in (0, 1)]
    return {"rows": committer.write_whole(batch, rows, 2).rows}


def _packed(message: Written) -> str:
    """As Spark takes it from a task to the driver."""
    return base64.b64encode(pickle.dumps(message)).decode()


def _unpacked(text: str) -> Written:
    found: Written = pickle.loads(base64.b64decode(text))  # noqa: S301 -- our own
    return found


def attempt(asked: dict[str, Any]) -> dict[str, Any]:
    """In a child: its answer, or the signal that ended it."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = _attempt(asked)
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


def _attempt(asked: dict[str, Any]) -> dict[str, Any]:
    query, number, dies_at = asked["query"], asked["batch"], asked["dies_at"]
    if "messages" in asked:
        messages = [_unpacked(one) for one in asked["messages"]]
        return finish(asked["options"], Batch(query, number), messages, dies_at)
    if "partition" in asked:
        task = TaskInfo(query, number, asked["partition"])
        return write_task(asked["options"], task, dies_at)
    return write_whole(asked["options"], Batch(query, number), dies_at)


class Attempts:
    """The program, from a test's side."""

    def __init__(self, process: subprocess.Popen[str], options: dict[str, str], query: str) -> None:
        self._process = process
        self._asked = {"options": options, "query": query}
        self.messages: dict[int, str] = {}
        """The last one of each task."""

    def task(self, batch: int, partition: int, dies_at: str = "") -> dict[str, Any]:
        """An attempt at a task."""
        said = self._ask(batch=batch, partition=partition, dies_at=dies_at)
        if "message" in said:
            self.messages[partition] = said.pop("message")
        return said

    def finish(self, batch: int, dies_at: str = "") -> dict[str, Any]:
        """By a driver that has the last message of each task."""
        messages = [text for _, text in sorted(self.messages.items())]
        return self._ask(batch=batch, messages=messages, dies_at=dies_at)

    def whole(self, batch: int, dies_at: str = "") -> dict[str, Any]:
        """By the driver of exactly-once-atomic."""
        return self._ask(batch=batch, dies_at=dies_at)

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**self._asked, **asked}) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def attempts(options: dict[str, str], query: str = QUERY) -> Iterator[Attempts]:
    """Attempts at tasks of a sink with these options."""
    roots = os.pathsep.join(str(ROOT / top) for top in PYTHON_ROOTS)
    with subprocess.Popen(
        [sys.executable, "-m", "harness.spark.tasks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": roots},
        text=True,
    ) as process:
        try:
            yield Attempts(process, options, query)
        finally:
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(attempt(json.loads(line))) + "\n")
        sys.stdout.flush()
