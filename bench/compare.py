"""tidelog beside Apache Kafka: the same client programs, the same machine, in turn.

Prints a table of ratios. Kafka's jars come from Maven Central at the first run (needs java, mvn).
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka

from cluster_wide import REPLICAS_MAX, first_record, idle_cost
from clusters import SETTINGS, Cluster, Tidelog, ended_in_order
from comparison import (
    QUESTIONS,
    Found,
    Runs,
    Settings,
    asked_unless_told,
    read,
    side_by_side,
    table,
)
from creation import creation_run
from failover import one as failover_run
from kafka_cluster import JVM, KAFKA_HEAP, KAFKA_JARS, KAFKA_VERSION, Kafka, fetch_kafka
from measuring import (
    MB,
    Arguments,
    Figures,
    Meter,
    cpu_s,
    machine,
    pss_mb,
    versions,
    wait_quiet,
)
from pages import write_pages
from pipelines import open_pipelines, pump_run
from sides import Sides
from workloads import (
    PARTITIONS,
    PRODUCER,
    TUNED_CONSUMER,
    Load,
    Pace,
    consume_run,
    drop_topic,
    fill,
    latency_run,
    make_topic,
    produce_run,
)

_BATCH_BYTES: Final = {"large": 1_000_000, "small": 16_384}
_IN_FLIGHT: Final = 5
_PLACES: Final = {"--jars", "--json", "--pages"}
_PACED_TOPIC: Final = "paced"
_READ_TOPIC: Final = "read"
_SMALL_READ_TOPIC: Final = "read-100"
_SMALL_BYTES: Final = 100
_IDLE_S: Final = 2.0
_MANY_PARTITIONS: Final = 1_000
_TOPICS_CREATED: Final = 10
_RATE: Final = 200


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__),
        [
            "compare --brokers 1",
            "compare --only produce --only consume --size 100 --warm 60",
            "compare --brokers 3 --pages docs",
            "compare --from docs/comparison.json",
        ],
    )
    asked.add_argument("--brokers", type=int, default=1, help="of each side (1)")
    asked.add_argument("--replication", type=int, help="of each topic (the brokers, at most 3)")
    asked.add_argument("--acks", choices=["1", "all"], default="all", help="of producers (all)")
    asked.add_argument(
        "--only",
        action="append",
        choices=QUESTIONS,
        metavar="QUESTION",
        help=f"that one, and may be repeated: {', '.join(QUESTIONS)}\n"
        "(of one replica: those of one broker; of more: all but large and latency)",
    )
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument(
        "--seconds",
        type=float,
        default=4.0,
        help="of each run at most (4); of acknowledgements twice so long",
    )
    asked.add_argument(
        "--mb", type=int, default=2000, help="each run writes at most (2000); keep it cacheable"
    )
    asked.add_argument("--records", type=int, default=1_000_000, help="to consume (1000000)")
    asked.add_argument("--warm", type=float, default=15.0, help="seconds both warm up (15)")
    asked.add_argument(
        "--from", dest="stored", type=Path, metavar="FILE", help="measure nothing: show those"
    )
    asked.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked.add_argument("--pages", type=Path, metavar="DIR", help="write comparison.md, .svg, .json")
    asked.add_argument(
        "--jars",
        type=Path,
        default=KAFKA_JARS,
        help="where Kafka's jars are, or go",
    )
    return asked


class Bench:
    """Both clusters, what is asked of them, and what was found."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.replication = asked.replication or min(REPLICAS_MAX, asked.brokers)
        self.bytes_max = round(asked.mb * MB)
        self.found: dict[str, Runs] = {}
        launches = {name: partial(self.launch, name) for name in ("kafka", "tidelog")}
        self.sides = Sides(launches, asked.quiet_wait)

    def launch(self, name: str) -> Cluster:
        brokers = self.asked.brokers
        if name == "tidelog":
            return Tidelog(brokers=brokers)
        return Kafka(self.asked.jars, brokers=brokers, replication=self.replication)

    def in_turn(self, question: str, one: Callable[[Cluster], Figures], *, runs: int = 0) -> None:
        """One side after the other, each as often as asked."""
        self.found[question] = self.sides.in_turn(question, one, runs=runs or self.asked.runs)

    # -- the questions --------------------------------------------------------------------------

    def startup(self) -> None:
        found = self.found["startup"] = {"tidelog": [], "kafka": []}
        self._start_once("tidelog")  # from here on its files are cached, as Kafka's are
        for _ in range(self.asked.runs):
            for name, runs in found.items():
                wait_quiet(self.asked.quiet_wait)
                runs.append(self._start_once(name))

    def _start_once(self, name: str) -> Figures:
        """From the launch to the first acknowledged record, then memory, then a clean stop."""
        cluster = self.launch(name)
        meter = Meter(cluster.pids)
        try:
            first = first_record(cluster, replication=self.replication)
            start_cpu, other = cpu_s(cluster.pids), meter.stop()["other_share"]
            idle = idle_cost(cluster, _IDLE_S, settle=_IDLE_S)
        finally:
            stop = cluster.stop()
        return {
            "first_ack_s": round(first, 3),
            "start_cpu_s": round(start_cpu, 3),
            "idle_pss_mb": idle["idle_pss_mb"],
            "idle_cpu_percent": idle["idle_cpu_percent"],
            "stop_s": round(stop, 3),
            "other_share": other,
        }

    def warm_up(self, questions: set[str]) -> None:
        """By every client that will measure; Kafka's own code is compiled while it runs."""
        for cluster in self.sides.clusters:
            for question, warm in self._warming.items():
                if question in questions:
                    warm(cluster)

    @property
    def _warming(self) -> dict[str, Callable[[Cluster], object]]:
        """How each question's client warms a cluster up; what a question reads is written here."""
        seconds = self.asked.warm
        return {
            "produce": lambda cluster: produce_run(cluster, self._load(seconds)),
            "produce_lz4": lambda cluster: produce_run(cluster, self._lz4(seconds / 3)),
            "produce_100": lambda cluster: produce_run(cluster, self._small(seconds / 3)),
            "large": lambda cluster: self._pump(cluster, "large", seconds / 3),
            "small": lambda cluster: self._pump(cluster, "small", seconds / 3),
            "consume": lambda cluster: self._warm_consume(cluster, _READ_TOPIC, self.asked.size),
            "consume_100": lambda cluster: self._warm_consume(
                cluster, _SMALL_READ_TOPIC, _SMALL_BYTES
            ),
            "latency": lambda cluster: self._warm_latency(cluster, "1"),
            "latency_all": lambda cluster: self._warm_latency(cluster, "all"),
            "create": self._create,
        }

    def _warm_consume(self, cluster: Cluster, topic: str, size: int) -> None:
        fill(
            cluster.bootstrap,
            topic,
            size=size,
            records=self.asked.records,
            replication=self.replication,
        )
        for _ in range(2):
            self._consume(cluster, topic, size)

    def _warm_latency(self, cluster: Cluster, acks: str) -> None:
        topic = f"{_PACED_TOPIC}-{acks}"
        make_topic(cluster.bootstrap, topic, 1, replication=self.replication)
        latency_run(cluster, topic, self._pace(acks, self.asked.warm / 3))

    def produce(self, question: str, load: Load) -> None:
        self.in_turn(question, lambda cluster: produce_run(cluster, load))

    def prebuilt(self, question: str) -> None:
        self.in_turn(question, lambda cluster: self._pump(cluster, question, self.asked.seconds))

    def consume(self, question: str, topic: str, size: int) -> None:
        self.in_turn(question, lambda cluster: self._consume(cluster, topic, size))

    def latency(self, question: str, acks: str) -> None:
        pace = self._pace(acks, 2 * self.asked.seconds)
        topic = f"{_PACED_TOPIC}-{acks}"
        self.in_turn(question, lambda cluster: latency_run(cluster, topic, pace))

    def memory(self) -> None:
        def one(cluster: Cluster) -> Figures:
            return {"loaded_pss_mb": pss_mb(cluster.pids)["all"]}

        self.in_turn("memory", one, runs=1)

    def create(self) -> None:
        self.in_turn("create", self._create)

    def failover(self) -> None:
        """Last: a node that was started again is a cold one."""

        def one(cluster: Cluster) -> Figures:
            return failover_run(cluster, f"lost-{time.time_ns()}", how="kill", rate=_RATE)

        self.in_turn("failover", one)

    def _create(self, cluster: Cluster) -> Figures:
        return creation_run(
            cluster,
            partitions=_MANY_PARTITIONS,
            times=_TOPICS_CREATED,
            replication=self.replication,
        )

    def _lz4(self, seconds: float) -> Load:
        return replace(self._load(seconds), compression="lz4")

    def _small(self, seconds: float) -> Load:
        return replace(self._load(seconds), size=_SMALL_BYTES)

    def _load(self, seconds: float) -> Load:
        return Load(
            size=self.asked.size,
            acks=self.asked.acks,
            replication=self.replication,
            seconds=seconds,
            bytes_max=self.bytes_max,
        )

    def _consume(self, cluster: Cluster, topic: str, size: int) -> Figures:
        return consume_run(cluster, topic, size=size, records=self.asked.records)

    def _pace(self, acks: str, seconds: float) -> Pace:
        return Pace(size=self.asked.size, acks=acks, seconds=seconds)

    def _pump(self, cluster: Cluster, question: str, seconds: float) -> Figures:
        topic = f"{question}-{time.time_ns()}"
        make_topic(cluster.bootstrap, topic, replication=self.replication)
        acks = -1 if self.asked.acks == "all" else 1
        with open_pipelines(
            cluster, topic, batch_bytes=_BATCH_BYTES[question], acks=acks
        ) as pipelines:
            figures = pump_run(
                cluster,
                pipelines,
                in_flight=_IN_FLIGHT,
                seconds=seconds,
                bytes_max=self.bytes_max,
                copies=self.replication,
            )
        drop_topic(cluster.bootstrap, topic)
        return figures

    @property
    def under_load(self) -> dict[str, Callable[[], None]]:
        """The questions for which both clusters run, in the order in which they are asked."""
        seconds = self.asked.seconds
        return {
            "produce": lambda: self.produce("produce", self._load(seconds)),
            "produce_lz4": lambda: self.produce("produce_lz4", self._lz4(seconds)),
            "produce_100": lambda: self.produce("produce_100", self._small(seconds)),
            "large": lambda: self.prebuilt("large"),
            "small": lambda: self.prebuilt("small"),
            "consume": lambda: self.consume("consume", _READ_TOPIC, self.asked.size),
            "consume_100": lambda: self.consume("consume_100", _SMALL_READ_TOPIC, _SMALL_BYTES),
            "latency": lambda: self.latency("latency", "1"),
            "latency_all": lambda: self.latency("latency_all", "all"),
            "memory": self.memory,
            "create": self.create,
            "failover": self.failover,
        }


def ask(bench: Bench) -> None:
    """Every question asked for."""
    questions = set(bench.asked.only or asked_unless_told(bench.replication))
    if "failover" in questions and bench.asked.brokers < REPLICAS_MAX:
        raise SystemExit("--only failover needs --brokers 3: two replicas must live on")
    if "startup" in questions:
        bench.startup()
    todo = [measure for question, measure in bench.under_load.items() if question in questions]
    if todo:
        with bench.sides.up():
            bench.warm_up(questions)
            for measure in todo:
                measure()


def settings_of(bench: Bench) -> Settings:
    """What a reader of the ratios must know."""
    asked = bench.asked
    return {
        "replication": bench.replication,
        "noise": asked.noise,
        "kafka": {
            "version": KAFKA_VERSION,
            "combined nodes": asked.brokers,
            "heap each": KAFKA_HEAP,
            "flags": " ".join(JVM),
        },
        "tidelog": {"version": versions()["tidelog"], "brokers": asked.brokers},
        "both": {
            **SETTINGS,
            "partitions": PARTITIONS,
            "replication": bench.replication,
            "all else": "as it comes",
        },
        "client": {
            "confluent-kafka": versions("confluent-kafka")["confluent-kafka"],
            "librdkafka": confluent_kafka.libversion()[0],
            "acks": asked.acks,
            "bytes of a value": asked.size,
            "runs": asked.runs,
            "seconds each": asked.seconds,
            "MB each at most": asked.mb,
            "records consumed": asked.records,
            "seconds of warming up": asked.warm,
        },
        "producer": PRODUCER,
        "consumer": TUNED_CONSUMER,
    }


def measure_all(asked: argparse.Namespace) -> Found:
    fetch_kafka(asked.jars)
    bench = Bench(asked)
    ask(bench)
    return {
        "bench": "compare",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": called(sys.argv[1:]),
        "settings": settings_of(bench),
        "machine": machine(),
        "questions": {name: side_by_side(runs, asked.noise) for name, runs in bench.found.items()},
    }


def called(arguments: Sequence[str]) -> str:
    """How this was asked, without the places of files, which are this machine's."""
    kept: list[str] = []
    before = ""
    for word in arguments:
        if not _PLACES & {before, word}:
            kept.append(word)
        before = word
    return shlex.join(["bench/compare", *kept])


def run(asked: argparse.Namespace) -> None:
    with ended_in_order():
        found = read(asked.stored) if asked.stored else measure_all(asked)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.pages:
        write_pages(found, asked.pages)
    print(table(found), flush=True)


if __name__ == "__main__":
    run(parser().parse_args())
