"""`tidelog down` where something does not end: it wakes, says who is late, or kills by force."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import STAND_INS, Cluster, until
from tidelog.tools import cli
from tidelog.tools.supervisor import ending, proc
from tidelog.tools.supervisor.ask import Link, SaidNoError
from tidelog.tools.supervisor.folder import run_in

pytestmark = pytest.mark.slow


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Cluster]:
    """Its broker ignores SIGTERM."""
    ignoring = {"STAND_IN_BROKER": "ignores"}
    with Cluster(tmp_path, program=STAND_INS, environment=ignoring) as cluster:
        yield cluster


def end(cluster: Cluster, *, force: bool = False) -> list[str]:
    """In this process, so that a test may shorten its patience; what was noted."""
    notes: list[str] = []
    with Link.to(cluster.data) as link:
        ending.end(link, force=force, sync=False, note=notes.append)
    return notes


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: proc.is_stopped(pid), "the process is stopped")


def test_who_is_late_is_named_and_what_to_do_is_said(
    deaf: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = deaf.broker_pid(0)
    monkeypatch.setattr(ending, "LATE_AFTER_S", 0.1)
    monkeypatch.setattr(ending, "GIVE_UP_AFTER_S", 0.2)
    with pytest.raises(SaidNoError, match=rf"broker 0 \(pid {pid}\); wait on .* --force") as told:
        end(deaf)
    assert told.value.code == 4
    (note,) = end(deaf, force=True)
    assert note.startswith(f"waiting for broker 0 (pid {pid})")
    deaf.assert_nothing_is_left()


def test_a_supervisor_stopped_in_its_terminal_is_woken(deaf: Cluster) -> None:
    run = deaf.runs[-1]
    stop(run.pid)
    told = deaf.command("status")
    assert told.code == 4
    assert f"(pid {run.pid}) is stopped: let it go on with fg" in told.err
    deaf.stop("--force")
    deaf.assert_nothing_is_left()


def test_a_supervisor_that_never_answers_is_killed_by_force_and_only_then(
    deaf: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(deaf.runs[-1].pid)
    monkeypatch.setattr(Link, "wake", lambda _: None)
    with pytest.raises(SaidNoError, match="or kill it with tidelog down --force"):
        end(deaf)
    end(deaf, force=True)
    deaf.assert_nothing_is_left()


def test_what_outlives_its_supervisor_and_coordinator_is_ended_too(
    deaf: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = deaf.broker_pid(0)
    together = [deaf.runs[-1].pid, deaf.process("coordinator")["pid"]]
    for pid in together:
        stop(pid)
    for pid in together:
        os.kill(pid, signal.SIGKILL)
    until(lambda: deaf.pids() == [broker], "only the broker is left")
    monkeypatch.setattr(ending, "REST_ENDS_WITHIN_S", 0.1)
    assert cli.run(["down", "--data", str(deaf.data)]) == 4
    assert f"error: process {broker} has lost its supervisor" in capsys.readouterr().err
    assert run_in(deaf.data) is not None
    forced = deaf.done("down", "--force")
    assert f"killed process {broker}, which did not end by itself" in forced.err
    assert forced.out == "cluster 'default' ended\n"
    deaf.assert_nothing_is_left()


def test_a_supervisor_whose_sockets_somebody_removed_is_not_called_gone(deaf: Cluster) -> None:
    run = deaf.runs[-1]
    shutil.rmtree(run.runtime_dir)
    told = deaf.command("down")
    assert told.code == 4
    assert f"the supervisor (pid {run.pid}) has {deaf.data} and does not listen" in told.err
    deaf.done("down", "--force")
    deaf.assert_nothing_is_left()
