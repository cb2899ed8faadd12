"""A worker process that died between two orders: its broker closes its end, and its disk is not
blamed for the pipe."""

import os
import signal
from pathlib import Path

import pytest

from harness.disks.recorded_disk import OWNER, RecordedDisk
from harness.processes.cluster import until
from tidelog.node.ipc.ledger_memory import ledgers_left
from tidelog.node.log.cleaning import Job
from tidelog.node.runtime.cleaner_worker import Order, Worker, WorkerDiedError
from tidelog.node.runtime.healthy import Healthy
from tidelog.tools.chaos.losing import Victim, workers_of

pytestmark = pytest.mark.slow

JOB = Job(
    segments=(),
    dirty_start=0,
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1,
    index_bytes_max=1,
    index_interval_bytes=1,
    map_bytes_max=1,
    producers={},
    log_start=0,
)


def test_a_worker_that_died_unseen_is_closed_like_any_other(tmp_path: Path) -> None:
    with RecordedDisk(tmp_path) as disk:
        worker = Worker(disk.ledger, Healthy())
        victim = Victim("broker", 0, OWNER, (disk.top,))
        until(lambda: len(workers_of(disk.run_id, victim)) == 1, "its program runs")
        (pid,) = workers_of(disk.run_id, victim)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        order = Order(path=disk.top, metadata=b"", bytes_per_second=1.0, job=JOB)
        with pytest.raises(WorkerDiedError, match="signal 9"):
            list(worker.results(order))
        worker.close()
        assert ledgers_left(disk.run_id, OWNER) == []
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED)
