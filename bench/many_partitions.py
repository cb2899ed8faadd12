"""What partitions cost one broker: made, written, read, idle, stopped, started after stop and kill.

Every partition has two records. One line of JSON holds the figures for each number of partitions.
"""

import argparse
import contextlib
import os
import resource
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from clusters import Tidelog
from measuring import (
    Arguments,
    Figures,
    Meter,
    cpu_s,
    curve,
    pss_mb,
    report,
    tree,
    versions,
)
from raw_client import FETCH_VERSION, PRODUCE_VERSION, RawClient, fetch_request, produce_request
from tidelog.wire.messages import k00_produce, k01_fetch, k19_create_topics
from tidelog.wire.records import Record, build_batch

_CREATE_VERSION = 5
_PER_REQUEST = 500
_PARTITIONS = (1, 10, 100, 1_000, 10_000)
_RECORDS_EACH = 2
_SETTLE_S = 6.0
"""The first checkpoint after a change is written within five seconds."""
GOALS = {"start_s": 3.0}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__),
        [
            "many_partitions.py",
            "many_partitions.py --partitions 10000 --in-one-topic",
            "many_partitions.py --partitions 10000 --descriptors 1024",
        ],
        runs=1,
    )
    asked.add_argument(
        "--partitions", type=int, nargs="+", default=_PARTITIONS, help="how many, point by point"
    )
    asked.add_argument(
        "--in-one-topic", action="store_true", help="instead of topics of up to 100 each"
    )
    asked.add_argument("--idle", type=float, default=20.0, metavar="S", help="seconds idle (20)")
    asked.add_argument(
        "--descriptors", type=int, metavar="N", help="limit of open files of each process"
    )
    return asked


class Topics:
    """So many partitions, and how a client writes and reads them all."""

    def __init__(self, partitions: int, *, in_one: bool) -> None:
        each = partitions if in_one else min(partitions, 100)
        self.rows = [
            (f"many-{number}", min(each, partitions - number * each))
            for number in range(-(-partitions // each))
        ]

    def create(self, client: RawClient) -> None:
        topics = [
            k19_create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in self.rows
        ]
        request = k19_create_topics.CreateTopicsRequest(topics=topics)
        answer = client.ask(k19_create_topics.API, _CREATE_VERSION, request)
        refused = [row.error_message for row in answer.topics if row.error_code]
        if refused:
            raise SystemExit(f"the broker refuses: {refused[0]}")

    def _ranges(self) -> Iterator[tuple[str, range]]:
        for name, count in self.rows:
            for first in range(0, count, _PER_REQUEST):
                yield name, range(first, min(count, first + _PER_REQUEST))

    def write(self, client: RawClient) -> None:
        """One record into each."""
        for name, partitions in self._ranges():
            write_each(client, name, partitions)

    def read(self, client: RawClient) -> None:
        """All records of each, from its first on."""
        for name, partitions in self._ranges():
            offsets = dict.fromkeys(partitions, 0)
            request = fetch_request(name, offsets, partition_bytes=1 << 20)
            answer = client.ask(k01_fetch.API, FETCH_VERSION, request)
            rows = answer.responses[0].partitions
            ends = {row.partition_index: row.high_watermark for row in rows if row.records}
            assert ends == dict.fromkeys(partitions, _RECORDS_EACH), "records are missing"


def write_each(client: RawClient, name: str, partitions: Iterable[int]) -> None:
    """One record into each, all in one request to the broker that leads them."""
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(100), ())])
    data = [produce_request(name, one, batch).topic_data[0] for one in partitions]
    data[0].partition_data = [row.partition_data[0] for row in data]
    request = k00_produce.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data[:1])
    client.until_done(partial(_produce, client, request))


def _produce(client: RawClient, request: k00_produce.ProduceRequest) -> int:
    answer = client.ask(k00_produce.API, PRODUCE_VERSION, request)
    code: int = max(row.error_code for row in answer.responses[0].partition_responses)
    return code


class Step:
    """Seconds of wall time, and processor seconds of the cluster, by partition."""

    def __init__(self, cluster: Tidelog, partitions: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self.figures: Figures = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began, spent = time.monotonic(), cpu_s(self._cluster.pids)
        yield
        wall, cpu = time.monotonic() - began, cpu_s(self._cluster.pids) - spent
        self.figures[f"{name}_s"] = round(wall, 3)
        self.figures[f"{name}_cpu_ms_each"] = round(1000 * cpu / self._partitions, 4)


def idle(cluster: Tidelog, seconds: float, name: str) -> Figures:
    """Of the broker alone: no other process knows more of a partition than its name.

    What others do is looked at here only: all else is too short, or writes what the kernel's own
    threads bring to the disk.
    """
    broker = broker_of(cluster)
    time.sleep(_SETTLE_S)
    memory = pss_mb(cluster.pids)
    meter, spent = Meter(cluster.pids), cpu_s([broker])
    time.sleep(seconds)
    spent, others = cpu_s([broker]) - spent, meter.stop()
    return {
        "other_share": others["other_share"],
        f"{name}_cpu_percent": round(100 * spent / others["wall_s"], 3),
        f"{name}_broker_mb": memory["tide-broker0"],
        f"{name}_all_mb": memory["all"],
    }


def broker_of(cluster: Tidelog) -> int:
    names = {pid: Path(f"/proc/{pid}/comm").read_text("ascii") for pid in tree(cluster.pids)}
    return next(pid for pid, name in names.items() if name.strip() == "tide-broker0")


def one(partitions: int, asked: argparse.Namespace) -> Figures:
    topics = Topics(partitions, in_one=asked.in_one_topic)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as folder:
        data = Path(folder) / "data"
        lives = (
            first_life(data, topics, partitions, asked.idle),
            second_life(data, topics, partitions, asked.idle),
            third_life(data, topics),
        )
    figures: Figures = {"partitions": partitions}
    for life in lives:
        shares = (figures.get("other_share", 0.0), life.get("other_share", 0.0))
        figures |= {**life, "other_share": max(shares)}
    return figures


@contextlib.contextmanager
def started(data: Path) -> Iterator[tuple[Tidelog, float]]:
    """A cluster on that folder, and how long it took; the caller ends it in the way it measures."""
    cluster = Tidelog(data=data)
    try:
        cluster.wait_ready()
        yield cluster, round(time.monotonic() - cluster.launched, 3)
    except BaseException:
        cluster.stop()
        raise


def first_life(data: Path, topics: Topics, partitions: int, idle_s: float) -> Figures:
    """The partitions are made, written twice, and read."""
    with started(data) as (cluster, _):
        step = Step(cluster, partitions)
        with RawClient(cluster.bootstrap) as client:
            with step("create"):
                topics.create(client)
            with step("first_write"):
                topics.write(client)
            with step("write"):
                topics.write(client)
            with step("read"):
                topics.read(client)
        open_files = len(list(Path(f"/proc/{broker_of(cluster)}/fd").iterdir()))
        after = idle(cluster, idle_s, "idle") if idle_s else {}
        stop_s = round(cluster.stop(), 3)
    return {**step.figures, "open_files": open_files, **after, "stop_s": stop_s}


def second_life(data: Path, topics: Topics, partitions: int, idle_s: float) -> Figures:
    """After a clean stop; at the end it is killed."""
    with started(data) as (cluster, start_s):
        start_cpu_s = round(cpu_s(cluster.pids), 3)
        before = idle(cluster, idle_s, "unused") if idle_s else {}
        step = Step(cluster, partitions)
        with RawClient(cluster.bootstrap) as client, step("first_read"):
            topics.read(client)
        for pid in tree(cluster.pids):
            os.kill(pid, signal.SIGKILL)
        cluster.stop()
    return {"start_s": start_s, "start_cpu_s": start_cpu_s, **before, **step.figures}


def third_life(data: Path, topics: Topics) -> Figures:
    """After kill -9."""
    with started(data) as (cluster, start_s):
        with RawClient(cluster.bootstrap) as client:
            topics.read(client)
        cluster.stop()
    return {"start_after_kill_s": start_s}


def run(asked: argparse.Namespace) -> None:
    if asked.descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (asked.descriptors, asked.descriptors))
    points, every = curve(asked, asked.partitions, one)
    settings = {
        "brokers": 1,
        "in_one_topic": asked.in_one_topic,
        "idle_s": asked.idle,
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "versions": versions("uvloop", "pyzmq"),
    }
    report("many_partitions", settings, {"points": points, "goals": GOALS}, every)


if __name__ == "__main__":
    run(parser().parse_args())
