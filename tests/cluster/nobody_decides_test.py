"""Three brokers under load without those who decide: the coordinator dead, the supervisor paused or
dead. What was acknowledged is there in the end, and a dead cluster leaves nothing behind."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.raw_socket import RawClient
from harness.faults.chaos import Load, wrong_in_the_end
from harness.processes.cluster import Cluster, until
from tidelog.tools.log_files.data_folder import open_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "tides"
PARTITIONS = 3
MANY = 500


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as running:
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        running.done("topic", "create", TOPIC, *words, "--config", "min.insync.replicas=2")
        yield running


def load_on(trio: Cluster) -> Load:
    return Load(trio.bootstrap, TOPIC, PARTITIONS, "load")


def check(trio: Cluster, load: Load) -> None:
    """Everything acknowledged is on each replica, once, and the replicas are equal."""
    trio.done("wait", "isr", TOPIC, "--timeout", "60")
    trio.stop()
    assert wrong_in_the_end(trio, TOPIC, PARTITIONS, [load]) == []


def test_the_data_s_way_needs_no_coordinator(trio: Cluster) -> None:
    """It is dead as long as this wants: the supervisor, who would start it again, is stopped."""
    supervisor, coordinator = trio.runs[-1].pid, trio.process("coordinator")["pid"]
    before = open_folder(trio.data).image.names[TOPIC].partitions
    with load_on(trio) as load:
        load.wait_for_more(1)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(coordinator, signal.SIGKILL)
        load.wait_for_more(MANY)
        os.kill(supervisor, signal.SIGCONT)
        names = itertools.count()
        # What a broker had sent when it saw that the coordinator is gone may be decided or not.
        until(
            lambda: trio.command("topic", "create", f"decided-{next(names)}").code == 0,
            "somebody decides again",
        )
        load.wait_for_more(MANY)
    assert load.failed == []
    assert open_folder(trio.data).image.names[TOPIC].partitions == before  # nobody lost anything
    with RawClient(trio.bootstrap.split(",")[before[0].leader]) as raw:
        assert len(fetch_all(raw, TOPIC)) >= MANY // PARTITIONS
    check(trio, load)


def test_a_broker_that_dies_while_the_supervisor_is_stopped_is_missed_when_it_goes_on(
    trio: Cluster,
) -> None:
    supervisor, broker = trio.runs[-1].pid, trio.broker_pid(1)
    with load_on(trio) as load:
        load.wait_for_more(1)
        os.kill(supervisor, signal.SIGSTOP)
        load.wait_for_more(MANY)
        os.kill(broker, signal.SIGKILL)
        os.kill(supervisor, signal.SIGCONT)
        until(lambda: trio.process("broker", 1)["state"] == "killed", "the death is seen")
        load.wait_for_more(MANY)
        trio.done("broker", "start", "1")
    check(trio, load)


def test_a_dead_supervisor_takes_all_with_it_and_what_was_acknowledged_is_there_next_time(
    trio: Cluster,
) -> None:
    with load_on(trio) as load:
        load.wait_for_more(MANY)
        os.kill(trio.runs[-1].pid, signal.SIGKILL)
        trio.assert_nothing_runs()
        trio.start()
        load.wait_for_more(MANY)
    check(trio, load)
