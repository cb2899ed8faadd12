"""How long from `tidelog up` to the first acknowledged record, and what an idle cluster costs."""

import argparse
import time

import confluent_kafka
from confluent_kafka import Producer

from cluster_wide import REPLICAS_MAX, first_record, idle_cost
from clusters import Cluster, Tidelog
from measuring import Arguments, Figures, Meter, cpu_s, middle, repeat, report, versions

_PATIENCE_S = 60.0
_NAMES = (
    "first_ack_s",
    "start_cpu_s",
    "first_ack_confluent_s",
    "idle_pss_mb",
    "idle_cpu_percent",
    "stop_s",
)
GOALS = {
    1: {"first_ack_s": 0.35, "idle_pss_mb": 60, "idle_cpu_percent": 1, "stop_s": 0.5},
    3: {
        "first_ack_s": 0.5,
        "start_cpu_s": 0.7,
        "idle_pss_mb": 120,
        "idle_cpu_percent": 2,
        "stop_s": 0.5,
    },
}
"""By the number of brokers."""


def parser() -> Arguments:
    examples = ["startup.py", "startup.py --brokers 3", "startup.py --runs 9 --idle 0"]
    asked = Arguments(str(__doc__), examples, runs=5)
    asked.add_argument("--brokers", type=int, default=1, help="(1); a topic has up to 3 replicas")
    asked.add_argument("--idle", type=float, default=15.0, metavar="S", help="seconds idle (15)")
    return asked


def by_confluent(cluster: Cluster) -> None:
    """With a client that looks for its broker every 20 ms, and a topic made by its first record."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    outcomes: list[object] = []
    producer.produce("first-of-confluent", b"hello", on_delivery=lambda e, _: outcomes.append(e))
    while not outcomes:
        producer.poll(_PATIENCE_S)
    assert outcomes == [None], outcomes


def one(idle_s: float, brokers: int) -> Figures:
    meter = Meter([])
    cluster = Tidelog(brokers=brokers)
    try:
        first = first_record(cluster, replication=min(REPLICAS_MAX, brokers))
        start_cpu = cpu_s(cluster.pids)
        other = meter.stop()["other_share"]
        idle = idle_cost(cluster, idle_s, settle=idle_s / 3) if idle_s else {}
    finally:
        stop = cluster.stop()
    cluster = Tidelog(brokers=brokers)
    try:
        by_confluent(cluster)
        first_confluent = time.monotonic() - cluster.launched
        cluster.wait_ready()
    finally:
        cluster.stop()
    return {
        "first_ack_s": round(first, 3),
        "start_cpu_s": round(start_cpu, 3),
        "first_ack_confluent_s": round(first_confluent, 3),
        **idle,
        "stop_s": round(stop, 3),
        "other_share": other,
    }


def run(asked: argparse.Namespace) -> None:
    warm = Tidelog(brokers=asked.brokers)
    first_record(warm)  # compiles the modules, fills the page cache
    warm.stop()
    runs = repeat(asked, lambda: one(asked.idle, asked.brokers))
    figures = {name: middle(runs, name) for name in _NAMES}
    settings = {
        "brokers": asked.brokers,
        "replication": min(REPLICAS_MAX, asked.brokers),
        "idle_s": asked.idle,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("startup", settings, {**figures, "goals": GOALS.get(asked.brokers, {})}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
