"""The exactly-once sink while whoever it needs is killed in the middle of a micro-batch."""

import os
import signal
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from harness.clients.committed_rows import committed_rows
from harness.kafka.node import TRANSACTIONS, mortal_kafka_node
from harness.processes.cluster import Cluster, until
from harness.spark.plain import Place, batch_of
from harness.spark.tasks import ROWS, values_of
from tidelog.clients.admin.coordinators import KeyType, find_coordinator
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import Partition
from tidelog.spark.exactly_once import Committer, Writer
from tidelog.spark.sink_commit import Sink
from tidelog.spark.sink_decisions import Batch
from tidelog.spark.tasks import Point, SinkError, TaskInfo
from tidelog.wire.errors import Rejected

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TRIES = 10


def leader(place: Place, sink: Sink, cluster: Cluster) -> int:
    """Of a partition that is written to."""
    found = place.client.view.leader(sink.marker)
    assert found is not None
    return cluster.broker_pid(found)


def group_coordinator(place: Place, sink: Sink, cluster: Cluster) -> int:
    """Of the marker of task 1."""
    plan = find_coordinator(place.client.view, sink.part(1), KeyType.GROUP)
    return cluster.broker_pid(place.client.run(plan))


def state_leader(place: Place, sink: Sink, cluster: Cluster) -> int:
    """Of the partition of `__transaction_state` that keeps the transactional id of task 1."""
    plan = find_coordinator(place.client.view, sink.part(1), KeyType.TRANSACTION)
    return cluster.broker_pid(place.client.run(plan))


def transaction_coordinator(_place: Place, _sink: Sink, cluster: Cluster) -> int:
    """The process that decides."""
    pid = cluster.process("transaction-coordinator")["pid"]
    assert isinstance(pid, int)
    return pid


VICTIMS: list[Callable[[Place, Sink, Cluster], int]] = [
    leader,
    group_coordinator,
    state_leader,
    transaction_coordinator,
]
POINTS = [Point.BEFORE, Point.MID, Point.ENDING, Point.BETWEEN, Point.ENDED]
CELLS = list(product(POINTS, VICTIMS))


def start_all(cluster: Cluster, topic: str, dead: int) -> None:
    """Whoever was killed is back, and in sync."""

    def is_known() -> bool:
        return dead not in {row["pid"] for row in cluster.status()["processes"]}

    until(is_known, "the supervisor knows of the death")
    for row in cluster.status()["processes"]:
        if row["role"] == "broker" and row["pid"] is None:
            cluster.done("broker", "start", str(row["id"]))
    cluster.done("wait", "isr", topic)


def do_batch(
    place: Place, sink: Sink, batch: int, strike: Callable[[Point], None], tasks: Sequence[int]
) -> None:
    """Until an attempt at the micro-batch succeeds, as a query that is started again has it."""
    options = place.sink_options(
        topic=sink.marker[0],
        tidelog_delivery="exactly-once",
        kafka_request_timeout_ms="3000",
        kafka_delivery_timeout_ms="6000",
    )
    errors = []
    for _ in range(TRIES):
        writer = Writer(place.client, options, sink, reached=lambda point, *_: strike(point))
        committer = Committer(place.client, options, sink, reached=lambda point, *_: strike(point))
        try:
            done = [
                writer.write(TaskInfo("q", batch, task), [rows_of(batch, task)]) for task in tasks
            ]
            committer.finish(Batch("q", batch), done)
        except (ClientError, Rejected, SinkError) as error:
            errors.append(error)
            continue
        return
    raise AssertionError(f"micro-batch {batch}: no attempt of {TRIES} succeeded: {errors}")


def rows_of(batch: int, task: int) -> Any:
    return batch_of(values_of(batch, task), partition=[task] * ROWS)


def test_each_row_is_there_once_though_brokers_and_coordinators_die_in_mid_commit(
    tmp_path: Path, *, nightly: bool
) -> None:
    """Each victim at each point, a micro-batch for each; every second one without --nightly, so
    that no victim and no point is left out."""
    cells = CELLS if nightly else [one for at, one in enumerate(CELLS) if sum(divmod(at, 4)) % 2]
    with Cluster(tmp_path, brokers=3, settings={"offsets.topic.num.partitions": "4"}) as cluster:
        place = Place(cluster.bootstrap)
        topic = place.topic(partitions=2, replicas=3, min_insync_replicas="2")
        sink = Sink("a-sink", (topic, Partition(0)))
        for batch, (point, victim) in enumerate(cells):
            struck: list[int] = []

            def strike(
                here: Point,
                point: Point = point,
                victim: Callable[[Place, Sink, Cluster], int] = victim,
                struck: list[int] = struck,
            ) -> None:
                if here is point and not struck:
                    struck.append(victim(place, sink, cluster))
                    os.kill(struck[0], signal.SIGKILL)

            do_batch(place, sink, batch, strike, (0, 1))
            assert struck, "nobody was killed"
            start_all(cluster, topic, struck[0])
        expected = [v for b in range(len(cells)) for n in (0, 1) for v in values_of(b, n)]
        seen = committed_rows(cluster.bootstrap, [topic])[topic]
        assert sorted(seen) == sorted(expected)


def knows(bootstrap: str, topic: str) -> bool:
    """Whether a broker has been told who leads: until then it takes the topic for deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(topic, 10).topics[topic]
    return found.error is None and all(one.error is None for one in found.partitions.values())


def test_each_row_is_there_once_though_the_node_of_an_apache_kafka_dies_in_mid_batch(
    tmp_path: Path, *, nightly: bool
) -> None:
    """It leads, and coordinates groups and transactions, all in one. Not struck behind the commit:
    one that owes markers when it is killed, and loads its transactions before it knows who leads,
    says that it has written them, and has not; then the transaction hangs, whoever wrote it."""
    if not nightly:
        pytest.skip("starts Kafka three times: --nightly")
    with mortal_kafka_node(tmp_path, TRANSACTIONS) as node:
        place = Place(node.bootstrap)
        topic = place.topic(partitions=2)
        sink = Sink("a-sink", (topic, Partition(0)))
        points = [Point.BEFORE, Point.MID]
        for batch, point in enumerate(points):
            struck: list[Point] = []

            def strike(here: Point, point: Point = point, struck: list[Point] = struck) -> None:
                if here is point and not struck:
                    struck.append(here)
                    node.kill()
                    node.start()
                    until(lambda: knows(node.bootstrap, topic), "it knows its topic", 60)

            do_batch(place, sink, batch, strike, (0, 1))
            assert struck, "nobody was killed"
        expected = [v for b in range(len(points)) for n in (0, 1) for v in values_of(b, n)]

        def seen() -> list[bytes]:
            return place.values(subscribe=topic, kafka_isolation_level="read_committed")

        until(lambda: len(seen()) >= len(expected), "the markers of all that was committed", 60)
        assert sorted(seen()) == sorted(expected)
