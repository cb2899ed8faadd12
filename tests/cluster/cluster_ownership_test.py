"""A cluster stays its owner's: starts elsewhere and copies of its folder do not touch it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from harness.disks.mounts import (
    SHARED_MEMORY,
    TEMPORARY,
    need_mounts,
    own_mounts,
    read_only,
    small_disk,
    small_temporary,
)
from harness.processes.cluster import STAND_INS, Cluster, until
from harness.processes.commands import Finished
from tidelog.node.ipc.board import memory_of_run
from tidelog.tools.supervisor import runs
from tidelog.tools.supervisor.disks import detach

pytestmark = pytest.mark.slow

_BYTES = 128 << 20
_CONTAINER = ("unshare", "-pf", "--mount-proc")
_STARTS = ("up", "--detach", "--base-port", "0", "--brokers", "1")


def copied(cluster: Cluster, name: str) -> Cluster:
    """A copy of a cluster's folder, made by the user while it ran; nothing is started in it."""
    place = cluster.folder.parent / name
    shutil.copytree(cluster.folder, place)
    return Cluster(place, program=cluster.program)


def in_container(cluster: Cluster, *words: str) -> Finished:
    """The command where processes are numbered by themselves; all it starts ends with it."""
    done = subprocess.run(
        [*_CONTAINER, sys.executable, *STAND_INS, *words],
        cwd=cluster.folder,
        env=cluster.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def test_a_start_with_other_shared_memory_leaves_a_running_cluster_alone() -> None:
    need_mounts()
    with own_mounts():
        small_temporary(_BYTES)
        small_disk(SHARED_MEMORY, _BYTES)
        with Cluster(TEMPORARY / "a", program=STAND_INS, options=["--ephemeral"]) as cluster:
            with own_mounts():
                small_disk(SHARED_MEMORY, _BYTES)
                with Cluster(TEMPORARY / "b", program=STAND_INS):
                    pass
            assert cluster.data.is_dir()
            assert cluster.status()["state"] == "running"


@pytest.mark.parametrize("shares_memory", [False, True])
def test_a_start_in_another_container_leaves_a_running_cluster_alone(
    *, shares_memory: bool
) -> None:
    need_mounts()
    with own_mounts():
        small_temporary(_BYTES)
        small_disk(SHARED_MEMORY, _BYTES)
        with Cluster(TEMPORARY / "a", program=STAND_INS, options=["--ephemeral"]) as cluster:
            other = Cluster(TEMPORARY / "b", program=STAND_INS)
            other.folder.mkdir()
            with own_mounts():
                if not shares_memory:
                    small_disk(SHARED_MEMORY, _BYTES)
                done = in_container(other, *_STARTS)
            assert done.code == 0, done
            assert cluster.data.is_dir()
            assert cluster.status()["state"] == "running"


def test_a_cluster_is_seen_and_ended_from_another_container() -> None:
    """That shares its folders; no number of the kernel is of use there."""
    need_mounts()
    with own_mounts():
        small_temporary(_BYTES)
        with Cluster(TEMPORARY / "a", program=STAND_INS) as cluster:
            refused = in_container(cluster, *_STARTS)
            assert "is already running (in another container)" in refused.err
            assert (
                '"state": "running", "pid": null'
                in in_container(cluster, "cluster", "list", "--json").out
            )
            assert in_container(cluster, "status").code == 0
            assert in_container(cluster, "down").out == "cluster 'default' ended\n"


def test_a_copy_of_a_running_clusters_folder_is_a_stopped_cluster_of_its_own(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path / "a", program=STAND_INS) as cluster:
        copy = copied(cluster, "b")
        assert copy.command("status").code == 4
        assert "was not running" in copy.command("down", "--force").err
        assert copy.command("broker", "kill", "0").code == 4
        with copy:
            assert copy.status()["data"] == str(tmp_path / "b/.tidelog/default")
            assert copy.status()["cluster_id"] == cluster.status()["cluster_id"]
            assert copy.runs[-1].run_id != cluster.runs[-1].run_id
            assert cluster.status()["data"] == str(tmp_path / "a/.tidelog/default")
        assert cluster.process("broker")["state"] == "running"


def test_a_copy_beside_a_running_ephemeral_cluster_does_not_lead_to_it(tmp_path: Path) -> None:
    with Cluster(tmp_path / "a", program=STAND_INS, options=["--ephemeral"]) as cluster:
        copy = copied(cluster, "b")
        assert copy.command("status").code in {3, 4}
        copy.command("down", "--force")
        assert cluster.process("broker")["state"] == "running"


def test_a_link_and_a_bind_mount_lead_to_the_same_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path / "a", program=STAND_INS) as cluster:
        (tmp_path / "link").symlink_to(cluster.folder)
        linked = Cluster(tmp_path / "link", program=STAND_INS)
        assert linked.status()["cluster_id"] == cluster.status()["cluster_id"]
        refused = linked.command("up", "--detach", "--base-port", "0")
        assert f"is already running (pid {cluster.runs[-1].pid})" in refused.err


def test_a_stopped_cluster_goes_on_in_the_place_it_was_moved_to(tmp_path: Path) -> None:
    with Cluster(tmp_path / "a", program=STAND_INS) as cluster:
        was = cluster.status()["cluster_id"]
        cluster.kill_everything()
        cluster.folder.rename(tmp_path / "b")
        with Cluster(tmp_path / "b", program=STAND_INS) as moved:
            assert moved.status()["cluster_id"] == was
        cluster.runs.clear()


# -- the folder goes while the cluster runs -----------------------------------------------------


def ends(cluster: Cluster) -> None:
    until(lambda: not cluster.pids(), "all its processes have ended")
    cluster.assert_nothing_runs()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "a", program=STAND_INS)
    with contextlib.suppress(FileNotFoundError), cluster:  # nothing is left to be ended
        yield cluster


def test_a_cluster_ends_when_its_folder_is_deleted(running: Cluster) -> None:
    shutil.rmtree(running.folder / ".tidelog")
    ends(running)
    assert list(running.folder.iterdir()) == []
    assert running.command("status").code != 0
    running.start()


def test_a_cluster_ends_when_only_its_lock_is_deleted(running: Cluster) -> None:
    (running.data / "lock").unlink()
    ends(running)
    assert running.command("status").code == 4
    running.start()


def test_a_cluster_ends_when_its_folder_is_moved_and_goes_on_in_its_new_place(
    running: Cluster,
) -> None:
    was = running.status()["cluster_id"]
    there = running.folder.parent / "b"
    running.folder.rename(there)
    ends(running)
    assert not running.folder.exists()
    with Cluster(there, program=STAND_INS) as moved:
        assert moved.status()["cluster_id"] == was
    running.folder.mkdir()


def test_a_cluster_whose_folder_is_replaced_does_not_touch_the_other_one(
    running: Cluster,
) -> None:
    """Put back from a copy, as a backup is."""
    last = running.data / "logs/transaction-coordinator-0.log"
    until(last.exists, "all processes have begun their logs")
    shutil.copytree(running.data, running.folder / "backup")
    (running.folder / "backup" / "run.json").write_text("theirs")
    running.data.rename(running.folder / "old")
    (running.folder / "backup").rename(running.data)
    before = sorted(path.name for path in running.data.rglob("*"))
    ends(running)
    assert (running.data / "run.json").read_text() == "theirs"
    assert sorted(path.name for path in running.data.rglob("*")) == before
    running.start()


def test_a_cluster_ends_when_its_disk_is_unmounted() -> None:
    need_mounts()
    with own_mounts():
        small_temporary(_BYTES)
        place = TEMPORARY / "disk"
        small_disk(place, _BYTES)
        cluster = Cluster(TEMPORARY / "a", program=STAND_INS, options=["--data", str(place / "d")])
        with contextlib.suppress(FileNotFoundError), cluster:
            detach(place)
            ends(cluster)
            assert list(place.iterdir()) == []
            assert cluster.command("status", "--data", str(place / "d")).code != 0


def test_whoever_started_it_is_told_that_the_folder_is_gone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, program=STAND_INS)
    with cluster.open("up", "--base-port", "0") as up:
        cluster.done("wait", "ready")
        shutil.rmtree(tmp_path / ".tidelog")
        _, err = up.communicate(timeout=20)
    data = tmp_path / ".tidelog/default"
    assert f"error: cluster 'default' has ended: its data folder {data} was deleted\n" in err
    assert up.returncode == 1
    until(lambda: not cluster.pids(), "nothing is left")


# -- around the folder --------------------------------------------------------------------------


def test_an_ephemeral_cluster_of_a_folder_that_may_not_be_written_is_found_again(
    tmp_path: Path,
) -> None:
    """And writes nothing there. A user without rights stands in a folder of root."""
    need_mounts()
    with own_mounts():
        read_only(tmp_path)
        cluster = Cluster(tmp_path, program=STAND_INS, options=["--ephemeral"])
        with cluster:
            assert list(tmp_path.iterdir()) == []
            assert cluster.status()["state"] == "running"
            listed = cluster.done("cluster", "list", "--json").document["clusters"]
            (row,) = (one for one in listed if one["data"] == str(cluster.data))
            assert (row["state"], row["ephemeral"]) == ("running", True)
            assert "is already running" in cluster.command("up", "--ephemeral", "-d").err
            there = cluster.command("status", "--data", row["data"])
            assert there.code == 0
            cluster.done("down")


def test_the_folder_of_clusters_is_ignored_by_git(tmp_path: Path) -> None:
    with Cluster(tmp_path, program=STAND_INS) as cluster:
        ignored = tmp_path / ".tidelog" / ".gitignore"
        assert ignored.read_text() == "*\n"
        ignored.write_text("# mine\n")
        cluster.stop()
        cluster.start()
        assert ignored.read_text() == "# mine\n"
    elsewhere = {"TIDELOG_DATA": str(tmp_path / "a/d")}
    with Cluster(tmp_path / "a", program=STAND_INS, environment=elsewhere):
        assert not (tmp_path / "a" / ".gitignore").exists()


def test_a_port_of_another_cluster_is_refused_with_its_name_folder_and_supervisor(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path / "a", program=STAND_INS) as cluster:
        port = cluster.process("broker")["port"]
        cluster.done("broker", "kill", "0")  # nobody listens; the supervisor keeps the port
        other = Cluster(tmp_path / "b", program=STAND_INS)
        other.folder.mkdir()
        refused = other.command("up", "--detach", "--brokers", "1", "--base-port", str(port))
        assert refused.err == (
            f"error: port {port} is in use by cluster 'default' in {cluster.data} (pid "
            f"{cluster.runs[-1].pid}), whose supervisor keeps it: stop what uses it, or choose "
            "another with --base-port\n"
        )


def test_a_run_that_lives_without_its_lock_is_not_started_over(running: Cluster) -> None:
    """Its supervisor has no chance to notice: it is stopped."""
    pid = running.runs[-1].pid
    os.kill(pid, signal.SIGSTOP)
    (running.data / "lock").unlink()
    refused = running.command("up", "--detach", "--base-port", "0")
    assert refused.code == 1
    assert f"the supervisor (pid {pid}) of an earlier run in {running.data}" in refused.err
    assert Path(running.runs[-1].runtime_dir, "supervisor.sock").exists()
    os.kill(pid, signal.SIGCONT)
    ends(running)
    running.start()


def test_a_run_that_died_in_another_container_gives_up_its_folder_and_keeps_the_rest(
    running: Cluster,
) -> None:
    """As a container that is killed and made anew, with the data on a volume."""
    run = running.runs.pop()
    assert run.life is not None
    running.kill_everything()
    away = structs.replace(run, life=structs.replace(run.life, namespaces="pid:[1]"))
    said = (
        Path(run.data_dir, "run.json"),
        Path(run.runtime_dir, "run.json"),
        SHARED_MEMORY / runs.life_name(run.run_id)[1:],
    )
    for path in said:
        path.write_bytes(runs.document(away))
    try:
        running.start()
        assert running.status()["data"] == run.data_dir
        assert Path(run.runtime_dir, "supervisor.sock").exists()
        assert memory_of_run(run.run_id) != []
    finally:
        said[1].write_bytes(runs.document(run))
        said[2].write_bytes(runs.document(run))
    running.stop()
    running.start()
    assert not Path(run.runtime_dir).exists()
