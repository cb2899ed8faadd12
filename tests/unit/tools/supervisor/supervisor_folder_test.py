"""The data folder: claimed by one, refused with a sentence where it is not ours."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import until
from harness.processes.other_user import as_other_user, needs_root
from tidelog.kernel.failures import CannotStartError
from tidelog.node.runtime.lives import Verdict
from tidelog.tools.supervisor import leftovers, proc
from tidelog.tools.supervisor.folder import (
    Cluster,
    DataFolder,
    child_in,
    held_for_a_moment,
    is_held,
    new_cluster_id,
    run_in,
    sentences,
)
from tidelog.tools.supervisor.runs import Run


@contextlib.contextmanager
def another(path: Path, does: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has done something with the folder and waits; it is killed in the end."""
    program = (
        "import sys; from pathlib import Path; from tidelog.tools.supervisor.folder import *\n"
        f"path = Path(sys.argv[1]); {does}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "done\n"
            yield other
        finally:
            other.kill()


CLAIMS = "DataFolder.claim(path, 'default')"
WAITS = "print('done', flush=True); sys.stdin.read()"
LEAVES_A_THREAD = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
    "print('done', flush=True); ctypes.CDLL(None).pthread_exit(None)"
)


def refusal(path: Path) -> str:
    with pytest.raises(CannotStartError) as raised:
        DataFolder.claim(path, "default")
    return str(raised.value)


def test_a_new_folder_gets_an_identity_that_is_kept(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path / "a" / "b", "default")
    folder.save_cluster()
    first = folder.cluster.cluster_id
    folder.let_go()
    again = DataFolder.claim(tmp_path / "a" / "b", "default")
    assert again.cluster.cluster_id == first
    again.let_go()


def open_to_others(folder: Path) -> list[str]:
    """What in a folder, and the folder itself, anybody but its owner may touch."""
    return sorted(
        str(path.relative_to(folder.parent))
        for path in (folder, *folder.rglob("*"))
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    )


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path / "a" / "b", "default")
    folder.save_cluster()
    folder.save_run(Run("0011aabb", 1, "default", "/r", "/d", "127.0.0.1:1"))
    folder.let_go()
    assert open_to_others(tmp_path / "a" / "b") == []


def test_what_others_may_read_of_an_older_folder_they_may_not_after_the_next_start(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    first = DataFolder.claim(data, "default")
    first.save_cluster()
    first.let_go()
    for name in ("ledgers", "coordinator", "broker-0/log0", "broker-0/log0.undo"):
        (data / name).mkdir(parents=True)
    for name in ("run.json", "logs/broker-0.log", "ledgers/broker-0-0", "coordinator/0.log"):
        (data / name).write_text("{}")
    for path in (data, *data.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "theirs").chmod(0o644)
    (data / "logs" / "link").symlink_to(tmp_path / "theirs")
    DataFolder.claim(data, "default").let_go()
    assert open_to_others(data) == []
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o644


@needs_root
def test_a_folder_that_belongs_to_somebody_else_is_used_as_it_is() -> None:
    data = Path(tempfile.mkdtemp(prefix="tidelog-test-", dir="/tmp"))
    data.chmod(0o777)

    def claim() -> None:
        DataFolder.claim(data, "default").let_go()

    try:
        assert as_other_user(claim) == "None"
        assert data.stat().st_mode & 0o777 == 0o777
    finally:
        shutil.rmtree(data)


def test_what_cluster_json_holds_comes_back(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path, "default")
    folder.cluster.ports = [9092, 9093]
    folder.cluster.incarnations_reserved = 2000
    folder.cluster.settings = {"a": "b"}
    folder.save_cluster()
    folder.let_go()
    again = DataFolder.claim(tmp_path, "default")
    assert again.cluster == folder.cluster
    again.let_go()


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    assert "not empty and not a tidelog data folder" in refusal(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


GOOD: dict[str, object] = {
    "format": 1,
    "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA",
    "ports": [],
    "base_port": 0,
    "disk_generation": 0,
    "incarnations_reserved": 0,
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"[]",
        b"\xff\xfe\x00",
        b'{"format": 1}',
        json.dumps(GOOD | {"cluster_id": "short"}).encode(),
        json.dumps(GOOD | {"ports": ["x"]}).encode(),
        json.dumps(GOOD | {"ports": 3}).encode(),
        json.dumps(GOOD | {"incarnations_reserved": None}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(),
    ],
)
def test_a_cluster_json_that_cannot_be_read_is_not_overwritten(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    sentence = refusal(tmp_path)
    assert "cannot be read" in sentence
    assert "restore it from a copy" in sentence
    assert (tmp_path / "cluster.json").read_bytes() == content


def test_another_format_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"format": 99}))
    assert "has format 99, this tidelog reads format 1" in refusal(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert "is not a folder" in refusal(tmp_path / "f")
    assert "is not a folder" in refusal(tmp_path / "f" / "below")


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (errno.ENOSPC, "no space left on the disk of"),
        (errno.EDQUOT, "no space left on the disk of"),
        (errno.EACCES, "no permission to use"),
        (errno.EROFS, "is read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_file_system_refuses_becomes_a_sentence(
    tmp_path: Path, number: int, part: str
) -> None:
    with pytest.raises(CannotStartError, match=part) as raised, sentences(tmp_path):
        raise OSError(number, os.strerror(number))
    assert "--data" in str(raised.value)


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    with another(tmp_path, f"{CLAIMS}; {WAITS}") as other:
        assert is_held(tmp_path)
        assert f"cluster 'default' is already running (pid {other.pid})" in refusal(tmp_path)
    assert not is_held(tmp_path)
    DataFolder.claim(tmp_path, "default").let_go()


@pytest.mark.parametrize("sweeps", [False, True])
def test_who_is_dead_but_for_a_thread_is_waited_for(tmp_path: Path, *, sweeps: bool) -> None:
    """A kill ends the threads of a process one after the other, and the lock with the last."""
    with another(tmp_path, f"{CLAIMS}; {LEAVES_A_THREAD}") as other:
        until(lambda: proc.is_gone(other.pid), "it looks dead")
        assert not is_held(tmp_path)
        threading.Timer(0.3, other.kill).start()
        if sweeps:
            with held_for_a_moment(tmp_path) as nobody_has_it:
                assert nobody_has_it
        DataFolder.claim(tmp_path, "default").let_go()


@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_child_that_still_holds_the_folder_hides_no_living_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: int
) -> None:
    DataFolder.claim(tmp_path, "default").let_go()
    holds = f"hold_as_child(path); {WAITS}"
    with another(tmp_path, holds) as first, another(tmp_path, holds) as second:
        children = [first.pid, second.pid]
        monkeypatch.setattr(proc, "is_ending", lambda pid: pid == children[dead])
        assert child_in(tmp_path) == children[1 - dead]
    monkeypatch.undo()
    assert child_in(tmp_path) is None


def test_who_has_the_folder_in_another_container_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataFolder.claim(tmp_path, "default").let_go()
    assert not is_held(tmp_path)
    nameless = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: nameless)
    assert is_held(tmp_path)


def test_a_run_is_told_from_garbage(tmp_path: Path) -> None:
    assert run_in(tmp_path) is None
    (tmp_path / "run.json").write_text("{}")
    assert run_in(tmp_path) is None
    folder = DataFolder.claim(tmp_path / "data", "default")
    run = Run("0011aabb", 1, "default", "/r", "/d", "127.0.0.1:1", folder.identity)
    folder.save_run(run)
    assert run_in(tmp_path / "data") == run
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert run_in(tmp_path / "copy") is None
    (tmp_path / "data").rename(tmp_path / "moved")
    assert run_in(tmp_path / "moved") == run
    (tmp_path / "moved").rename(tmp_path / "data")
    folder.forget_run()
    assert run_in(tmp_path / "data") is None
    folder.let_go()


def test_a_run_of_an_earlier_version_is_found_in_its_own_folder_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder = DataFolder.claim(data, "default")
    said = {
        "run_id": "0011aabb",
        "pid": os.getpid(),
        "cluster": "default",
        "runtime_dir": str(tmp_path / "tidelog-0011aabb"),
        "data_dir": str(data),
        "bootstrap": "127.0.0.1:1",
    }
    (data / "run.json").write_text(json.dumps(said))
    run = run_in(data)
    assert run is not None
    assert run.folder == folder.identity
    assert run.verdict() is Verdict.UNKNOWN, "a process has this number"
    shutil.copytree(data, tmp_path / "copy")
    assert run_in(tmp_path / "copy") is None
    with subprocess.Popen(["true"]) as gone:
        pass
    (data / "run.json").write_text(json.dumps({**said, "pid": gone.pid}))
    dead = run_in(data)
    assert dead is not None
    assert dead.verdict() is Verdict.DEAD, "and nobody has the lock"
    folder.let_go()


def test_cluster_ids_look_like_kafkas_and_never_like_an_option() -> None:
    ids = {new_cluster_id() for _ in range(300)}
    assert len(ids) == 300
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


def test_a_cluster_of_its_own_has_no_ports_yet() -> None:
    assert Cluster("x").ports == []


def test_the_runtime_folder_is_short_enough_for_every_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run")
    assert leftovers.runtime_folder("0011aabb") == Path("/run/tidelog-0011aabb")
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setenv("TMPDIR", str(deep))
    assert len(str(leftovers.runtime_folder("0011aabb"))) + 1 + 24 <= 107


def test_a_runtime_folder_made_by_someone_else_is_not_used(tmp_path: Path) -> None:
    leftovers.make_runtime_folder(tmp_path / "r")
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    with pytest.raises(CannotStartError, match="cannot make"):
        leftovers.make_runtime_folder(tmp_path / "r")
