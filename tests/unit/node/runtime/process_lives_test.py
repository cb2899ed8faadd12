"""Dead is only who is shown to be dead: by number, start, machine and container."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from harness.processes.cluster import until
from tidelog.kernel.ids import Incarnation
from tidelog.kernel.launch import Launch, board_name
from tidelog.node.ipc.board import Board, memory_of_run
from tidelog.node.ipc.layout import Role, slot_of
from tidelog.node.runtime import lives, process
from tidelog.node.runtime.lives import Life, Verdict, hold, identity, is_held


@contextmanager
def another(program: str = "import sys; sys.stdin.read()") -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is killed."""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def life_of(pid: int) -> Life:
    return structs.replace(Life.own(), pid=pid, started=lives.started(pid))


def test_a_process_lives_until_it_has_ended() -> None:
    assert Life.own().verdict() is Verdict.LIVES
    with another() as process:
        life = life_of(process.pid)
        assert life.verdict() is Verdict.LIVES
        process.kill()
        until(lambda: lives.started(process.pid) == 0, "it is dead, and not waited for yet")
        assert life.verdict() is Verdict.DEAD
    assert life.verdict() is Verdict.DEAD
    assert life.open() is None


def test_a_number_that_was_given_to_another_process_is_not_the_old_process() -> None:
    with another() as stranger:
        old = structs.replace(life_of(stranger.pid), started=lives.started(stranger.pid) - 1)
        assert old.verdict() is Verdict.DEAD
        assert old.open() is None
        descriptor = life_of(stranger.pid).open()
        assert descriptor is not None
        os.close(descriptor)


def test_after_a_restart_of_the_machine_every_process_of_before_is_dead() -> None:
    assert structs.replace(Life.own(), boot_id="another").verdict() is Verdict.DEAD


@pytest.mark.parametrize(
    "change", [{"namespaces": "pid:[1]"}, {"namespaces": ""}, {"boot_id": ""}, {"pid": 0}]
)
def test_nothing_is_known_of_a_process_that_is_counted_elsewhere(change: dict[str, object]) -> None:
    life = structs.replace(Life.own(), **change)
    assert life.verdict() is Verdict.UNKNOWN
    assert life.open() is None


def test_nothing_is_known_where_proc_numbers_other_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lives, "_proc_is_ours", lambda: False)
    assert Life.own().verdict() is Verdict.UNKNOWN


def test_a_lock_is_seen_by_others_until_its_process_is_dead(tmp_path: Path) -> None:
    assert not is_held(str(tmp_path / "missing"))
    assert not is_held(str(tmp_path))
    program = (
        "import sys; from tidelog.node.runtime.lives import hold; hold(sys.argv[1]);"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_held(str(tmp_path))
        os.close(hold(str(tmp_path)))  # several processes of one run hold it together
        assert is_held(str(tmp_path))
        process.kill()
    assert not is_held(str(tmp_path))


def test_a_link_is_the_same_folder_and_a_copy_is_another(tmp_path: Path) -> None:
    folder, copy = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    copy.mkdir()
    (tmp_path / "link").symlink_to(folder)
    assert identity(tmp_path / "link") == identity(folder) != identity(copy)
    was = identity(folder)
    folder.rename(tmp_path / "moved")
    assert identity(tmp_path / "moved") == was
    assert identity(folder) == (0, 0)


TIDE = """
import sys
from tidelog.node.runtime.process import set_title
set_title("broker-0", "tidelog broker 0")
print(flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


@contextmanager
def broker_in_slot(
    run_id: str, *, started_before: int
) -> Iterator[tuple[Board, subprocess.Popen[bytes]]]:
    """A board on which a broker stands, and a living process of that number and name."""
    with subprocess.Popen(
        [sys.executable, "-c", TIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with Board.create(board_name(run_id)) as board:
            board.writer(slot_of(Role.BROKER, 0)).begin(
                role=Role.BROKER,
                process_id=0,
                pid=other.pid,
                incarnation=Incarnation(1),
                started=lives.started(other.pid) - started_before,
            )
            try:
                yield board, other
            finally:
                other.kill()


@pytest.mark.parametrize("started_before", [0, 1])
def test_the_last_of_a_run_kills_its_own_processes_and_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_before: int
) -> None:
    """A stranger has the number of a broker that ended long ago, and is of another cluster."""
    monkeypatch.setattr(process, "ORPHANS_END_WITHIN_S", 0.05)
    run_id = f"test{os.urandom(4).hex()}"
    launch = Launch(
        run_id=run_id,
        cluster_id="",
        supervisor_pid=0,
        incarnation=Incarnation(1),
        data_dir=str(tmp_path),
        runtime_dir=str(tmp_path / "sockets"),
        boot_id=lives.boot_id(),
        disk_generation=0,
        settings={},
        ready_fd=-1,
        board_slot=slot_of(Role.COORDINATOR),
    )
    with broker_in_slot(run_id, started_before=started_before) as (board, other):
        process.end_orphaned_run(launch, board)
        assert other.stdin is not None
        assert other.stdout is not None
        if started_before:
            other.stdin.write(b"still here\n")
            other.stdin.flush()
            assert other.stdout.readline() == b"still here\n"
        else:
            until(lambda: not lives.started(other.pid), "it is killed")
    assert memory_of_run(run_id) == []
