"""A supervisor in the foreground looks after its cluster also if nobody reads what it says."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import STAND_INS, Cluster, send_all, until
from tidelog.tools.supervisor.ask import Link

pytestmark = pytest.mark.slow

UP = ("up", "--brokers", "3", "--base-port", "0")


@contextmanager
def foreground(cluster: Cluster, output: int, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """A cluster whose supervisor writes to this descriptor; ready when this is entered."""
    with subprocess.Popen(
        [*before, sys.executable, *cluster.program, *UP],
        cwd=cluster.folder,
        env=cluster.variables(),
        stdin=output if os.isatty(output) else subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    ) as up:
        try:
            until(lambda: cluster.command("wait", "ready").code == 0, "the cluster is ready")
            yield up
        finally:
            send_all([up.pid, *cluster.pids()], signal.SIGKILL)


def states(cluster: Cluster) -> dict[int, str]:
    """Of the brokers; fails where the supervisor does not answer soon."""
    rows: list[dict[str, Any]] = cluster.command("status", "--json", timeout_s=15).document[
        "processes"
    ]
    return {row["id"]: row["state"] for row in rows if row["role"] == "broker"}


def kill(cluster: Cluster, broker: int) -> None:
    os.kill(cluster.broker_pid(broker), signal.SIGKILL)
    until(lambda: states(cluster)[broker] == "killed", f"the death of broker {broker} is noticed")


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Everything up to and with these bytes."""
    found = b""
    while wanted not in found:
        found += os.read(descriptor, 65_536)
    return found


def fill(pipe: int) -> None:
    """Until it takes nothing more."""
    writer = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x")
    os.close(writer)


def test_a_terminal_stopped_by_ctrl_s_stops_no_supervisor(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    cluster = Cluster(tmp_path, brokers=3, program=STAND_INS)
    with foreground(cluster, theirs) as up:
        read_until(ours, b"Ctrl-C ends it.")
        termios.tcflow(theirs, termios.TCOOFF)
        kill(cluster, 0)
        kill(cluster, 1)
        termios.tcflow(theirs, termios.TCOON)
        shown = read_until(ours, b"broker start 1")
        assert b"broker start 0" in shown
        assert not fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK  # the shell has it, too
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=20) == 0
    os.close(ours)
    os.close(theirs)
    cluster.assert_nothing_is_left()


def test_a_full_pipe_that_nobody_reads_stops_no_supervisor(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    cluster = Cluster(tmp_path, brokers=3, program=STAND_INS)
    with foreground(cluster, writer) as up:
        fill(writer)
        kill(cluster, 0)
        kill(cluster, 1)
        assert b"broker start 0" in read_until(reader, b"broker start 1")
        assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
        fill(writer)
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=20) == 0
    os.close(reader)
    os.close(writer)
    cluster.assert_nothing_is_left()


def test_a_supervisor_in_the_background_may_write_to_a_terminal_that_stops_others(
    tmp_path: Path,
) -> None:
    ours, theirs = pty.openpty()
    in_the_background = ("setsid", "-c", "-w", "bash", "-mc", 'stty tostop; "$@" & wait', "bash")
    cluster = Cluster(tmp_path, brokers=3, program=STAND_INS)
    with foreground(cluster, theirs, *in_the_background):
        kill(cluster, 0)
        kill(cluster, 1)
        assert b"broker start 0" in read_until(ours, b"broker start 1")
        cluster.done("down")
    os.close(ours)
    os.close(theirs)
    cluster.assert_nothing_is_left()


def test_a_death_is_told_before_a_log_that_takes_nothing_is_written(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, brokers=2, program=STAND_INS)
    with cluster:
        pass
    log = cluster.data / "logs/supervisor-0.log"
    log.unlink()
    os.mkfifo(log)
    reader = os.open(log, os.O_RDWR)
    cluster.start()
    pid = cluster.broker_pid(1)
    with Link.to(cluster.data) as link:
        link.watch()
        while link.read()["id"] != 1:
            pass
        fill(reader)
        os.kill(pid, signal.SIGKILL)
        while (event := link.read())["event"] != "died":
            pass
        assert event["id"] == 1
    os.close(reader)
    send_all(cluster.pids(), signal.SIGKILL)
    until(lambda: not cluster.pids(), "all processes are dead")
    log.unlink()
    with cluster:
        pass
