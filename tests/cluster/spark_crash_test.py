"""Real Spark dies in the middle of an exactly-once stream, and goes on: each row is there once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from harness import spark
from harness.cluster import Cluster, until
from harness.kafka_jars import kafka_classpath
from harness.kafka_node import TRANSACTIONS, kafka_node
from harness.need import need
from harness.spark_crash import DIES_AT, MARK, VICTIM
from harness.spark_plain import Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 400
BATCH = 200
FOUR_POINTS = ["before:0", "mid:1", "after:1", "driver:1"]


class Copying:
    """A topic of numbers, and a stream that copies it."""

    def __init__(self, bootstrap: str, folder: Path, delivery: str = "exactly-once") -> None:
        need("java")
        self.place, self.folder = Place(bootstrap), folder
        self.asked: dict[str, Any] = {
            "bootstrap": bootstrap,
            "source": self.place.topic(partitions=2),
            "sink": self.place.topic(partitions=2),
            "checkpoint": str(folder / "checkpoint"),
            "delivery": delivery,
            "batch": BATCH,
            "master": "local[2]",
        }
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        for n in range(ROWS):
            producer.produce(self.asked["source"], b"%d" % n, partition=n % 2)
        assert producer.flush(30) == 0

    def run(self, dies_at: str = "", victim: str = "jvm", **more: Any) -> int:
        """A driver, to its end; its exit code."""
        mark = self.folder / f"mark-{dies_at.replace(':', '-')}"
        words = ["-W", "ignore", "-m", "harness.spark_crash", json.dumps({**self.asked, **more})]
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                env={**spark.environment(), DIES_AT: dies_at, VICTIM: victim, MARK: str(mark)},
                cwd=self.folder,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            code = process.wait(400)
            if (
                code
            ):  # the Python driver of a JVM that was killed lives on a while with its children
                _end_session(process.pid)
        assert not dies_at or mark.exists(), "it came to its end before anything died"
        return code

    def values(self) -> list[int]:
        given = {"subscribe": self.asked["sink"], "kafka_isolation_level": "read_committed"}
        return sorted(int(value) for value in self.place.values(**given))


def _end_session(leader: int) -> None:
    """Whoever is left of a session of ours."""

    def left() -> list[int]:
        pids = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]
        return [pid for pid in pids if _session_of(pid) == leader]

    for pid in left():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not left(), "all of the session have ended")


def _session_of(pid: int) -> int:
    try:
        state, _, _, session, *_ = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(maxsplit=4)
        )
    except (OSError, ValueError):
        return -1
    return -1 if state == "Z" else int(session)


def test_a_driver_that_is_killed_between_marker_and_commit_is_followed_by_one_that_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    copying = Copying(cluster.bootstrap, tmp_path)
    assert copying.run("mid:1") != 0
    assert copying.run() == 0
    assert copying.values() == list(range(ROWS))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need("java", "mvn")
    classpath = kafka_classpath()
    assert classpath is not None
    with kafka_node(tmp_path_factory.mktemp("kafka"), classpath, TRANSACTIONS) as bootstrap:
        yield bootstrap


@pytest.mark.parametrize("where", ["tidelog", "kafka"])
@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-atomic"])
def test_drivers_are_killed_at_every_point(
    where: str, delivery: str, tmp_path: Path, request: pytest.FixtureRequest, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("a driver for each of four points takes minutes")
    bootstrap = request.getfixturevalue("kafka" if where == "kafka" else "cluster")
    copying = Copying(getattr(bootstrap, "bootstrap", bootstrap), tmp_path, delivery)
    points = FOUR_POINTS if delivery == "exactly-once" else ["driver:0", "driver:1"]
    for point in points:
        assert copying.run(point) != 0
    assert copying.run() == 0
    assert copying.values() == list(range(ROWS))


@pytest.mark.parametrize("point", FOUR_POINTS[:3])
def test_an_executor_that_is_killed_is_replaced_by_another_of_the_same_query(
    cluster: Cluster, tmp_path: Path, point: str, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("takes a minute for each of three points")
    copying = Copying(cluster.bootstrap, tmp_path)
    assert copying.run(point, "jvm", master="local-cluster[2,1,1024]") == 0
    assert copying.values() == list(range(ROWS))


@pytest.mark.parametrize("point", FOUR_POINTS[:3])
def test_a_worker_that_is_killed_is_followed_by_another_of_the_same_query(
    cluster: Cluster, tmp_path: Path, point: str, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("takes a minute for each of three points")
    copying = Copying(cluster.bootstrap, tmp_path)
    assert copying.run(point, "worker", master="local[2,3]") == 0
    assert copying.values() == list(range(ROWS))
