"""A mirror that dies again and again copies each record once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from harness.processes.cluster import Cluster, until
from harness.spark import setup as spark
from harness.spark.plain import Place
from harness.suite.need import need
from tidelog.spark.pipelines.topics import ensure_topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 12_000
STOPS = (1_000, 6_000)
"""It is killed once so many records are there."""


def mirror(cluster: Cluster, topic: str, folder: Path) -> "subprocess.Popen[bytes]":
    words = ["--to", cluster.bootstrap, "--prefix", "copy-", "--topics", topic]
    more = ["--checkpoint", str(folder / "cp"), "--batch-offsets", "500", "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, *cluster.program, "pipeline", "mirror", *words, *more],
        cwd=cluster.folder,
        env={**cluster.variables(), **spark.kept_in(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_mirror_that_is_killed_copies_each_record_once(
    cluster: Cluster, tmp_path: Path, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts Spark three times: --nightly")
    need("java")
    place = Place(cluster.bootstrap)
    topic = place.topic(partitions=3)
    ensure_topics(place.client, {f"copy-{topic}": 3})
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(ROWS):
        producer.produce(topic, b"%d" % n, partition=n % 3)
        producer.poll(0)
    assert producer.flush(30) == 0

    def copied() -> int:
        committed = {"kafka_isolation_level": "read_committed"}
        return len(place.values(subscribe=f"copy-{topic}", **committed))

    for stop in STOPS:
        with mirror(cluster, topic, tmp_path) as process:
            try:
                until(lambda: copied() >= stop, f"{stop} records in the copy", 200)  # noqa: B023 -- ends before the next
            finally:
                os.killpg(process.pid, signal.SIGKILL)
    assert copied() < ROWS, "it was killed before its end"
    with mirror(cluster, topic, tmp_path) as process:
        process.communicate(timeout=300)
        assert process.returncode == 0
    values = place.values(subscribe=f"copy-{topic}", kafka_isolation_level="read_committed")
    assert len(values) == ROWS
    assert sorted(map(int, values)) == list(range(ROWS))
