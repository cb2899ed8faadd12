"""Coordinators that stand by, in real processes: whoever leads may die or hang at any moment."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.clients.creations import Creations, create, topics
from harness.clients.raw_socket import RawClient
from harness.faults.chaos import Load, wrong_in_the_end
from harness.processes.cluster import Cluster, until
from tidelog.node.ipc.board import memory_of_run
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.wire.errors import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "tides"
PARTITIONS = 3
CREATIONS_A_LEG = 10
HOWS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)


def guarded_by_two(folder: Path, brokers: int) -> Cluster:
    """Brokers, a coordinator, and two that stand by."""
    return Cluster(folder, brokers=brokers, options=["--standby-coordinators", "2"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that leave it with all its processes."""
    with guarded_by_two(tmp_path_factory.mktemp("guarded"), 1) as running:
        yield running


def coordinators(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """By what they do now."""
    rows = cluster.status()["processes"]
    return {
        role: [row for row in rows if row["role"] == role] for role in ("coordinator", "standby")
    }


def led_by_another(cluster: Cluster, before: int) -> bool:
    pid = cluster.status()["controller"]["pid"]
    return pid not in {None, before}


def epochs_led(cluster: Cluster) -> list[int]:
    """Of all who ever led, in the order in which they said so."""
    logs = (cluster.data / "logs").glob("coordinator-*.log")
    said = [line for log in logs for line in log.read_text().splitlines()]
    lines = [line for line in said if '"event": "active"' in line]
    return [int(line.partition('"epoch": ')[2].partition(",")[0]) for line in sorted(lines)]


def test_whoever_leads_dies_or_hangs_and_nothing_that_was_answered_is_lost(
    tmp_path: Path, *, nightly: bool
) -> None:
    with guarded_by_two(tmp_path, 3) as trio:
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        trio.done("topic", "create", TOPIC, *words, "--config", "min.insync.replicas=2")
        lose_leaders(trio, HOWS * (10 if nightly else 1))


def lose_leaders(guarded: Cluster, hows: Sequence[signal.Signals]) -> None:
    creations = Creations(guarded.bootstrap)
    with ThreadPoolExecutor(1) as pool, Load(guarded.bootstrap, TOPIC, PARTITIONS, "load") as load:
        run = pool.submit(creations.run)
        try:
            for how in hows:
                creations.wait_for(creations.good() + CREATIONS_A_LEG)
                pid = guarded.status()["controller"]["pid"]
                os.kill(pid, how)
                until(lambda old=pid: led_by_another(guarded, old), "another one leads")  # type: ignore[misc]  # mypy knows no default here
                guarded.done("wait", "ready")
                assert len(coordinators(guarded)["coordinator"]) == 1
                assert len(coordinators(guarded)["standby"]) == 2
            creations.wait_for(creations.good() + CREATIONS_A_LEG)
            load.wait_for_more(100)
        finally:
            creations.ended.set()
        run.result()
    assert load.failed == []
    assert set(creations.answered.values()) == {ErrorCode.NONE}, "nobody was refused"
    assert creations.maybe_deleted == set()
    with RawClient(guarded.bootstrap) as client:
        there = topics(client)
    guarded.done("wait", "isr", TOPIC, "--timeout", "60")
    guarded.stop()
    assert there.keys() == {TOPIC, *creations.answered} - creations.deleted
    assert open_folder(guarded.data).image.names.keys() == there.keys()
    assert epochs_led(guarded) == list(range(1, len(hows) + 2))
    assert wrong_in_the_end(guarded, TOPIC, PARTITIONS, [load]) == []


def test_standbys_may_die_or_hang_and_nobody_notices(guarded: Cluster) -> None:
    before = guarded.status()["controller"]
    first, second = (row["pid"] for row in coordinators(guarded)["standby"])
    os.kill(first, signal.SIGKILL)
    os.kill(second, signal.SIGSTOP)
    until(
        lambda: not {first, second} & {row["pid"] for row in coordinators(guarded)["standby"]},
        "both are replaced",
    )
    guarded.done("wait", "ready")
    assert guarded.status()["controller"] == before
    with RawClient(guarded.bootstrap.split(",")[0]) as client:
        assert create(client, "made") is ErrorCode.NONE
    assert {row["state"] for row in guarded.status()["processes"]} == {"running"}


def test_one_that_hangs_keeps_no_other_from_taking_over(guarded: Cluster) -> None:
    roles = coordinators(guarded)
    stopped = roles["standby"][0]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    pid = roles["coordinator"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: led_by_another(guarded, pid), "the other one leads")
    assert guarded.status()["controller"]["pid"] != stopped
    until(lambda: stopped not in guarded.pids(), "who hangs is replaced")
    guarded.done("wait", "ready")


@pytest.mark.parametrize("with_it", ["nobody", "whoever leads"])
def test_nothing_is_left_when_the_supervisor_dies(tmp_path: Path, with_it: str) -> None:
    with guarded_by_two(tmp_path, 1) as cluster:
        run, pid = cluster.runs[-1], cluster.status()["controller"]["pid"]
        os.kill(run.pid, signal.SIGSTOP)
        if with_it != "nobody":
            os.kill(pid, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        until(lambda: not cluster.pids(), "all have followed")
        assert memory_of_run(run.run_id) == []
        assert not Path(run.runtime_dir).exists()
        cluster.start()


def test_who_stands_by_can_be_killed_by_its_id_and_whoever_leads_by_its_role(
    guarded: Cluster,
) -> None:
    roles, before = coordinators(guarded), guarded.status()["controller"]
    (leading,), standbys = roles["coordinator"], [str(row["id"]) for row in roles["standby"]]
    guarded.done("coordinator", "kill", "--standby", standbys[0])
    guarded.done("wait", "ready")
    assert guarded.status()["controller"] == before
    refused = guarded.command("coordinator", "kill", "--standby", str(leading["id"]))
    assert refused.code == 3
    assert f"they are {', '.join(standbys)}" in refused.err
    guarded.done("coordinator", "kill")
    guarded.done("wait", "ready")
    epoch = before["epoch"] + 1
    until(lambda: guarded.status()["controller"]["epoch"] == epoch, "a standby leads")
    assert f"standby {leading['id']}" in guarded.done("status").out


def test_requests_wait_for_the_one_that_takes_over(guarded: Cluster) -> None:
    with RawClient(guarded.bootstrap.split(",")[0]) as client:
        for number in range(3):
            pid = guarded.status()["controller"]["pid"]
            os.kill(pid, signal.SIGKILL)
            assert create(client, f"t{number}") is ErrorCode.NONE
            guarded.done("wait", "ready")
