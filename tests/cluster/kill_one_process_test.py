"""One process killed or held up under load: what the others do goes on, and nothing is lost."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import Row, fetch_all, offset_at
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from harness.processes.load import Kind, Plan, Producer, faults, wait_for_acks
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.leftovers import remove_run
from tidelog.wire.messages import k03_metadata

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 2


@pytest.fixture
def topic(fresh_cluster: Cluster) -> str:
    return fresh_cluster.create_topic(partitions=PARTITIONS)


@pytest.fixture
def producers(fresh_cluster: Cluster, topic: str) -> Iterator[list[Producer]]:
    """At work; the test ends them by `finished`."""
    plans = [
        Plan(topic, PARTITIONS, Kind.IDEMPOTENT, acks=-1, seed=1),
        Plan(topic, PARTITIONS, Kind.PLAIN, acks=1, seed=2),
    ]
    made = [
        Producer(f"p{number}", fresh_cluster.bootstrap, plan) for number, plan in enumerate(plans)
    ]
    for producer in made:
        producer.start()
    yield made
    for producer in made:
        producer.finish()


def assert_whole(cluster: Cluster, topic: str, producers: list[Producer]) -> None:
    wait_for_acks(producers, more=1)
    for producer in producers:
        producer.finish()
    rows: dict[int, list[Row]] = {}
    with RawClient(cluster.bootstrap) as raw:
        for partition in range(PARTITIONS):
            rows[partition] = fetch_all(raw, topic, partition=partition)
            assert offset_at(raw, topic, -1, partition=partition) == len(rows[partition])
    assert faults(rows, producers) == []


def test_a_broker_killed_again_and_again_loses_nothing(
    fresh_cluster: Cluster, topic: str, producers: list[Producer]
) -> None:
    rng = random.Random(3)
    for _ in range(8):
        wait_for_acks(producers, more=rng.randrange(1, 60))
        os.kill(fresh_cluster.broker_pid(0), signal.SIGKILL)
        until(lambda: fresh_cluster.process("broker")["state"] == "killed", "it is dead")
        fresh_cluster.done("broker", "start", "0")
    assert_whole(fresh_cluster, topic, producers)


def test_the_data_path_does_not_notice_a_dead_coordinator(
    fresh_cluster: Cluster, topic: str, producers: list[Producer]
) -> None:
    made = [topic]
    broker = fresh_cluster.broker_pid(0)
    for _ in range(5):
        made.append(fresh_cluster.create_topic())
        before = fresh_cluster.process("coordinator")["pid"]
        os.kill(before, signal.SIGKILL)
        wait_for_acks(producers, more=20)
        until(_replaced(fresh_cluster, before), "it is back")
    made.append(fresh_cluster.create_topic())
    assert [producer.lost for producer in producers] == [0, 0]
    assert fresh_cluster.broker_pid(0) == broker
    with RawClient(fresh_cluster.bootstrap) as raw:
        every = raw.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=None))
    assert {row.name for row in every.topics} >= set(made)
    assert_whole(fresh_cluster, topic, producers)


def _replaced(cluster: Cluster, before: int) -> Callable[[], bool]:
    """Whether another coordinator runs than the one of that pid."""

    def look() -> bool:
        row = cluster.process("coordinator")
        return bool(row["state"] == "running" and row["pid"] != before)

    return look


def test_a_broker_held_up_for_a_moment_goes_on_where_it_was(
    fresh_cluster: Cluster, topic: str, producers: list[Producer]
) -> None:
    pid = fresh_cluster.broker_pid(0)
    for _ in range(5):
        wait_for_acks(producers, more=10)
        os.kill(pid, signal.SIGSTOP)
        until(lambda: _state(pid) == "T", "it is stopped")
        time.sleep(0.2)  # the fault itself: shorter than what counts as hung
        os.kill(pid, signal.SIGCONT)
    wait_for_acks(producers, more=10)
    assert fresh_cluster.broker_pid(0) == pid
    assert_whole(fresh_cluster, topic, producers)


def test_a_hung_broker_is_cut_off_and_serves_again_when_it_moves(
    fresh_cluster: Cluster, topic: str, producers: list[Producer]
) -> None:
    pid = fresh_cluster.broker_pid(0)
    wait_for_acks(producers, more=10)
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: fresh_cluster.process("broker")["state"] in {"hung", "paused"}, "it is seen")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for_acks(producers, more=10)
    assert fresh_cluster.broker_pid(0) == pid
    assert_whole(fresh_cluster, topic, producers)


def _state(pid: int) -> str:
    status = Path(f"/proc/{pid}/stat").read_text()
    return status.rpartition(") ")[2].split()[0]


ENDINGS: dict[str, Callable[[Cluster], None]] = {
    "its signal": lambda cluster: os.kill(cluster.runs[-1].pid, signal.SIGTERM),
    "kill -9 of the supervisor": lambda cluster: os.kill(cluster.runs[-1].pid, signal.SIGKILL),
    "down": lambda cluster: cluster.stop(),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_end_under_load_loses_nothing(
    fresh_cluster: Cluster, topic: str, producers: list[Producer], ending: str
) -> None:
    for _ in range(2):
        wait_for_acks(producers, more=10)
        ENDINGS[ending](fresh_cluster)
        until(lambda: not fresh_cluster.pids(), "all have ended")
        until(lambda: proc.is_gone(fresh_cluster.runs[-1].pid), "the supervisor too")
        fresh_cluster.start()
    assert_whole(fresh_cluster, topic, producers)
    for run in fresh_cluster.runs[:-1]:
        remove_run(run.run_id)
