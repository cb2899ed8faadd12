"""How long from `tidelog up` to the first acknowledged record, and what an idle cluster costs."""

import argparse
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from clusters import Tidelog
from measuring import Arguments, Figures, Meter, cpu_s, middle, pss_mb, repeat, report, versions
from raw_client import RawClient

_PATIENCE_S = 60.0
_NAMES = (
    "first_ack_s",
    "start_cpu_s",
    "first_ack_confluent_s",
    "idle_pss_mb",
    "idle_cpu_percent",
    "stop_s",
)
GOALS = {"first_ack_s": 0.35, "idle_pss_mb": 60, "idle_cpu_percent": 1, "stop_s": 0.5}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["startup.py", "startup.py --runs 9 --idle 0"], runs=5)
    asked.add_argument("--idle", type=float, default=15.0, metavar="S", help="seconds idle (15)")
    return asked


def by_raw_client(cluster: Any) -> None:  # noqa: ANN401 -- a Cluster
    with RawClient(cluster.bootstrap, while_refused=cluster.check_alive) as client:
        client.create_topic("first", 1)
        client.produce_once("first", b"hello")


def by_confluent(cluster: Any) -> None:  # noqa: ANN401 -- a Cluster
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


def one(idle_s: float) -> Figures:
    meter = Meter([])
    cluster = Tidelog()
    try:
        by_raw_client(cluster)
        first = time.monotonic() - cluster.launched
        start_cpu = cpu_s(cluster.pids)
        other = meter.stop()["other_share"]
        idle = _idle(cluster, idle_s) if idle_s else {}
    finally:
        stop = cluster.stop()
    cluster = Tidelog()
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


def _idle(cluster: Tidelog, seconds: float) -> Figures:
    time.sleep(seconds / 3)
    memory = pss_mb(cluster.pids)
    began, spent = time.monotonic(), cpu_s(cluster.pids)
    time.sleep(seconds)
    spent = cpu_s(cluster.pids) - spent
    return {
        "idle_pss_mb": memory["all"],
        "idle_pss_mb_each": memory,
        "idle_cpu_percent": round(100 * spent / (time.monotonic() - began), 2),
    }


def run(asked: argparse.Namespace) -> None:
    by_raw_client(warm := Tidelog())  # compiles the modules, fills the page cache
    warm.stop()
    runs = repeat(asked, lambda: one(asked.idle))
    figures = {name: middle(runs, name) for name in _NAMES}
    settings = {"brokers": 1, "idle_s": asked.idle, "librdkafka": confluent_kafka.libversion()[0]}
    settings["versions"] = versions("confluent-kafka", "uvloop", "pyzmq")
    report("startup", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
