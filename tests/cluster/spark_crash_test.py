"""Real Spark dies in the middle of an exactly-once stream, and goes on: each row is there once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.processes.cluster import Cluster, until
from harness.spark import setup as spark
from harness.spark.crash import BLOWS, LATE_ROWS, MARKS, PLANNED, Blow, write_numbers
from harness.spark.plain import Place
from harness.spark.shared import SharedSpark
from harness.suite.need import need
from tidelog.tools.supervisor.proc import is_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BATCH = 40
EXECUTORS = "local-cluster[2,1,512]"
RETRYING = "local[2,2]"
"""A task whose worker dies is tried again."""
IN_A_TASK = ["before", "mid", "after"]
DRIVER = -1
"""The partition of the steps that the driver takes."""
ON_THE_DRIVER = ["driver", "ending", "between", "ended", "complete"]


class Copying:
    """A topic of numbers, and a stream that copies it in so many micro-batches."""

    def __init__(
        self, bootstrap: str, folder: Path, *, batches: int, delivery: str = "exactly-once"
    ) -> None:
        need("java")
        self.place, self.folder, self.rows = Place(bootstrap), folder, batches * BATCH
        self.asked: dict[str, Any] = {
            "bootstrap": bootstrap,
            "source": self.place.topic(partitions=2),
            "sink": self.place.topic(partitions=2),
            "checkpoint": str(folder / "checkpoint"),
            "delivery": delivery,
            "batch": BATCH,
            "starting": "earliest",
            "trigger": {"availableNow": True},
            "master": "local[2]",
        }

    def write(self) -> None:
        write_numbers(self.asked["bootstrap"], self.asked["source"], self.rows)

    def run(self, *blows: Blow, late_rows: int = 0, **more: Any) -> int:
        """A driver, to its end; its exit code. Each blow was dealt, and its victim is dead."""
        marks = self.folder / "marks"
        marks.mkdir(exist_ok=True)
        words = ["-W", "ignore", "-m", "harness.spark.crash", json.dumps({**self.asked, **more})]
        told = {BLOWS: json.dumps(blows), MARKS: str(marks), LATE_ROWS: str(late_rows)}
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                env={**spark.environment(), **spark.kept_in(self.folder), **told},
                cwd=self.folder,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            code = process.wait(400)
            if code:
                # The Python driver of a JVM that was killed lives on a while with its children.
                _end_session(process.pid)
        for blow in blows:
            assert (marks / blow.mark).exists(), f"it came to its end before {blow}"
            until(partial(is_gone, int((marks / blow.mark).read_text())), f"{blow} kills")
        return code

    def check(self) -> None:
        """Each row is in the copy, and once."""
        given = {"subscribe": self.asked["sink"], "kafka_isolation_level": "read_committed"}
        values = sorted(int(value) for value in self.place.values(**given))
        assert values == list(range(self.rows))


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


def test_each_row_is_there_once_though_workers_and_the_driver_are_killed(
    cluster: Cluster, shared_spark: SharedSpark, tmp_path: Path
) -> None:
    """All of it in one query, a micro-batch after the other, and in the ones that go on.
    `spark_executors_test.py` kills an executor."""
    copying = Copying(cluster.bootstrap, tmp_path, batches=5)
    copying.write()
    workers = [Blow(point, batch, "worker") for batch, point in enumerate(IN_A_TASK)]
    assert copying.run(*workers, Blow("mid", 3), master=RETRYING) != 0
    assert copying.run(Blow("between", 3, partition=DRIVER)) != 0
    assert shared_spark.answers("crash", **copying.asked)
    copying.check()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka"), TRANSACTIONS) as bootstrap:
        yield bootstrap


@pytest.fixture(params=["tidelog", "kafka"])
def bootstrap(request: pytest.FixtureRequest, *, nightly: bool) -> str:
    """Of a cluster of either kind."""
    if not nightly:
        pytest.skip("takes minutes: --nightly")
    if request.param == "kafka":
        found: str = request.getfixturevalue("kafka")
        return found
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.bootstrap


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-atomic"])
def test_drivers_are_killed_at_every_point(bootstrap: str, delivery: str, tmp_path: Path) -> None:
    """Of the second delivery the driver itself takes the steps that tasks take of the first."""
    is_atomic = delivery == "exactly-once-atomic"
    alone = ON_THE_DRIVER[:1] if is_atomic else ON_THE_DRIVER
    points = [(point, 0 if is_atomic else 1) for point in IN_A_TASK]
    points += [(point, DRIVER) for point in alone]
    copying = Copying(bootstrap, tmp_path, batches=len(points) + 1, delivery=delivery)
    copying.write()
    for batch, (point, partition) in enumerate(points):
        assert copying.run(Blow(point, batch, partition=partition)) != 0
    assert copying.run() == 0
    copying.check()


@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_whoever_has_a_task_is_killed_at_every_point_and_the_query_lives_on(
    bootstrap: str, victim: str, tmp_path: Path
) -> None:
    copying = Copying(bootstrap, tmp_path, batches=4)
    copying.write()
    blows = [Blow(point, batch, victim) for batch, point in enumerate(IN_A_TASK)]
    assert copying.run(*blows, master=EXECUTORS) == 0
    copying.check()


def test_a_stream_from_latest_has_all_rows_since_though_its_driver_dies_at_once(
    bootstrap: str, tmp_path: Path
) -> None:
    """Rows came before its first micro-batch, and only the checkpoint knows where it began."""
    copying = Copying(bootstrap, tmp_path, batches=1)
    copying.asked["starting"] = "latest"
    at_once = {"processingTime": "0 seconds"}  # what is available now ends before they come
    blow = Blow(PLANNED, 0, partition=-1)
    assert copying.run(blow, late_rows=copying.rows, trigger=at_once) != 0
    assert copying.run() == 0
    copying.check()
