"""A power loss waits for the processes that compact for a dead broker: they outlive it a little."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.disks.recorded_disk import OWNER, RecordedDisk
from harness.processes.cluster import until
from tidelog.node.runtime.cleaner_worker import Worker
from tidelog.node.runtime.healthy import Healthy
from tidelog.tools.chaos.losing import UnknownError, Victim, wait_for_workers, workers_of

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk(tmp_path) as disk:
        yield disk


def victim(disk: RecordedDisk, ledger: str = OWNER) -> Victim:
    return Victim("broker", 0, ledger, (disk.top,))


def test_a_worker_is_known_by_the_broker_it_compacts_for(
    disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(disk.ledger, Healthy())
    try:
        until(lambda: len(workers_of(disk.run_id, victim(disk))) == 1, "its program runs")
        (pid,) = workers_of(disk.run_id, victim(disk))
        assert os.getpgid(pid) == os.getpgid(0)
        assert workers_of(disk.run_id, victim(disk, f"{OWNER}0")) == [], "another broker's"
        assert workers_of("another-run", victim(disk)) == []
        monkeypatch.setattr("tidelog.tools.chaos.losing._WORKERS_END_WITHIN_S", 0.01)
        with pytest.raises(UnknownError, match=rf"do not end \(pid {pid}\): kill them"):
            wait_for_workers(disk.run_id, [victim(disk)])
    finally:
        worker.close()
    wait_for_workers(disk.run_id, [victim(disk)])
    assert workers_of(disk.run_id, victim(disk)) == []
