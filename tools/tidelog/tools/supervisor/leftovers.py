"""What runs leave behind when nobody was left to clean up, and where a run keeps its things.

The next start of any cluster of this user removes what a dead run has left. Only a run that is
shown to be dead counts as dead; what may belong to a living one stays.
"""

import fcntl
import os
import stat
import time
from pathlib import Path

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import MEMORY_FOLDER
from tidelog.node.ipc.board import no_room, remove_memory_of_run
from tidelog.node.ipc.ledger_memory import save_ledgers
from tidelog.node.runtime import lives
from tidelog.node.runtime.process import remove_folder
from tidelog.tools.supervisor import disks, runs
from tidelog.tools.supervisor.runs import Run, State, Traces, life_name, temporary_folder

_SOCKET_PATH_BYTES_MAX = 107
_SOCKET_NAME_BYTES_MAX = 24
_LIFE_BYTES = 4096
_EMPTY_FOR_S = 10.0
"""A start that was killed in its first moment leaves an empty folder; a new one is not that old."""


def new_run_id() -> str:
    return os.urandom(4).hex()


def runtime_folder(run_id: str) -> Path:
    """Where a run's sockets are; short enough for the longest of them."""
    for base in runs.runtime_bases():
        path = base / f"tidelog-{run_id}"
        too_long = len(os.fsencode(path)) + 1 + _SOCKET_NAME_BYTES_MAX > _SOCKET_PATH_BYTES_MAX
        if not too_long and os.access(base, os.W_OK | os.X_OK):
            return path
    raise CannotStartError(
        "no folder for sockets: make /tmp writable, or set XDG_RUNTIME_DIR to a short path"
    )


def ephemeral_folder(run_id: str) -> Path:
    return temporary_folder() / f"tidelog-{run_id}-data"


def make_runtime_folder(path: Path) -> None:
    """Made by us and nobody else: it must not exist before."""
    try:
        path.mkdir(mode=0o700)
    except OSError as error:
        raise CannotStartError(
            f"cannot make {path} for sockets ({error.strerror}): set XDG_RUNTIME_DIR to a folder "
            "of your own"
        ) from error


def hold_board(descriptor: int) -> None:
    """The run lives from now on, as long as this process."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def say_first(run: Run) -> None:
    """The first that is there of a run: from now on it is known who has what carries its id."""
    runs.say(run)
    path = f"{MEMORY_FOLDER}{life_name(run.run_id)}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 -- for this user only, from its first moment
            file.write(runs.document(run))
    except OSError as error:
        raise CannotStartError(no_room(_LIFE_BYTES)) from error


def hold(run: Run) -> None:
    """By each process of the run, until it ends: nobody removes what the run has."""
    ephemeral = [run.data_dir] if run.origin is not None else []
    for path in (run.runtime_dir, f"{MEMORY_FOLDER}{life_name(run.run_id)}", *ephemeral):
        try:
            lives.hold(path)
        except OSError:
            continue  # somebody has removed it already


def remove_run(run_id: str, data_dir: str | None = None) -> None:
    """Everything that carries the run's id. What its data folder, where that is known, needs to
    know of stable storage is kept there for the next run."""
    if data_dir is not None:
        save_ledgers(run_id, data_dir)
    _remove(runs.of_run(run_id))


def _remove(left: Traces) -> None:
    for folder in left.folders:
        remove_folder(str(folder))
    if left.data is not None:
        disks.free(left.data)
        remove_data(left.data)
    remove_memory_of_run(left.run_id)


def remove_data(path: Path) -> None:
    """Of an ephemeral cluster; not through a link, and not what is somebody else's."""
    try:
        status = path.lstat()
    except OSError:
        return
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        import shutil  # noqa: PLC0415 -- 9 ms that only an ephemeral cluster's end pays

        shutil.rmtree(path, ignore_errors=True)


def sweep() -> list[str]:
    """Remove what dead runs of this user have left; their ids."""
    dead = []
    for run_id, left in sorted(runs.traces().items()):
        if left.state() is State.DEAD:
            _remove(left)
            dead.append(run_id)
        elif not left.said:
            _remove_empty(left)
    return dead


def _remove_empty(left: Traces) -> None:
    for folder in left.folders:
        try:
            if time.time() - folder.stat().st_ctime > _EMPTY_FOR_S:
                folder.rmdir()
        except OSError:
            continue  # it is not empty: nobody knows whose it is
