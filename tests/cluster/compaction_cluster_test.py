"""Compaction in real processes: what is left, what survives a kill, what Kafka's tools say."""

import contextlib
import os
import random
import signal
from functools import partial
from pathlib import Path

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
from harness.processes.cluster import Cluster, until
from tidelog.tools.supervisor.leftovers import remove_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_old_values_go_and_the_last_ones_stay(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        rows = rows_of(random.Random(1), 20_000)
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, rows)
        until(lambda: size_of(cluster, topic) < 300_000, "the log is compacted")
        assert values(cluster, topic) == last(rows)
        until(lambda: not files(cluster, topic, ".deleted"), "old files are removed")
        assert values(cluster, topic) == last(rows)
        checkpoint = cluster.data / "broker-0/log0/cleaner-offset-checkpoint"
        until(lambda: f"{topic} 0 " in checkpoint.read_text(), "the clean point is noted")


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_killed_again_and_again_while_it_compacts_loses_no_value(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rows: list[tuple[bytes, bytes | None]] = []
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        for _ in range(5):
            more = rows_of(rng, 10_000)
            with RawClient(cluster.bootstrap) as client:
                write(client, topic, more)
            rows += more
            wanted = rng.choice([".cleaned", ".swap", ".deleted"])
            until(partial(wait_for_file, cluster, topic, wanted), wanted)
            for pid in cluster.pids():
                with contextlib.suppress(ProcessLookupError):  # a worker ends with its broker
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not cluster.pids(), "all processes are dead")
            cluster.start()
            assert values(cluster, topic) == last(rows)
        until(lambda: size_of(cluster, topic) < 300_000, "the log is compacted in the end")
        assert values(cluster, topic) == last(rows)
        for run in cluster.runs[:-1]:
            remove_run(run.run_id)


def wait_for_file(cluster: Cluster, topic: str, suffix: str) -> bool:
    """One of that kind, or none because it is all over already."""
    return bool(files(cluster, topic, suffix)) or size_of(cluster, topic) < 300_000
