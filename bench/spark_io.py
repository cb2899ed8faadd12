"""What Spark reads from and writes to a cluster a second, and what a row costs whom.

Format tidelog, the official connector of the JVM, and confluent-kafka in Python, in turn, with
one session and one cluster. A process that is not Spark's JVM or a broker is a Python worker.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Cluster, dying_with_us, environment, running
from measuring import (
    CPUS,
    Arguments,
    Figures,
    busy_s,
    middle,
    report,
    thread_cpu_s,
    tree,
    versions,
    wait_quiet,
)

PARTITIONS = 4
STREAM_ROWS = 60_000
"""More than a stream takes until it is stopped."""
STREAM_PARTS = ("addBatch", "walCommit", "commitOffsets", "queryPlanning", "latestOffset")
_MILLION = 1e6
_EXACTLY_ONCE = {"tidelog.delivery": "exactly-once", "tidelog.sink.onMissingMarker": "write"}
GOALS = {
    "read_by_connectors": 1.0,
    "read_by_confluents": 1.6,
    "write_by_connectors": 1.0,
    "write_by_confluents": 1.5,
    "exactly_once_by_plain": 0.85,
    "batch_over_rate_s": 0.15,
}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["spark_io.py", "spark_io.py --jars FOLDER --rows 1000000"])
    asked.add_argument("--rows", type=int, default=5_000_000, help="of a batch (5000000)")
    asked.add_argument("--size", type=int, default=100, help="bytes of a value (100)")
    asked.add_argument("--master", default="local[2]", help="of Spark (local[2])")
    asked.add_argument("--small", type=int, default=100_000, help="rows, exactly once (100000)")
    asked.add_argument("--brokers", type=int, default=1)
    asked.add_argument("--only", default="", help="sides to measure, by comma (all)")
    asked.add_argument(
        "--jars", type=Path, metavar="FOLDER", help="with the connector's jars; else it is left out"
    )
    return asked


class Session:
    """spark_job.py, from outside."""

    def __init__(self, process: "subprocess.Popen[str]", cluster: Cluster) -> None:
        self._process = process
        self._cluster = cluster

    def ask(self, asked: dict[str, Any]) -> Any:  # noqa: ANN401 -- whatever the job answers
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:  # noqa: ANN401 -- as above
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the session of Spark has ended: see above")
        return json.loads(line)

    def measured(self, rows: int, asked: dict[str, Any]) -> Figures:
        """One job's wall rate, and processor seconds by the million rows, by who spent them."""
        before, busy, began = self._cpu(), busy_s(), time.monotonic()
        wall_s = self.ask(asked)
        whole_s, busy = time.monotonic() - began, busy_s() - busy
        spent = {name: _spent(before[name], after) for name, after in self._cpu().items()}
        return {
            "wall_s": round(wall_s, 3),
            "rows_per_s": round(rows / wall_s),
            "rows_per_cpu_s": round(rows / max(0.001, sum(spent.values()))),
            **{f"{name}_s": round(value * _MILLION / rows, 3) for name, value in spent.items()},
            "other_share": round(max(0.0, busy - sum(spent.values())) / (whole_s * CPUS), 3),
        }

    def _cpu(self) -> dict[str, dict[int, float]]:
        brokers = tree(self._cluster.pids)
        spark = tree([self._process.pid]) - brokers
        jvm = {pid for pid in spark if _name(pid) == "java"}
        parts = {"jvm": jvm, "python": spark - jvm, "broker": brokers}
        return {name: thread_cpu_s(pids) for name, pids in parts.items()}


def _spent(before: dict[int, float], after: dict[int, float]) -> float:
    """By the threads that are left: Spark ends Python workers that have long been idle."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@contextlib.contextmanager
def spark(asked: argparse.Namespace, cluster: Cluster) -> Iterator[Session]:
    """A session that is ready."""
    jars = sorted(asked.jars.glob("*.jar")) if asked.jars else []
    given = {
        "bootstrap": cluster.bootstrap,
        "master": asked.master,
        "size": asked.size,
        "jars": ",".join(map(str, jars)),
    }
    here = Path(__file__).parent
    paths = [str(here), *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        dying_with_us([sys.executable, str(here / "spark_job.py"), json.dumps(given)]),
        env={**environment(), "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        session = Session(process, cluster)
        session.answer()
        yield session
        assert process.stdin is not None
        process.stdin.close()


def make_topic(cluster: Cluster, name: str, partitions: int = PARTITIONS) -> str:
    copies = min(3, len(cluster.bootstrap.split(",")))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, copies)])[name].result(30)
    return name


def drop_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([name])[name].result(30)


Job = tuple[int, dict[str, Any]]
"""How many rows, and what is asked for."""


def jobs_of(asked: argparse.Namespace, filled: str) -> dict[str, Job]:
    """By side; `None` for a topic is a new one."""
    rows, small = asked.rows, asked.small
    memory = json.dumps([rows, asked.size, PARTITIONS])
    from_start = {"startingOffsets": "earliest"}
    found: dict[str, Job] = {
        "read_memory": (rows, {"do": "read", "format": "memory", "topic": memory}),
        "read_tidelog": (rows, {"do": "read", "format": "tidelog", "topic": filled, **from_start}),
        "read_connector": (rows, {"do": "read", "format": "kafka", "topic": filled, **from_start}),
        "read_confluent": (rows, {"do": "read", "format": "confluent", "topic": filled}),
        "write_noop": (rows, {"do": "write", "format": "noop", "rows": rows}),
        "write_memory": (rows, {"do": "write", "format": "memory", "rows": rows}),
        "write_tidelog": (rows, {"do": "write", "format": "tidelog", "rows": rows}),
        "write_connector": (rows, {"do": "write", "format": "kafka", "rows": rows}),
        "write_confluent": (rows, {"do": "foreach", "rows": rows}),
        "small_plain": (small, {"do": "write", "format": "tidelog", "rows": small}),
        "small_exactly_once": (small, {"do": "write", "format": "tidelog", "rows": small}),
    }
    chosen = [one for one in asked.only.split(",") if one]
    return {
        name: job
        for name, job in found.items()
        if (asked.jars or not name.endswith("_connector"))
        and (not chosen or any(name.startswith(one) for one in chosen))
    }


class Round:
    """All sides once, in turn, each job into a topic of its own that is gone after it."""

    def __init__(self, session: Session, cluster: Cluster, jobs: dict[str, Job]) -> None:
        self._session = session
        self._cluster = cluster
        self._jobs = jobs
        self._made = 0

    def run(self, name: str, *, rows: int | None = None) -> Figures:
        count, job = self._jobs[name]
        job = {**job}
        if name == "small_exactly_once":
            job |= {**_EXACTLY_ONCE, "tidelog.job.id": f"job-{self._made}"}
        if job["do"] == "read":
            return self._session.measured(count, job)
        if rows is not None:
            count, job["rows"] = rows, rows
        self._made += 1
        topic = make_topic(self._cluster, f"spark-io-{self._made}")
        try:
            return self._session.measured(count, {**job, "topic": topic})
        finally:
            drop_topic(self._cluster, topic)

    def all(self) -> dict[str, Figures]:
        return {name: self.run(name) for name in self._jobs}


def micro_batches(session: Session, cluster: Cluster) -> Figures:
    """One after the other, in the same minute; topics with as many partitions as Spark's own
    source has, and with one task for both of them."""
    topic = make_topic(cluster, "spark-io-stream", partitions=2)
    make_topic(cluster, f"{topic}-out", partitions=2)
    session.ask({"do": "write", "format": "tidelog", "topic": topic, "rows": STREAM_ROWS})
    one_task = {"tidelog.minOffsetsPerTask": str(STREAM_ROWS)}
    found = {
        "rate_batch": session.ask({"do": "stream", "topic": ""}),
        "our_batch": session.ask({"do": "stream", "topic": topic}),
        "one_task_batch": session.ask({"do": "stream", "topic": topic, **one_task}),
    }
    took = {name: (middle(each, "triggerExecution", 0) or 0) for name, each in found.items()}
    parts = {f"our_{part}_ms": middle(found["our_batch"], part, 0) for part in STREAM_PARTS}
    return {
        **{f"{name}_s": value / 1000 for name, value in took.items()},
        "batch_over_rate_s": round((took["our_batch"] - took["rate_batch"]) / 1000, 3),
        **parts,
    }


def ratios(figures: Figures) -> Figures:
    """Of wall rates, ours by theirs."""
    pairs = {
        "read_by_connectors": ("read_tidelog", "read_connector"),
        "read_by_confluents": ("read_tidelog", "read_confluent"),
        "write_by_connectors": ("write_tidelog", "write_connector"),
        "write_by_confluents": ("write_tidelog", "write_confluent"),
        "exactly_once_by_plain": ("small_exactly_once", "small_plain"),
    }
    return {
        name: round(figures[ours]["rows_per_s"] / figures[theirs]["rows_per_s"], 3)
        for name, (ours, theirs) in pairs.items()
        if ours in figures and theirs in figures
    }


def medians(runs: Sequence[dict[str, Figures]]) -> Figures:
    return {
        name: {key: middle([run[name] for run in runs], key) for key in runs[0][name]}
        for name in runs[0]
    }


def _streams(asked: argparse.Namespace) -> bool:
    return not asked.only or "stream" in asked.only.split(",")


def run(asked: argparse.Namespace) -> None:
    with running(brokers=asked.brokers) as cluster, spark(asked, cluster) as session:
        filled = make_topic(cluster, "spark-io-filled")
        session.ask({"do": "write", "format": "tidelog", "topic": filled, "rows": asked.rows})
        jobs = jobs_of(asked, filled)
        turn = Round(session, cluster, jobs)
        for name in jobs:
            turn.run(name, rows=asked.small)
        rounds = []
        for _ in range(asked.runs):
            wait_quiet(asked.quiet_wait, known=cluster.pids)
            rounds.append(turn.all())
            print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
        streams = micro_batches(session, cluster) if _streams(asked) else {}
    figures = medians(rounds)
    runs = [
        {
            "noisy": max((side["other_share"] for side in one.values()), default=0.0) > asked.noise,
            **one,
        }
        for one in rounds
    ]
    settings = {
        name: getattr(asked, name) for name in ("rows", "size", "small", "master", "brokers")
    }
    settings |= {"versions": versions("pyspark", "pyarrow", "numpy", "confluent-kafka")}
    found = {**figures, **ratios(figures), **streams, "goals": GOALS}
    report("spark_io", settings, found, runs)


if __name__ == "__main__":
    run(parser().parse_args())
