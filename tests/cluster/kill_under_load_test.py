"""`kill -9` of all processes at one moment under load, again and again: nothing acked is lost.

The page cache lives on when processes die, so this holds under every flush policy.
"""

import random
import signal
from pathlib import Path

import pytest

from harness.clients.fetch_raw import Row, fetch_all, offset_at
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, send_all
from harness.processes.load import Kind, Plan, Producer, faults, wait_for_acks
from tidelog.tools.supervisor.leftovers import remove_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SEEDS = range(5)
KILLS = 4
KILLS_NIGHTLY = 20
PARTITIONS = 3


def producers_of(cluster: Cluster, topic: str, seed: int) -> list[Producer]:
    """Two that are idempotent, and two that are not, with acks=1 and acks=all."""
    plans = [
        Plan(topic, PARTITIONS, Kind.IDEMPOTENT, acks=-1, seed=seed),
        Plan(topic, PARTITIONS, Kind.IDEMPOTENT, acks=1, seed=seed + 1),
        Plan(topic, PARTITIONS, Kind.PLAIN, acks=-1, seed=seed + 2),
        Plan(topic, PARTITIONS, Kind.PLAIN, acks=1, seed=seed + 3),
    ]
    return [Producer(f"p{number}", cluster.bootstrap, plan) for number, plan in enumerate(plans)]


def read_all(cluster: Cluster, topic: str) -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = {}
    with RawClient(cluster.bootstrap) as raw:
        for partition in range(PARTITIONS):
            rows[partition] = fetch_all(raw, topic, partition=partition)
            end = offset_at(raw, topic, -1, partition=partition)
            assert end == len(rows[partition]), "the high watermark is not the log's end"
    return rows


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_doubled_or_swapped(
    tmp_path: Path, seed: int, *, nightly: bool
) -> None:
    rng = random.Random(seed)
    kills = KILLS_NIGHTLY if nightly else KILLS
    with Cluster(tmp_path, settings={"log.segment.bytes": str(256 * 1024)}) as cluster:
        topic = cluster.create_topic(partitions=PARTITIONS)
        producers = producers_of(cluster, topic, seed)
        for producer in producers:
            producer.start()
        for _ in range(kills):
            wait_for_acks(producers, more=rng.randrange(1, 40))
            kill(cluster, rng)
            cluster.start()
        wait_for_acks(producers, more=1)
        for producer in producers:
            producer.finish()
        assert faults(read_all(cluster, topic), producers) == []
        assert all(producer.lost >= kills for producer in producers)
        # Once more over a clean stop: the marks and snapshots say the same as the log did.
        cluster.stop()
        cluster.start()
        assert faults(read_all(cluster, topic), producers) == []
        for run in cluster.runs[:-1]:
            remove_run(run.run_id)


def kill(cluster: Cluster, rng: random.Random) -> None:
    """All at one moment, or one after another in any order."""
    pids = cluster.pids()
    rng.shuffle(pids)
    if rng.random() < 0.5:
        send_all(pids, signal.SIGSTOP)
    send_all(pids, signal.SIGKILL)
    cluster.until_dead(pids)
