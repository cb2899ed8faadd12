"""Every client through a killed, a hanging and a stopping leader: none is restarted, nothing
acknowledged is lost, nothing of an idempotent producer is there twice.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.raw_socket import RawClient
from harness.clients.steady import NEEDS, PARTITIONS, Steady, faults
from harness.processes.cluster import Cluster, until
from harness.suite.need import need, required
from tidelog.wire.messages import k03_metadata as k03

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 5
"""Of a night."""
QUIET_S = 1.0
"""Between two faults, so that each client works again before the next."""


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as cluster:
        yield cluster


def clients(trio: Cluster) -> list[Steady]:
    """Those whose runtime is here, each with a topic of its own that all brokers lead."""
    made: list[Steady] = []
    for client, programs in NEEDS.items():
        must = bool(required().intersection(programs))
        if not must and not all(map(shutil.which, programs)):
            continue
        need(*programs)
        topic = f"steady-{len(made)}"
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        trio.done("topic", "create", topic, *words, "-c", "min.insync.replicas=2")
        made.append(client(trio.bootstrap, topic))
    return made


def test_no_client_loses_or_doubles_a_record_over_a_lost_leader(
    trio: Cluster, *, nightly: bool
) -> None:
    running = clients(trio)
    with ExitStack() as undo:
        for client in running:
            client.start()
            undo.callback(client.kill)
        found = over_faults(trio, running, nightly=nightly)
    assert found == {client.name: [] for client in running}


def over_faults(trio: Cluster, running: Sequence[Steady], *, nightly: bool) -> dict[str, list[str]]:
    """What is wrong with what each did, by its name."""
    time.sleep(3 * QUIET_S)  # they connect; a JVM takes its time
    for fault, broker in befalling(nightly=nightly):
        with fault(trio, broker):
            time.sleep(2 * QUIET_S)
        until(lambda: in_sync(trio), "all replicas are in sync again", 60)
        time.sleep(QUIET_S)
    found = {}
    for client in running:
        outcome = client.finish()
        logs = [numbers(trio, client.topic, partition) for partition in range(PARTITIONS)]
        found[client.name] = faults(outcome, logs)
    return found


@contextmanager
def killed(trio: Cluster, broker: int) -> Iterator[None]:
    os.kill(trio.broker_pid(broker), signal.SIGKILL)
    yield
    trio.done("broker", "start", str(broker))


@contextmanager
def hanging(trio: Cluster, broker: int) -> Iterator[None]:
    pid = trio.broker_pid(broker)
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(trio: Cluster, broker: int) -> Iterator[None]:
    trio.done("broker", "stop", str(broker))
    yield
    trio.done("broker", "start", str(broker))


Fault = Callable[[Cluster, int], AbstractContextManager[None]]
FAULTS: tuple[Fault, ...] = (killed, hanging, stopped)


def befalling(*, nightly: bool) -> list[tuple[Fault, int]]:
    """What befalls which broker: each leads a partition of every client."""
    if nightly:
        return [(fault, broker) for fault in FAULTS for broker in range(3)] * ROUNDS
    return [(fault, broker) for broker, fault in enumerate(FAULTS)]


def in_sync(trio: Cluster) -> bool:
    with RawClient(trio.bootstrap.split(",")[0]) as raw:
        answer = raw.ask(k03.API, 9, k03.MetadataRequest(topics=None))
    rows = [row for topic in answer.topics for row in topic.partitions]
    return bool(rows) and all(len(row.isr_nodes) == 3 for row in rows)


def numbers(trio: Cluster, topic: str, partition: int) -> list[int]:
    """What is in the partition, by whoever leads it."""
    for address in trio.bootstrap.split(","):
        with RawClient(address) as raw:
            answer = raw.ask(k03.API, 9, k03.MetadataRequest(topics=None))
            rows = next(one.partitions for one in answer.topics if one.name == topic)
            leader = next(row.leader_id for row in rows if row.partition_index == partition)
            (where,) = [one for one in answer.brokers if one.node_id == leader]
        with RawClient(f"{where.host}:{where.port}") as raw:
            return [int(row.value) for row in fetch_all(raw, topic, partition=partition)]
    raise AssertionError("a cluster has a broker")
