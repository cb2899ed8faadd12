"""A topic is deleted and its name used again while processes die: nobody meets the old records."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.disks.dies_at import sitecustomize
from harness.faults.chaos import log_bytes
from harness.processes.cluster import Cluster, until
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT

pytestmark = pytest.mark.slow

TOPIC = "t"
OLD, NEW = b"old", b"new"
PATIENCE_S = 30.0


@contextmanager
def trapped(folder: Path, point: str) -> Iterator[tuple[Cluster, Path]]:
    """Three brokers, the first of which to come to that point dies once the file is there."""
    armed = folder / "armed"
    roots = [str(Path(sitecustomize.__file__).parent), *(str(ROOT / top) for top in PYTHON_ROOTS)]
    environment = {
        "PYTHONPATH": os.pathsep.join(roots),
        sitecustomize.POINT: point,
        sitecustomize.ARMED: str(armed),
    }
    with Cluster(folder, brokers=3, environment=environment) as cluster:
        yield cluster, armed


def settings(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0}


def create(admin: AdminClient) -> None:
    wanted = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted], request_timeout=PATIENCE_S)[TOPIC].result(PATIENCE_S)


def is_created(admin: AdminClient) -> bool:
    """Whoever was asked may be dying or dead: ask again."""
    try:
        create(admin)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def write(cluster: Cluster, value: bytes, count: int) -> None:
    producer = Producer(settings(cluster))
    failed: list[str] = []

    def told(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(count):
        producer.produce(TOPIC, value + b"%d" % number, on_delivery=told)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read(cluster: Cluster) -> list[bytes]:
    """From the first record on, to the end."""
    consumer = Consumer(
        {**settings(cluster), "group.id": "x", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "nothing came, not even the end"
        if message.error() is not None:
            consumer.close()
            return found
        found.append(message.value() or b"")


def folders(cluster: Cluster) -> set[str]:
    """Of partitions of the topic, those that are on their way out included."""
    return {path.name for path in cluster.data.glob(f"broker-*/log0/{TOPIC}-*")}


def dead(cluster: Cluster) -> list[int]:
    rows = cluster.status()["processes"]
    return [row["id"] for row in rows if row["role"] == "broker" and row["state"] != "running"]


@pytest.mark.parametrize("point", ["DELETING", "REMOVING"])
def test_a_broker_killed_in_the_middle_of_a_deletion_brings_nothing_back(
    tmp_path: Path, point: str
) -> None:
    with trapped(tmp_path, point) as (cluster, armed):
        admin = AdminClient(settings(cluster))
        create(admin)
        write(cluster, OLD, 100)
        until(lambda: len({log_bytes(cluster, one, TOPIC, 0) for one in range(3)}) == 1, "equal")
        armed.touch()
        deletion = admin.delete_topics([TOPIC], request_timeout=PATIENCE_S)[TOPIC]
        with suppress(KafkaException):  # it may be the one that was asked
            deletion.result(PATIENCE_S)
        until(lambda: is_created(admin), "the name is free at once")
        until(lambda: bool(dead(cluster)), "a broker died of it")
        (broker,) = dead(cluster)
        write(cluster, NEW, 10)
        wanted = [NEW + b"%d" % number for number in range(10)]
        assert read(cluster) == wanted
        cluster.done("broker", "start", str(broker))
        cluster.done("wait", "isr", TOPIC)
        until(lambda: folders(cluster) == {f"{TOPIC}-0"}, "nothing is left of the old one")
        until(lambda: len({log_bytes(cluster, one, TOPIC, 0) for one in range(3)}) == 1, "equal")
        assert OLD not in log_bytes(cluster, broker, TOPIC, 0)
        assert read(cluster) == wanted
        cluster.done("log", "verify")


def test_a_name_is_free_at_once_though_the_coordinator_dies_of_the_deletion(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, brokers=3) as cluster:
        admin = AdminClient(settings(cluster))
        for turn in range(3):
            create(admin)
            write(cluster, b"%d/" % turn, 10)
            deletion = admin.delete_topics([TOPIC], request_timeout=PATIENCE_S)[TOPIC]
            cluster.done("coordinator", "kill")
            cluster.done("wait", "ready")
            try:
                deletion.result(PATIENCE_S)
            except Exception:  # noqa: BLE001 -- unknown, for its decider died: then look
                until(lambda: _is_gone(admin), "it is gone, or goes when it is asked again")
        create(admin)
        write(cluster, NEW, 3)
        assert read(cluster) == [NEW + b"%d" % number for number in range(3)]


def _is_gone(admin: AdminClient) -> bool:
    if TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
        return True
    deletion = admin.delete_topics([TOPIC], request_timeout=PATIENCE_S)[TOPIC]
    with suppress(KafkaException):  # it is gone by now; but none may come behind the next topic
        deletion.result(PATIENCE_S)
    return False
