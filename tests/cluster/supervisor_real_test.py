"""The supervisor with real brokers and a real coordinator: nothing is left after any end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster, open_files, until
from tidelog.node.ipc.board import memory_of_run

pytestmark = pytest.mark.slow


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Cluster]:
    """One broker, whose processes are as those that a shell starts."""
    with Cluster(tmp_path, as_program=True) as cluster:
        yield cluster


def test_a_cluster_ends_in_order_and_leaves_nothing(started: Cluster) -> None:
    started.stop()
    started.assert_nothing_is_left()
    assert "process_died" not in started.logs()


def test_the_death_of_the_supervisor_ends_brokers_and_coordinator(
    started: Cluster,
) -> None:
    run = started.runs[-1]
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not started.pids(), "the children have followed")
    assert memory_of_run(run.run_id) == []
    assert not Path(run.runtime_dir).exists()
    started.start()


def test_every_process_may_be_killed_at_once(started: Cluster) -> None:
    topic = started.create_topic()
    started.kill_everything()
    started.start()
    until(lambda: started.status()["topics"] == 1, f"{topic} is counted again")


def test_brokers_stop_pause_die_and_come_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=2, as_program=True) as cluster:
        cluster.done("broker", "stop", "1")
        assert cluster.process("broker", 1)["state"] == "stopped"
        cluster.done("broker", "start", "1")
        cluster.done("broker", "pause", "1")
        cluster.done("broker", "resume", "1")
        cluster.done("broker", "kill", "0", "1")
        cluster.done("broker", "start", "0", "1")
        cluster.done("coordinator", "kill")
        cluster.done("wait", "ready")
        assert {row["state"] for row in cluster.status()["processes"]} == {"running"}


def test_the_coordinator_comes_back_with_a_higher_epoch(started: Cluster) -> None:
    before = started.status()["controller"]
    started.done("coordinator", "kill")
    started.done("wait", "ready")
    until(
        lambda: started.status()["controller"]["epoch"] > before["epoch"],
        "the new coordinator is active",
    )
    started.create_topic()


def test_every_part_of_an_idle_cluster_fits_into_60_mib(started: Cluster) -> None:
    pss = [row["pss_bytes"] for row in started.status()["processes"]]
    assert sum(pss) <= 60 * 1024 * 1024, pss


def test_the_supervisor_has_no_thread_and_no_zeromq(started: Cluster) -> None:
    pid = started.process("supervisor")["pid"]
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    assert not [link for link in open_files(pid) if "eventfd" in link]
