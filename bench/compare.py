"""tidelog beside Apache Kafka, one node each: the same client, the same machine, in turn.

Kafka's jars come from Maven Central at the first run (needs java and mvn). What is published is the
ratio; the figures behind it are this machine's.
"""

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka

from clusters import KAFKA_HEAP, KAFKA_VERSION, Kafka, Tidelog, fetch_kafka
from measuring import (
    Arguments,
    Figures,
    Meter,
    cpu_s,
    middle,
    pss_mb,
    report,
    versions,
    wait_quiet,
    warm_memory,
)
from raw_client import RawClient
from workloads import (
    PARTITIONS,
    PRODUCE_MEMORY_BYTES,
    PRODUCER,
    TUNED_CONSUMER,
    consume_run,
    fill,
    produce_run,
)

Pair = tuple[Tidelog, Kafka]
_QUESTIONS: Final = ("startup", "produce", "consume")
_NAMES: Final = {
    "startup": ("first_ack_s", "start_cpu_s", "idle_pss_mb", "stop_s"),
    "produce": ("mb_per_s", "brokers_cpu_s_per_gb", "client_cpu_s_per_gb"),
    "consume": ("mb_per_s", "brokers_cpu_s_per_gb", "client_cpu_s_per_gb"),
}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["compare.py", "compare.py --only produce --size 100 --warm 60"]
    )
    asked.add_argument("--only", choices=_QUESTIONS, help="one question instead of all")
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--seconds", type=float, default=8.0, help="of each produce run (8)")
    asked.add_argument("--records", type=int, default=1_000_000, help="to consume (1000000)")
    asked.add_argument("--warm", type=float, default=20.0, help="seconds both warm up (20)")
    asked.add_argument(
        "--jars",
        type=Path,
        default=Path.home() / ".cache" / "tidelog-bench" / f"kafka-{KAFKA_VERSION}",
        help="where Kafka's jars are, or go",
    )
    return asked


@contextlib.contextmanager
def both(jars: Path) -> Iterator[Pair]:
    """One node of each, taking clients."""
    with contextlib.ExitStack() as undo:
        kafka = Kafka(jars)
        undo.callback(kafka.stop)
        tidelog = Tidelog()
        undo.callback(tidelog.stop)
        tidelog.wait_ready()
        kafka.wait_ready()
        yield tidelog, kafka


def start_once(jars: Path | None) -> Figures:
    """From the launch to the first acknowledged record, then memory, then a clean stop."""
    meter = Meter([])
    cluster = Tidelog() if jars is None else Kafka(jars)
    try:
        client = RawClient(cluster.bootstrap, while_refused=cluster.check_alive)
        client.create_topic("first", 1)
        client.produce_once("first", b"hello")
        first = time.monotonic() - cluster.launched
        start_cpu, other = cpu_s([cluster.pid]), meter.stop()["other_share"]
        client.close()
        time.sleep(3)
        memory = pss_mb([cluster.pid])["all"]
    finally:
        stop = cluster.stop()
    return {
        "first_ack_s": round(first, 3),
        "start_cpu_s": round(start_cpu, 3),
        "idle_pss_mb": memory,
        "stop_s": round(stop, 3),
        "other_share": other,
    }


def startup(asked: argparse.Namespace) -> dict[str, list[Figures]]:
    runs: dict[str, list[Figures]] = {"tidelog": [], "kafka": []}
    for _ in range(asked.runs):
        for name, jars in (("tidelog", None), ("kafka", asked.jars)):
            wait_quiet(asked.quiet_wait)
            runs[name].append(start_once(jars))
    return runs


def produce(asked: argparse.Namespace, pair: Pair) -> dict[str, list[Figures]]:
    runs: dict[str, list[Figures]] = {"tidelog": [], "kafka": []}
    for cluster in pair:
        produce_run(cluster, size=asked.size, compression="none", seconds=asked.warm)
    for _ in range(asked.runs):
        for cluster in pair:
            wait_quiet(asked.quiet_wait)
            warm_memory(PRODUCE_MEMORY_BYTES)
            runs[cluster.name].append(
                produce_run(cluster, size=asked.size, compression="none", seconds=asked.seconds)
            )
    return runs


def consume(asked: argparse.Namespace, pair: Pair) -> dict[str, list[Figures]]:
    runs: dict[str, list[Figures]] = {"tidelog": [], "kafka": []}
    for cluster in pair:
        fill(cluster.bootstrap, "consume", size=asked.size, records=asked.records)
        consume_run(cluster, "consume", size=asked.size, records=asked.records)
    for _ in range(asked.runs):
        for cluster in pair:
            wait_quiet(asked.quiet_wait)
            runs[cluster.name].append(
                consume_run(cluster, "consume", size=asked.size, records=asked.records)
            )
    return runs


def side_by_side(question: str, runs: dict[str, list[Figures]], noise: float) -> Figures:
    """Medians of both, and tidelog's by Kafka's."""
    for run in (*runs["tidelog"], *runs["kafka"]):
        run["noisy"] = run["other_share"] > noise
    ours = {name: middle(runs["tidelog"], name) for name in _NAMES[question]}
    theirs = {name: middle(runs["kafka"], name) for name in _NAMES[question]}
    return {
        "tidelog": ours,
        "kafka": theirs,
        "tidelog_by_kafka": {name: ratio(ours[name], theirs[name]) for name in ours},
        "runs": runs,
    }


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Three digits; None where there is nothing to divide by."""
    return float(f"{ours / theirs:.3g}") if ours is not None and theirs else None


def run(asked: argparse.Namespace) -> None:
    fetch_kafka(asked.jars)
    questions = [asked.only] if asked.only else list(_QUESTIONS)
    found: dict[str, dict[str, list[Figures]]] = {}
    if "startup" in questions:
        found["startup"] = startup(asked)
    if {"produce", "consume"} & set(questions):
        with both(asked.jars) as pair:
            if "produce" in questions:
                found["produce"] = produce(asked, pair)
            if "consume" in questions:
                found["consume"] = consume(asked, pair)
    settings = {
        "kafka": {"version": KAFKA_VERSION, "heap": KAFKA_HEAP, "nodes": 1, "else": "defaults"},
        "tidelog": {"brokers": 1, "else": "defaults"},
        "producer": PRODUCER,
        "consumer": TUNED_CONSUMER,
        "partitions": PARTITIONS,
        "size": asked.size,
        "warm_s": asked.warm,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    sides = {name: side_by_side(name, runs, asked.noise) for name, runs in found.items()}
    every = [run for runs in found.values() for side in runs.values() for run in side]
    report("compare", settings, sides, [{"noisy": all(run["noisy"] for run in every)}])


if __name__ == "__main__":
    run(parser().parse_args())
