"""A pass of compaction and the broker beside it: who is held up by it, who survives its death."""

import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from harness.clients.compacted_topic import (
    BROKER,
    TOPIC,
    files,
    last,
    rows_of,
    size_of,
    values,
    write,
)
from harness.clients.raw_socket import RawClient
from harness.disks import mortal_disk
from harness.disks.dies_at import sitecustomize
from harness.processes.cluster import Cluster, until
from harness.suite.tidy_checks import PYTHON_ROOTS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

A_BYTE_A_SECOND = {"log.cleaner.io.max.bytes.per.second": "1"}
WORKER = b"tidelog.node.runtime.cleaner_worker"
NICENESS_FIELD = 16
NICEST = 19
COMPACTED_BYTES = 300_000


def workers(cluster: Cluster) -> list[int]:
    return [pid for pid in cluster.pids() if WORKER in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Nothing of one that has ended since it was found."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def niceness(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[NICENESS_FIELD])


def test_a_pass_that_is_held_up_holds_up_nobody(tmp_path: Path) -> None:
    """At a byte a second it takes days: whatever is answered meanwhile did not wait for it."""
    rng = Random(1)
    with Cluster(tmp_path, settings={**BROKER, **A_BYTE_A_SECOND}) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        rows = rows_of(rng, 5_000)
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, rows)
        until(lambda: len(workers(cluster)) == 1, "a process of its own compacts")
        (worker,) = workers(cluster)
        assert worker != cluster.broker_pid(0)
        wanted = min(niceness(cluster.broker_pid(0)) + 10, NICEST)
        until(lambda: niceness(worker) == wanted, "it gives way to the others")
        more = rows_of(rng, 5_000)
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, more)
        rows += more
        assert values(cluster, topic) == last(rows)
        assert workers(cluster) == [worker], "it is still at it"
        assert size_of(cluster, topic) > COMPACTED_BYTES, "and nothing has come of it"
        cluster.stop()
        until(
            lambda: cluster.pids() == [], "the worker has ended, too, which gives way to all others"
        )
        cluster.settings = BROKER
        cluster.start()
        until(lambda: size_of(cluster, topic) < COMPACTED_BYTES, "the log is compacted")
        assert values(cluster, topic) == last(rows)


@pytest.mark.parametrize("point", mortal_disk.Point)
def test_a_broker_killed_at_a_point_of_a_pass_loses_no_value(
    tmp_path: Path, point: mortal_disk.Point
) -> None:
    armed = tmp_path / "armed"
    roots = [str(Path(sitecustomize.__file__).parent), *(str(ROOT / top) for top in PYTHON_ROOTS)]
    environment = {
        "PYTHONPATH": os.pathsep.join(roots),
        sitecustomize.POINT: point.name,
        sitecustomize.ARMED: str(armed),
    }
    rng = Random(point.name)
    with Cluster(tmp_path, settings=BROKER, environment=environment) as cluster:
        topic = cluster.create_topic(configs={**TOPIC, "cleanup.policy": "delete"})
        rows = rows_of(rng, 10_000)
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, rows)
        armed.touch()
        cluster.done("topic", "alter", topic, "--config", "cleanup.policy=compact")
        until(lambda: cluster.process("broker")["state"] != "running", point.value)
        assert not armed.exists(), "it died of something else"
        cluster.done("broker", "start", "0")
        assert values(cluster, topic) == last(rows)
        until(lambda: size_of(cluster, topic) < COMPACTED_BYTES, "the log is compacted in the end")
        until(lambda: not files(cluster, topic, "ed"), "nothing is left of passes")
        assert values(cluster, topic) == last(rows)
