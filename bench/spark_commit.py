"""How long Spark's driver takes to commit a micro-batch: it ends the transactions of all tasks.

No Spark is started: this program writes what tasks would write, and then does the driver's part.
`commit` is all of that part: it takes the sink over, reads its marker, notes that it is about to
end transactions, ends them, and notes that the micro-batch is complete. `ends` is only the ends.
"""

import argparse
import time
from typing import Any

import pyarrow as pa

from clusters import running
from measuring import Arguments, Figures, cpu_s, middle, percentile, report, versions, wait_quiet
from tidelog.spark.connections import client_of
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.options import Mode, SinkOptions, sink_options
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.tasks import Point, TaskInfo
from workloads import make_topic

_QUERY = "bench"
_TOPIC = "spark-commit"
_ROWS = 100
_WARM_UP = 5
"""Micro-batches that are not measured."""
GOALS = {"commit_ms": 15.0}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["spark_commit.py", "spark_commit.py --tasks 64"])
    asked.add_argument("--tasks", type=int, default=8, help="transactions of a micro-batch (8)")
    asked.add_argument("--batches", type=int, default=50, help="micro-batches of a run (50)")
    asked.add_argument("--brokers", type=int, default=3)
    return asked


class Driver:
    """Writes one micro-batch after the other, and measures how each is committed."""

    def __init__(self, options: SinkOptions, tasks: int) -> None:
        self._options, self._tasks = options, tasks
        self._sink = Sink.of(options, _QUERY)
        self._client = client_of(options.connection)
        self._rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 100] * _ROWS)})
        self._at: dict[Point, float] = {}

    def batch(self, number: int) -> Figures:
        writer = Writer(self._client, self._options, self._sink)
        written = [
            writer.write(TaskInfo(_QUERY, number, task, 0), [self._rows])
            for task in range(self._tasks)
        ]
        committer = Committer(self._client, self._options, self._sink, reached=self._reached)
        began, spent = time.monotonic(), time.process_time()
        committer.finish(Batch(_QUERY, number, None), written)
        ended, spent = time.monotonic(), time.process_time() - spent
        return {
            "commit_ms": round((ended - began) * 1_000, 2),
            "ends_ms": round((self._at[Point.ENDED] - self._at[Point.ENDING]) * 1_000, 2),
            "driver_cpu_ms": round(spent * 1_000, 2),
        }

    def _reached(self, point: Point, _batch: int, _part: int) -> None:
        self._at[point] = time.monotonic()


def measured(driver: Driver, first: int, asked: argparse.Namespace, pids: list[int]) -> Figures:
    """One run."""
    spent = cpu_s(pids)
    found = [driver.batch(first + number) for number in range(asked.batches)]
    spent = (cpu_s(pids) - spent) * 1_000 / asked.batches
    times = sorted(one["commit_ms"] for one in found)
    return {
        **{name: middle(found, name) for name in found[0]},
        "commit_min_ms": times[0],
        "commit_p90_ms": round(percentile(times, 0.9), 2),
        "brokers_cpu_ms_with_tasks": round(spent, 2),
    }


def run(asked: argparse.Namespace) -> None:
    with running(brokers=asked.brokers) as cluster:
        make_topic(cluster.bootstrap, _TOPIC, asked.tasks)
        given: dict[str, Any] = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "topic": _TOPIC,
            "tidelog.delivery": "exactly-once",
        }
        driver = Driver(sink_options(given, Mode.STREAM), asked.tasks)
        for number in range(_WARM_UP):
            driver.batch(number)
        runs = []
        for number in range(asked.runs):
            wait_quiet(asked.quiet_wait, known=cluster.pids)
            runs.append(measured(driver, _WARM_UP + number * asked.batches, asked, cluster.pids))
    settings = {name: getattr(asked, name) for name in ("tasks", "batches", "brokers")}
    settings |= {"versions": versions("pyarrow", "numpy")}
    found = {name: middle(runs, name) for name in runs[0]}
    report("spark_commit", settings, {**found, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
