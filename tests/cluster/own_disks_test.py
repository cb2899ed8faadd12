"""Clusters on disks of their own: found again, and nothing stays mounted whoever dies.

Needs root and loop devices; skips without.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from harness.disks.mounts import need_disks, own_mounts
from harness.processes.cluster import STAND_INS, Cluster, until
from tidelog.tools.chaos.kernel_loss import shut_down
from tidelog.tools.output import UNREACHABLE
from tidelog.tools.supervisor.ask import EndedError, Link
from tidelog.tools.supervisor.ending import end
from tidelog.tools.supervisor.folder import run_in
from tidelog.tools.supervisor.runs import Run

pytestmark = pytest.mark.slow

DISKS = ["--disks", "loop:32MiB"]
NAMES = ["broker-0", "coordinator"]


@pytest.fixture(autouse=True)
def _mounts_of_our_own() -> Iterator[None]:
    need_disks()
    with own_mounts():
        yield


def mounted(cluster: Cluster) -> list[str]:
    return sorted(place.name for place in cluster.data.iterdir() if place.is_mount())


def loop_devices(cluster: Cluster) -> list[str]:
    """That the kernel still has for the images."""
    images = list(cluster.data.glob("disks/*.ext4"))
    found = [subprocess.check_output(["losetup", "-j", str(one)], text=True) for one in images]
    return [line for line in found if line]


def assert_all_is_let_go(cluster: Cluster) -> None:
    assert mounted(cluster) == []
    until(lambda: not loop_devices(cluster), "no loop device is left", 5)


def stand_ins(folder: Path, *options: str) -> Cluster:
    return Cluster(folder, program=STAND_INS, options=options)


def test_disks_are_found_again_and_gone_in_between(tmp_path: Path) -> None:
    with stand_ins(tmp_path, *DISKS) as cluster:
        assert mounted(cluster) == NAMES
        assert list((cluster.data / "broker-0").iterdir()) == []
        (cluster.data / "broker-0/kept").write_text("this")
        cluster.stop()
        assert_all_is_let_go(cluster)
        assert not (cluster.data / "broker-0/kept").exists()
    refused = cluster.command("log", "verify")
    assert (refused.code, "start it with tidelog up" in refused.err) == (1, True)
    with stand_ins(tmp_path):
        assert mounted(cluster) == NAMES
        assert (cluster.data / "broker-0/kept").read_text() == "this"
    assert_all_is_let_go(cluster)


def test_a_disk_that_somebody_holds_open_is_not_mounted_twice(tmp_path: Path) -> None:
    with stand_ins(tmp_path, *DISKS) as cluster:
        held = (cluster.data / "broker-0/held").open("wb")
    assert mounted(cluster) == []
    with held:
        refused = cluster.command("up", "-d", "--base-port", "0")
        assert refused.code == 1
        assert f"{cluster.data}/disks/broker-0.ext4 is still in use by /dev/loop" in refused.err
        assert mounted(cluster) == []
    with cluster:
        assert mounted(cluster) == NAMES
    assert_all_is_let_go(cluster)


@pytest.mark.parametrize("cleaned_by", ["down", "another start"])
def test_what_dead_runs_have_left_is_unmounted(tmp_path: Path, cleaned_by: str) -> None:
    cluster = stand_ins(tmp_path / "first", *DISKS)
    with cluster:
        cluster.kill_everything()
        assert mounted(cluster) == NAMES
        if cleaned_by == "down":
            cluster.done("down")
        else:
            with stand_ins(tmp_path / "second", *DISKS) as alive:
                assert_all_is_let_go(cluster)
                with stand_ins(tmp_path / "third"):
                    assert mounted(alive) == NAMES
            cluster.done("down")
        assert_all_is_let_go(cluster)


def test_a_supervisor_that_is_killed_while_it_is_asked_to_end_leaves_no_mounts(
    tmp_path: Path,
) -> None:
    class Killed(Link):
        """It took the connection, and was killed then."""

        def __init__(self, run: Run) -> None:
            self.run, self.folder = run, Path(run.data_dir)

        def wake(self) -> None: ...

        def ask(self, what: str, **_: object) -> NoReturn:
            raise EndedError(what, UNREACHABLE)

        def wait_until_gone(self, _within_s: float) -> bool:
            return True

    with stand_ins(tmp_path, *DISKS) as cluster:
        cluster.kill_everything()
        run = run_in(cluster.data)
        assert run is not None
        end(Killed(run), force=False, sync=False, note=print)
        assert_all_is_let_go(cluster)


def test_a_supervisor_that_dies_alone_leaves_a_folder_that_starts_again(tmp_path: Path) -> None:
    with stand_ins(tmp_path, *DISKS) as cluster:
        (cluster.data / "broker-0/kept").write_text("this")
        os.kill(cluster.runs[-1].pid, signal.SIGKILL)
        cluster.start()
        assert mounted(cluster) == NAMES
        assert (cluster.data / "broker-0/kept").read_text() == "this"
    assert_all_is_let_go(cluster)


def test_a_command_that_died_at_a_cut_leaves_a_broker_that_starts(tmp_path: Path) -> None:
    with stand_ins(tmp_path, *DISKS) as cluster:
        cluster.done("broker", "kill", "0")
        shut_down(cluster.data / "broker-0")
        cluster.done("broker", "start", "0")
        assert mounted(cluster) == NAMES
        (cluster.data / "broker-0/new").write_text("works")
    assert_all_is_let_go(cluster)


def test_an_ephemeral_cluster_takes_its_disks_with_it(tmp_path: Path) -> None:
    with stand_ins(tmp_path, *DISKS, "--ephemeral") as cluster:
        assert mounted(cluster) == NAMES
        data = cluster.data
        devices = loop_devices(cluster)
        assert len(devices) == len(NAMES)
        cluster.stop()
        assert not data.exists()
        listed = subprocess.check_output(["losetup", "--all"], text=True)
        assert str(data) not in listed


def test_nothing_stays_mounted_when_the_folder_is_deleted_under_a_running_cluster(
    tmp_path: Path,
) -> None:
    """The images go; what is mounted of them cannot be deleted."""
    with stand_ins(tmp_path, *DISKS) as cluster:
        data = cluster.data
        assert data.is_relative_to(tmp_path)
        shutil.rmtree(tmp_path / ".tidelog", ignore_errors=True)
        until(lambda: not cluster.pids(), "it has ended")
        assert mounted(cluster) == []
        assert sorted(path.name for path in data.iterdir()) == NAMES
        shutil.rmtree(tmp_path / ".tidelog")
