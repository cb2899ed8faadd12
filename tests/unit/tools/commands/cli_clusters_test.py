"""`tidelog cluster`: what runs anywhere and what rests is listed; a stopped cluster is deleted."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs, to_builtins

from harness.processes.commands import Finished
from harness.processes.golden import Golden, spoken
from harness.processes.lonely import started, stopped
from tidelog.node.runtime.lives import Life, identity
from tidelog.tools import cli
from tidelog.tools.supervisor import leftovers, registry, runs
from tidelog.tools.supervisor.folder import DataFolder, replace_file
from tidelog.tools.supervisor.runs import Run

pytestmark = pytest.mark.usefixtures("alone")

Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """A command, and what it prints."""

    def run(*words: str) -> str:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        out = out.replace(str(os.getpid()), "4711")
        return spoken(words, Finished(code, out, err), tmp_path)

    return run


def rests(project: Path, name: str) -> Path:
    """A stopped cluster that this user started there once."""
    data = stopped(project, name)
    registry.note(Run("", 0, name, "", str(data), "", folder=identity(data)))
    return data


def test_clusters(say: Say, alone: Path, tmp_path: Path, golden: Golden) -> None:
    text = say("cluster", "list") + say("cluster", "list", "--json")
    run = started(tmp_path / "base", stopped(tmp_path / "harbour"))
    ephemeral = structs.replace(
        run, run_id="22334455", cluster="trial", data_dir=str(tmp_path / "tidelog-22334455-data")
    )
    ephemeral = structs.replace(
        ephemeral,
        runtime_dir=str(tmp_path / "base/tidelog-22334455"),
        folder=(1, 2),
        origin=(1, 1),
        bootstrap="127.0.0.1:40001,127.0.0.1:40007",
    )
    Path(ephemeral.runtime_dir).mkdir()
    leftovers.say_first(ephemeral)
    stopped(alone, "payments")
    rests(tmp_path / "old", "orders")
    text += say("cluster", "list") + say("cluster", "list", "--json")
    text += say("cluster", "list", "--all")
    golden("cli_clusters_list", text)


def test_delete(say: Say, alone: Path, tmp_path: Path, golden: Golden) -> None:
    payments = stopped(alone, "payments")
    old = rests(tmp_path / "old", "orders")
    text = say("cluster", "delete", "payments")
    assert payments.exists()
    text += say("cluster", "delete", "payments", "--yes")
    assert not payments.exists()
    assert list(payments.parent.iterdir()) == []
    text += say("cluster", "delete", "payments", "--yes")
    text += say("cluster", "delete", "orders", "--yes")
    assert old.exists()
    text += say("cluster", "delete", "--data", str(old), "--yes", "--json")
    assert not old.exists()
    text += say("cluster", "delete", "--data", str(old), "--yes")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    text += say("cluster", "delete", "--data", str(tmp_path / "mine"), "--yes")
    assert (tmp_path / "mine" / "thesis").exists()
    text += say("cluster", "delete", "--yes") + say("cluster", "delete", "../x", "--yes")
    golden("cli_clusters_delete", text)


@pytest.mark.parametrize("holds", ["DataFolder.claim(path, 'default')", "hold_as_child(path)"])
def test_a_cluster_whose_processes_live_is_not_deleted(say: Say, alone: Path, holds: str) -> None:
    """Its supervisor, or a broker that has outlived it."""
    data = stopped(alone)
    program = (
        "import sys; from pathlib import Path; from tidelog.tools.supervisor.folder import *; "
        f"path = Path(sys.argv[1]); {holds}; print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        told = say("cluster", "delete", "default", "--yes")
        other.kill()
    assert "is running: end it first with tidelog down\nexit 1" in told
    assert (data / "cluster.json").exists()


def test_a_stopped_cluster_without_its_lock_file_is_deleted(say: Say, alone: Path) -> None:
    """Nobody can have it: it says of no run that has the folder."""
    data = stopped(alone)
    (data / "lock").unlink()
    assert "deleted " in say("cluster", "delete", "default", "--yes")
    assert not data.exists()


def container() -> Life:
    return structs.replace(Life.own(), namespaces="pid:[1]")


@pytest.mark.parametrize("life", [Life.own, container])
def test_a_cluster_that_may_run_without_its_lock_file_is_not_deleted(
    say: Say, alone: Path, tmp_path: Path, life: Callable[[], Life]
) -> None:
    """Its processes hold the lock that was deleted, which nobody else can see."""
    data = stopped(alone)
    run = structs.replace(started(tmp_path / "base", data), life=life())
    replace_file(data, runs.FILE, to_builtins(run), durable=False)
    (data / "lock").unlink()
    told = say("cluster", "delete", "default", "--yes")
    assert "is running: end it first with tidelog down\nexit 1" in told
    assert (data / "cluster.json").exists()
    assert not (data / "lock").exists()


def test_logs_that_lie_elsewhere_stay_and_are_named(say: Say, alone: Path, tmp_path: Path) -> None:
    data = stopped(alone)
    away = tmp_path / "disk1" / "broker-0"
    away.mkdir(parents=True)
    folder = DataFolder.claim(data, "default")
    folder.cluster.ports = [9092]
    folder.cluster.settings = {"log.dirs": str(away.parent)}
    folder.save_cluster()
    folder.let_go()
    assert f"left in place, as log.dirs names it: {away}" in say(
        "cluster", "delete", "default", "--yes"
    ).replace("FOLDER", str(tmp_path))
    assert away.is_dir()


def test_a_folder_behind_a_link_goes_with_the_link(say: Say, alone: Path, tmp_path: Path) -> None:
    data = stopped(tmp_path / "big")
    (alone / ".tidelog").mkdir()
    (alone / ".tidelog" / "default").symlink_to(data)
    say("cluster", "delete", "default", "--yes")
    assert not data.exists()
    assert list((alone / ".tidelog").iterdir()) == []


def test_entries_that_lead_nowhere_or_are_open_to_others_are_dropped(
    say: Say, tmp_path: Path
) -> None:
    folder = rests(tmp_path / "old", "orders")
    assert "orders" in say("cluster", "list")
    place = next((tmp_path / "base").glob("tidelog-user-*"))
    place.chmod(0o777)
    assert "orders" not in say("cluster", "list")
    place.chmod(0o700)
    (place / "x.json").write_text('{"cluster": 1}')
    folder.rename(tmp_path / "moved")
    assert "orders" not in say("cluster", "list")
    assert [path.name for path in place.iterdir()] == ["x.json"]


def test_a_folder_whose_name_is_no_text_is_remembered(say: Say, tmp_path: Path) -> None:
    """Names of files are bytes."""
    rests(tmp_path / os.fsdecode(b"bay-\xff"), "orders")
    assert "bay-" in say("cluster", "list")


def test_only_the_newest_folders_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ENTRIES_MAX", 2)
    for name in ("a", "b", "c"):
        rests(tmp_path / name, name)
    assert len(registry.stopped()) == 2


def test_a_run_of_another_container_is_told_from_a_dead_one(
    say: Say, alone: Path, tmp_path: Path
) -> None:
    data = stopped(alone)
    run = started(tmp_path / "base", data)
    there = structs.replace(Life.own(), namespaces="pid:[1]")
    for path in (Path(run.runtime_dir) / "run.json", tmp_path / "base/tidelog-0011aabb-life"):
        path.write_bytes(runs.document(structs.replace(run, life=there)))
    assert '"state": "unknown", "pid": null' in say("cluster", "list", "--json")


def test_a_folder_is_listed_once_whatever_dead_containers_have_left(
    say: Say, alone: Path, tmp_path: Path
) -> None:
    """Each container that was killed and made anew, with the data on a volume, leaves a run of
    which nobody can say that it is dead."""
    run = started(tmp_path / "base", stopped(alone))
    there = structs.replace(Life.own(), namespaces="pid:[1]")
    for run_id in ("22334455", "00112233"):
        place = tmp_path / f"base/tidelog-{run_id}"
        place.mkdir()
        left = structs.replace(run, run_id=run_id, runtime_dir=str(place), life=there)
        leftovers.say_first(left)
    listed = say("cluster", "list", "--json")
    assert listed.count('"state": ') == listed.count('"state": "running"') == 1
