"""How soon new partitions are known to every broker, and led again when their leader is killed.

A partition is known when the metadata of every broker names its leader. The leader that is killed
leads all partitions of a topic; each of them is led again when all others name another leader, and
written to again when it acknowledged a record by all replicas in sync.
"""

import argparse
import itertools
import os
import signal
import statistics
import time

from cluster_wide import REPLICAS_MAX, Views
from clusters import Cluster, running
from many_partitions import write_each
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from raw_client import RawClient
from workloads import drop_topic

GOALS = {"create_one_ms": 15, "create_many_s": 0.25, "led_again_s": 1.0}
_NAMES = (
    "create_one_ms",
    "create_one_max_ms",
    "create_many_s",
    "led_again_s",
    "written_again_s",
    "in_sync_again_s",
)
_PER_REQUEST = 500
_VICTIM = 0


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["creation.py", "creation.py --partitions 10000 --runs 1"])
    asked.add_argument("--brokers", type=int, default=3, help="two at least (3)")
    asked.add_argument("--partitions", type=int, default=1_000, help="of the large topics (1000)")
    asked.add_argument(
        "--times", type=int, default=20, help="topics of one partition each run (20)"
    )
    return asked


def creation_run(cluster: Cluster, *, partitions: int, times: int, replication: int) -> Figures:
    """So many topics of one partition, one after the other, and one topic of many."""
    names = [f"made-{time.time_ns()}-{number}" for number in range(times + 1)]
    meter = Meter(cluster.pids)
    with Views(cluster.bootstrap.split(",")) as views:
        took = [
            _created(views, name, partitions if name == names[-1] else 1, replication)
            for name in names
        ]
    other = meter.stop()["other_share"]
    for name in names:
        drop_topic(cluster.bootstrap, name)
    return {
        "create_one_ms": round(1000 * statistics.median(took[:-1]), 2),
        "create_one_max_ms": round(1000 * max(took[:-1]), 2),
        "create_many_s": round(took[-1], 3),
        "other_share": other,
    }


def _created(views: Views, name: str, partitions: int, replication: int) -> float:
    began = time.monotonic()
    views.create(name, partitions, replication=replication)
    views.wait_led(name, partitions)
    return time.monotonic() - began


def led_again_run(cluster: Cluster, topic: str, *, partitions: int, replication: int) -> Figures:
    """A topic that one broker leads alone loses it by SIGKILL; then that one comes back."""
    addresses = cluster.bootstrap.split(",")
    with Views(addresses) as views:
        views.create(topic, partitions, first=range(replication))
        views.wait_led(topic, partitions)
    with RawClient(addresses[_VICTIM]) as client:
        _write_all(client, topic, range(partitions))
    pid = cluster.pid_of(_VICTIM)
    with Views(address for at, address in enumerate(addresses) if at != _VICTIM) as views:
        meter, killed = Meter(cluster.pids), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        views.wait_led(topic, partitions, but_by=_VICTIM)
        led = time.monotonic() - killed
        _write_to_leaders(addresses[-1], topic)
        written = time.monotonic() - killed
        other = meter.stop()["other_share"]
        back = time.monotonic()
        cluster.start_again(_VICTIM)
        complete = views.wait_in_sync(topic, partitions, replication)
        in_sync = time.monotonic() - back
    drop_topic(cluster.bootstrap, topic)
    return {
        "led_again_s": round(led, 3),
        "written_again_s": round(written, 3),
        "in_sync_again_s": round(in_sync, 3) if complete else None,
        "other_share": other,
    }


def _write_to_leaders(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap) as client:
        leaders = sorted(client.leaders(topic).items(), key=lambda row: (row[1], row[0]))
    for address, led in itertools.groupby(leaders, key=lambda row: row[1]):
        with RawClient(address) as leader:
            _write_all(leader, topic, [partition for partition, _ in led])


def _write_all(client: RawClient, topic: str, partitions: range | list[int]) -> None:
    for first in range(0, len(partitions), _PER_REQUEST):
        write_each(client, topic, partitions[first : first + _PER_REQUEST])


def run(asked: argparse.Namespace) -> None:
    replication = min(REPLICAS_MAX, asked.brokers)
    numbers = itertools.count()
    with running(brokers=asked.brokers) as cluster:

        def one() -> Figures:
            many = {"partitions": asked.partitions, "replication": replication}
            made = creation_run(cluster, times=asked.times, **many)
            led = led_again_run(cluster, f"led-{next(numbers)}", **many)
            return made | led | {"other_share": max(made["other_share"], led["other_share"])}

        runs = repeat(asked, one)
    settings = {
        "brokers": asked.brokers,
        "replication": replication,
        "partitions": asked.partitions,
        "times": asked.times,
        "versions": versions("uvloop", "pyzmq"),
    }
    figures = {name: middle(runs, name) for name in _NAMES}
    report("creation", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
