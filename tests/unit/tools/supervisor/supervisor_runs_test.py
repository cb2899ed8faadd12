"""What runs have left: only what a dead run left is removed, and what others wrote is ignored."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from harness.processes.containers import container
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.ids import Incarnation
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board, remove_memory_of_run
from tidelog.node.ipc.layout import Role, slot_of
from tidelog.node.runtime.lives import Life, hold, identity
from tidelog.tools.supervisor import leftovers, runs
from tidelog.tools.supervisor.folder import DataFolder, find, origin_of
from tidelog.tools.supervisor.runs import Run, State, life_name

RUN_ID = "0011aabb"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where runs are looked for, and where their shared memory is, too."""
    place = tmp_path / "base"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(runs, "bases_looked_in", lambda: {place})
    monkeypatch.setattr(runs, "MEMORY_FOLDER", str(place))
    monkeypatch.setattr(leftovers, "MEMORY_FOLDER", str(place))
    return place


def ended() -> Life:
    """Of a process that is dead."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    life = structs.replace(Life.own(), pid=done.pid)
    done.wait()
    return life


def run_of(base: Path, life: Life | None) -> Run:
    folder = base / f"tidelog-{RUN_ID}"
    return Run(RUN_ID, 1, "default", str(folder), str(base / "data"), "", life=life)


def said(base: Path, life: Life | None) -> Path:
    """The folder of sockets of a run, which has said who it is."""
    run = run_of(base, life)
    Path(run.runtime_dir).mkdir(mode=0o700)
    leftovers.say_first(run)
    (Path(run.runtime_dir) / "supervisor.sock").touch()
    return Path(run.runtime_dir)


def elsewhere() -> Life:
    return structs.replace(ended(), namespaces="pid:[1]")


def before_the_restart() -> Life:
    return structs.replace(Life.own(), boot_id="another")


@pytest.mark.parametrize(
    ("life", "state"),
    [
        (Life.own, State.RUNNING),
        (ended, State.DEAD),
        (elsewhere, State.UNKNOWN),
        (before_the_restart, State.DEAD),
        (lambda: None, State.UNKNOWN),
    ],
)
def test_only_what_is_shown_to_be_dead_is_swept(
    base: Path, life: Callable[[], Life | None], state: State
) -> None:
    folder = said(base, life())
    (base / f"tidelog-{RUN_ID}-data").mkdir()
    assert runs.of_run(RUN_ID).state() is state
    is_dead = state is State.DEAD
    assert leftovers.sweep() == ([RUN_ID] if is_dead else [])
    assert folder.exists() is not is_dead
    assert (base / f"tidelog-{RUN_ID}-data").exists() is not is_dead


def test_what_a_container_has_left_is_swept_once_all_of_its_processes_are_dead(base: Path) -> None:
    """Before that its run may live, whether it holds its files or not."""
    with container() as running:
        folder = said(base, structs.replace(ended(), namespaces=running.namespace))
        assert runs.of_run(RUN_ID).state() is State.UNKNOWN
        assert leftovers.sweep() == []
        running.end()
        descriptor = hold(str(folder))
        assert runs.of_run(RUN_ID).state() is State.ENDING
        os.close(descriptor)
        assert leftovers.sweep() == [RUN_ID]
        assert not folder.exists()


@pytest.mark.parametrize("held", ["", "-life", "-data"])
@pytest.mark.parametrize("life", [ended, before_the_restart])
def test_what_a_process_holds_is_not_swept_whatever_the_numbers_say(
    base: Path, held: str, life: Callable[[], Life]
) -> None:
    """As the last processes of a run whose supervisor was killed do."""
    folder = said(base, life())
    (base / f"tidelog-{RUN_ID}-data").mkdir()
    descriptor = hold(str(base / f"tidelog-{RUN_ID}{held}"))
    assert runs.of_run(RUN_ID).state() is State.ENDING
    assert leftovers.sweep() == []
    assert folder.exists()
    os.close(descriptor)
    assert leftovers.sweep() == [RUN_ID]


def test_a_living_process_on_the_board_keeps_what_its_run_has(base: Path) -> None:
    """It holds nothing, as where the file system knows no locks."""
    run_id = os.urandom(4).hex()
    folder = base / f"tidelog-{run_id}"
    folder.mkdir()
    dead = ended()
    leftovers.say_first(Run(run_id, dead.pid, "default", str(folder), "/data", "", life=dead))
    own = Life.own()
    with Board.create(board_name(run_id)) as board:
        try:
            slot = board.writer(slot_of(Role.BROKER, 0))
            for started, state in ((own.started, State.ENDING), (own.started + 1, State.DEAD)):
                slot.begin(
                    role=Role.BROKER,
                    process_id=0,
                    pid=own.pid,
                    incarnation=Incarnation(1),
                    started=started,
                )
                assert runs.of_run(run_id).state() is state
        finally:
            remove_memory_of_run(run_id)


def test_one_word_of_a_living_process_is_enough(base: Path) -> None:
    said(base, ended())
    alive = msgspec.to_builtins(run_of(base, Life.own()))
    (base / life_name(RUN_ID)[1:]).write_text(json.dumps(alive))
    assert leftovers.sweep() == []


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"run_id": "0011aabb", "life": 1}'])
def test_what_nobody_has_spoken_for_is_left_alone(base: Path, content: str | None) -> None:
    folder = base / f"tidelog-{RUN_ID}"
    folder.mkdir()
    (folder / "supervisor.sock").touch()
    if content is not None:
        (folder / runs.FILE).write_text(content)
    assert leftovers.sweep() == []
    assert (folder / "supervisor.sock").exists()


def test_the_record_of_another_run_says_nothing(base: Path) -> None:
    folder = said(base, ended())
    (base / life_name(RUN_ID)[1:]).unlink()
    folder.rename(base / "tidelog-ffffffff")
    assert leftovers.sweep() == []
    assert runs.living() == []


def test_an_empty_folder_of_a_start_that_was_killed_goes_when_it_is_old(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base / f"tidelog-{RUN_ID}"
    folder.mkdir()
    leftovers.sweep()
    assert folder.exists()
    monkeypatch.setattr(leftovers, "_EMPTY_FOR_S", -1.0)
    leftovers.sweep()
    assert not folder.exists()


def test_links_and_files_of_others_are_ignored(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = said(base, ended())
    monkeypatch.setattr(os, "geteuid", lambda: base.stat().st_uid + 1)
    assert runs.traces() == {}
    monkeypatch.undo()
    monkeypatch.setattr(runs, "bases_looked_in", lambda: {base})
    folder.rename(base / "theirs")
    folder.symlink_to(base / "theirs")
    assert runs.of_run(RUN_ID).folders == []


def test_a_start_without_shared_memory_says_what_is_missing(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "MEMORY_FOLDER", str(base / "missing"))
    with pytest.raises(CannotStartError, match="no room for 4 KiB of shared memory"):
        said(base, Life.own())


def test_a_run_is_found_whatever_the_environment_says_of_its_folder(
    base: Path, tmp_path: Path
) -> None:
    """Its shared memory leads there."""
    place = tmp_path / "elsewhere" / f"tidelog-{RUN_ID}"
    place.mkdir(parents=True)
    run = structs.replace(run_of(base, Life.own()), runtime_dir=str(place))
    leftovers.say_first(run)
    runs.say(structs.replace(run, bootstrap="127.0.0.1:1"))
    ((found, state),) = runs.living()
    assert (found.bootstrap, state) == ("127.0.0.1:1", State.RUNNING)


def test_data_of_an_ephemeral_cluster_goes_whatever_the_environment_says_of_its_folder(
    base: Path, tmp_path: Path
) -> None:
    place, others = tmp_path / f"tidelog-{RUN_ID}-data", tmp_path / "mine"
    for folder in (place, others):
        folder.mkdir()
    run = structs.replace(run_of(base, ended()), data_dir=str(place), origin=(1, 1))
    Path(run.runtime_dir).mkdir()
    leftovers.say_first(run)
    runs.say(structs.replace(run, data_dir=str(others)))
    assert leftovers.sweep() == [RUN_ID]
    assert not place.exists()
    assert others.exists()


def test_an_ephemeral_cluster_is_found_by_its_name_where_it_was_started(
    base: Path, tmp_path: Path
) -> None:
    data = tmp_path / "project" / ".tidelog" / "default"
    data.parent.parent.mkdir()
    run = structs.replace(run_of(base, Life.own()), data_dir="/ephemeral", origin=origin_of(data))
    Path(run.runtime_dir).mkdir()
    leftovers.say_first(run)
    assert find(data) == Path("/ephemeral")
    assert find(data.with_name("other")) == data.with_name("other")
    beside = data.parent.with_name("other") / "default"
    assert find(beside) == beside
    assert find(tmp_path / ".tidelog" / "default") == tmp_path / ".tidelog" / "default"
    leftovers.remove_run(RUN_ID)
    (base / life_name(RUN_ID)[1:]).unlink()
    assert find(data) == data


def test_what_is_saved_of_a_run_is_told_to_others_too(base: Path, tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path / "data", "default")
    run = structs.replace(run_of(base, Life.own()), folder=identity(folder.path))
    Path(run.runtime_dir).mkdir()
    folder.save_run(structs.replace(run, bootstrap="127.0.0.1:9"))
    ((found, _),) = runs.living()
    assert found.bootstrap == "127.0.0.1:9"
    folder.let_go()
