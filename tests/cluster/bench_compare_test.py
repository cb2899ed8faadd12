"""The programs of bench/compare, as short as they can be: they must run; nothing here is timed."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from clusters import running
from comparison import read, side_by_side
from harness.kafka.jars import need_kafka
from harness.kafka.quick_java import NO_WORD, NODE, prepared
from harness.suite.tidy_checks import ROOT
from measuring import Figures, tree
from pipelines import open_pipelines, pump_run
from workloads import Load, Pace, consume_run, fill, latency_run, make_topic, produce_run

pytestmark = pytest.mark.slow

METERED = {"brokers_cpu_s", "client_cpu_s", "other_share", "limited_by"}


@pytest.mark.parametrize(("brokers", "replication"), [(1, 1), (3, 3)])
def test_every_client_program_runs_against_a_cluster(brokers: int, replication: int) -> None:
    with running(brokers=brokers) as cluster:
        fill(cluster.bootstrap, "consume", size=100, records=2_000, replication=replication)
        make_topic(cluster.bootstrap, "latency", 1, replication=replication)
        make_topic(cluster.bootstrap, "prebuilt", 3, replication=replication)
        with open_pipelines(cluster, "prebuilt", batch_bytes=16_384) as pipelines:
            small = pump_run(cluster, pipelines, in_flight=5, seconds=0.1, bytes_max=1_000_000)
        found: dict[str, Figures] = {
            "produce": produce_run(
                cluster, Load(100, replication=replication, seconds=0.1, bytes_max=100_000)
            ),
            "consume": consume_run(cluster, "consume", size=100, records=2_000),
            "small": small,
            "latency": latency_run(cluster, "latency", Pace(seconds=0.2, acks="1")),
        }
    assert [name for name, run in found.items() if not run.keys() >= METERED] == []
    assert found["produce"]["records"] >= 1_000
    assert found["consume"]["records"] == 2_000
    assert found["consume"]["first_record_s"] > 0
    assert found["small"]["requests"] >= 3
    assert found["latency"]["records"] == 40
    for run in found.values():
        of_itself = side_by_side({"tidelog": [run], "kafka": [run]}, noise=1.0)
        assert of_itself["tidelog_by_kafka"]["brokers_cpu_s"] in {1.0, None}


def jars() -> str:
    """Where Apache Kafka's are."""
    return need_kafka().split(":", maxsplit=1)[0]


def environment() -> dict[str, str]:
    """Kafka's JVMs start with less work than where they are measured."""
    archive = prepared() / f"{NODE}.jsa"
    options = ("-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={archive}", *NO_WORD)
    return {**os.environ, "JAVA_TOOL_OPTIONS": " ".join(options)}


def test_compare_measures_apache_kafka_and_writes_what_it_found(tmp_path: Path) -> None:
    short = ["--runs", "1", "--quiet-wait", "0", "--warm", "0.3", "--seconds", "0.2", "--mb", "20"]
    asked = ["--brokers", "1", "--only", "produce", "--only", "large", "--only", "latency"]
    places = ["--records", "1000", "--jars", jars(), "--pages", str(tmp_path)]
    done = subprocess.run(
        [ROOT / "bench/compare", *asked, *short, *places],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "comparison.json")
    assert found["questions"].keys() == {"produce", "large", "latency"}
    for answer in found["questions"].values():
        assert len(answer["runs"]["tidelog"]) == len(answer["runs"]["kafka"]) == 1
        assert all(value is not None for value in answer["kafka"].values())
    assert "acknowledgement, acks=1, median" in done.stdout
    assert "<svg" in (tmp_path / "comparison.svg").read_text(encoding="utf-8")


def test_a_comparison_that_is_terminated_ends_both_clusters_and_their_files(tmp_path: Path) -> None:
    asked = ["--brokers", "1", "--only", "latency", "--warm", "90", "--jars", jars()]
    with subprocess.Popen(
        [ROOT / "bench/compare", *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment(), "TMPDIR": str(tmp_path)},
    ) as bench:
        while not {"java", "tide-broker0"} <= names_of(started := tree([bench.pid])):
            assert bench.poll() is None
            time.sleep(0.05)
        bench.send_signal(signal.SIGTERM)
    assert bench.returncode == 128 + signal.SIGTERM
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def names_of(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip())
    return found
