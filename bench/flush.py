"""What flushing before every acknowledgement costs: `flush.policy=commit` beside Apache Kafka with
`flush.messages=1`, three replicas, acks=all.

In turn, on both: bulk by confluent-kafka, and by requests made beforehand, which cost their client
next to nothing; many clients of bare sockets with one record in flight each; a steady rate. Then
tidelog's own bulk under `os`, and what the disk takes in a row.
"""

import argparse
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Cluster, Tidelog, ended_in_order
from kafka_cluster import KAFKA_JARS, Kafka, fetch_kafka
from measuring import (
    MB,
    Arguments,
    Figures,
    Meter,
    middle,
    repeat,
    report,
    versions,
    warm_memory,
)
from pipelines import Pipeline, open_pipelines, pump
from raw_client import RawClient
from workloads import (
    PARTITIONS,
    Pace,
    drop_topic,
    latency_run,
    producer_settings,
    rates,
    send,
    values,
)

_REPLICAS: Final = 3
_KAFKA_FLUSHED: Final = {"flush.messages": "1"}
_FLUSHED: Final = {"flush.policy": "commit"}
_UNFLUSHED: Final = {"flush.policy": "os"}
_CHUNK: Final = bytes(range(256)) * 4096
_ONE_RECORD_BYTES: Final = 1024 + 75
_REQUEST_BYTES: Final = 1_000_000
_IN_FLIGHT: Final = 5


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["flush.py", "flush.py --seconds 3 --runs 1", "flush.py --alone"]
    )
    asked.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    asked.add_argument("--warm", type=float, default=5.0, help="of each kind, before the first (5)")
    asked.add_argument("--mb", type=float, default=700.0, help="most of each bulk run (700)")
    asked.add_argument("--clients", type=int, default=64, help="with one record in flight (64)")
    asked.add_argument("--rate", type=int, default=200, help="records a second (200)")
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--alone", action="store_true", help="without Apache Kafka")
    where = "where Kafka's jars are, or go"
    asked.add_argument("--jars", type=Path, default=KAFKA_JARS, help=where)
    return asked


@contextlib.contextmanager
def topic_of(cluster: Cluster, name: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A topic with these settings, gone afterwards."""
    topic = f"{name}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 4})
    wanted = NewTopic(topic, PARTITIONS, _REPLICAS, config=dict(settings))
    admin.create_topics([wanted])[topic].result(60)
    yield topic
    drop_topic(cluster.bootstrap, topic)


def own_memory(asked: argparse.Namespace) -> None:
    """For what all replicas of a bulk run write: else its host's work is measured too."""
    warm_memory(int(asked.mb * MB) * _REPLICAS)


def bulk(cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace) -> Figures:
    """One producer, as fast as it is answered."""
    content = values(asked.size)
    with topic_of(cluster, "bulk", settings) as topic:
        given = {**producer_settings("all"), "bootstrap.servers": cluster.bootstrap}
        producer = Producer(given)
        send(producer, topic, content, min(1.0, asked.seconds / 4))
        most = max(1, int(asked.mb * MB / asked.size))
        own_memory(asked)
        meter = Meter(cluster.pids)
        sent = send(producer, topic, content, asked.seconds, records_max=most)
        figures = meter.stop()
    return {**figures, **rates(figures, records=sent, value_bytes=sent * asked.size)}


def prebuilt(cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace) -> Figures:
    """As `bulk`, by a client that is no limit."""
    with (
        topic_of(cluster, "prebuilt", settings) as topic,
        open_pipelines(cluster, topic, batch_bytes=_REQUEST_BYTES) as pipelines,
    ):
        most = max(1, int(asked.mb * MB / pipelines[0].value_bytes))
        found = functools.partial(pump, pipelines, in_flight=_IN_FLIGHT)
        found(seconds=min(1.0, asked.seconds / 4), requests_max=most)
        own_memory(asked)
        meter = Meter(cluster.pids)
        answered = found(seconds=asked.seconds, requests_max=most)
        figures = meter.stop()
    size = answered * pipelines[0].value_bytes
    return {**figures, **rates(figures, records=answered, value_bytes=size)}


def many(cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace) -> Figures:
    """So many clients that each wait for their one record before they send the next."""
    with topic_of(cluster, "many", settings) as topic, contextlib.ExitStack() as undo:
        with RawClient(cluster.bootstrap) as first:
            leaders = first.leaders(topic)
        pipelines = []
        for number in range(asked.clients):
            partition = number % PARTITIONS
            one = Pipeline(leaders[partition], topic, partition, batch_bytes=_ONE_RECORD_BYTES)
            undo.enter_context(one.client)
            one.begin()
            pipelines.append(one)
        pump(pipelines, in_flight=1, seconds=min(1.0, asked.seconds / 4))
        meter = Meter(cluster.pids)
        answered = pump(pipelines, in_flight=1, seconds=asked.seconds)
        figures = meter.stop()
    per_second = answered / figures["wall_s"]
    return {
        **figures,
        "brokers_us_per_record": round(1e6 * figures["brokers_cpu_s"] / answered, 1),
        "client_us_per_record": round(1e6 * figures["client_cpu_s"] / answered, 1),
        "records_per_s": round(per_second),
        "ms": round(1000 * asked.clients / per_second, 3),
    }


def steady(cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace) -> Figures:
    """A record now and then: how soon each is acknowledged."""
    with topic_of(cluster, "steady", settings) as topic:
        return latency_run(cluster, topic, Pace(asked.rate, asked.seconds, asked.size))


def disk_mb_per_s(size_bytes: int) -> float:
    """Written in a row into a new file, and flushed at the end."""
    with tempfile.TemporaryFile() as file:
        began = time.monotonic()
        for at in range(0, size_bytes, len(_CHUNK)):
            os.pwrite(file.fileno(), _CHUNK, at)
        os.fdatasync(file.fileno())
        return round(size_bytes / MB / (time.monotonic() - began), 1)


def of_cluster(
    cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace
) -> dict[str, Any]:
    slow = steady(cluster, settings, asked)
    large, own = bulk(cluster, settings, asked), prebuilt(cluster, settings, asked)
    small = many(cluster, settings, asked)
    return {
        "bulk_mb_per_s": large["mb_per_s"],
        "bulk_brokers_cpu_s_per_gb": large["brokers_cpu_s_per_gb"],
        "bulk_client_cpu_s_per_gb": large["client_cpu_s_per_gb"],
        "prebuilt_mb_per_s": own["mb_per_s"],
        "prebuilt_brokers_cpu_s_per_gb": own["brokers_cpu_s_per_gb"],
        "many_records_per_s": small["records_per_s"],
        "many_brokers_us_per_record": small["brokers_us_per_record"],
        "many_client_us_per_record": small["client_us_per_record"],
        "steady_p50_ms": slow["p50_ms"],
        "steady_p99_ms": slow["p99_ms"],
    }


def one_run(ours: Cluster, kafka: Cluster | None, asked: argparse.Namespace) -> Figures:
    meter = Meter([*ours.pids, *(kafka.pids if kafka else [])])
    found: Figures = dict(of_cluster(ours, _FLUSHED, asked))
    if kafka is not None:
        theirs = of_cluster(kafka, _KAFKA_FLUSHED, asked)
        found |= {f"kafka_{name}": value for name, value in theirs.items()}
        found |= {f"{name}_ratio": round(found[name] / value, 3) for name, value in theirs.items()}
    found["os_bulk_mb_per_s"] = bulk(ours, _UNFLUSHED, asked)["mb_per_s"]
    found["os_prebuilt_mb_per_s"] = prebuilt(ours, _UNFLUSHED, asked)["mb_per_s"]
    found["disk_mb_per_s"] = disk_mb_per_s(int(asked.mb * MB))
    found["commit_by_os"] = round(found["bulk_mb_per_s"] / found["os_bulk_mb_per_s"], 3)
    share = found["disk_mb_per_s"] / _REPLICAS
    found["commit_by_disk_share"] = round(found["bulk_mb_per_s"] / share, 3)
    return {**found, "other_share": meter.stop().get("other_share", 0.0)}


def warm_up(cluster: Cluster, settings: Mapping[str, str], asked: argparse.Namespace) -> None:
    """A Java process is slow in its first minutes."""
    shorter = argparse.Namespace(**{**vars(asked), "seconds": asked.warm})
    of_cluster(cluster, settings, shorter)


def run(asked: argparse.Namespace) -> None:
    with ended_in_order(), contextlib.ExitStack() as undo:
        ours = Tidelog(brokers=_REPLICAS)
        undo.callback(ours.stop)
        kafka = None
        if not asked.alone:
            kafka = Kafka(fetch_kafka(asked.jars), brokers=_REPLICAS, replication=_REPLICAS)
            undo.callback(kafka.stop)
        for cluster, flushed in ((ours, _FLUSHED), (kafka, _KAFKA_FLUSHED)):
            if cluster is not None:
                cluster.wait_ready()
                warm_up(cluster, flushed, asked)
        runs = repeat(asked, lambda: one_run(ours, kafka, asked))
    names = [name for name in runs[0] if name not in {"noisy", "other_share"}]
    settings: Figures = {
        "tidelog": _FLUSHED,
        "kafka": _KAFKA_FLUSHED,
        "replicas": _REPLICAS,
        "partitions": PARTITIONS,
        "clients": asked.clients,
        "rate": asked.rate,
        "size": asked.size,
        "seconds": asked.seconds,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    report("flush", settings, {name: middle(runs, name) for name in names}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
