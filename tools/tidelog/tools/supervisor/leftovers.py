"""What runs leave behind when nobody was left to clean up, and where a run keeps its things.

A run lives as long as its supervisor holds the lock on the run's board. What carries the id of a
dead run is removed by the next start of any cluster of this user.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import MEMORY_FOLDER, remove_memory_of_run
from tidelog.node.ipc.ledger_memory import save_ledgers
from tidelog.node.runtime.process import remove_folder
from tidelog.tools.supervisor import disks

_NAME = re.compile(r"tidelog-([0-9a-f]{8})(?:-.*)?")
_SOCKET_PATH_BYTES_MAX = 107
_SOCKET_NAME_BYTES_MAX = 24
_YOUNG_S = 10.0
"""A run this young may not have its lock yet."""


def new_run_id() -> str:
    return os.urandom(4).hex()


def temporary_folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 -- names in it are our own


def runtime_folder(run_id: str) -> Path:
    """Where a run's sockets are; short enough for the longest of them."""
    for base in _runtime_bases():
        path = base / f"tidelog-{run_id}"
        too_long = len(os.fsencode(path)) + 1 + _SOCKET_NAME_BYTES_MAX > _SOCKET_PATH_BYTES_MAX
        if not too_long and os.access(base, os.W_OK | os.X_OK):
            return path
    raise CannotStartError(
        "no folder for sockets: make /tmp writable, or set XDG_RUNTIME_DIR to a short path"
    )


def ephemeral_folder(run_id: str) -> Path:
    return temporary_folder() / f"tidelog-{run_id}-data"


def _runtime_bases() -> Iterator[Path]:
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir() and Path(given).stat().st_uid == os.geteuid():
        yield Path(given)
    yield temporary_folder()
    yield Path("/tmp")  # noqa: S108 -- the last resort of a user with a long TMPDIR


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


def remove_run(run_id: str, data_dir: str | None = None) -> None:
    """Everything that carries the run's id. What its data folder, where that is known, needs to
    know of stable storage is kept there for the next run."""
    if data_dir is not None:
        save_ledgers(run_id, data_dir)
    for base in set(_runtime_bases()):
        remove_folder(str(base / f"tidelog-{run_id}"))
    disks.free(ephemeral_folder(run_id))
    remove_data(ephemeral_folder(run_id))
    remove_memory_of_run(run_id)


def remove_data(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # noqa: PLC0415 -- 9 ms that only an ephemeral cluster's end pays

        shutil.rmtree(path, ignore_errors=True)


def sweep() -> list[str]:
    """Remove what dead runs of this user have left; their ids."""
    dead = [run_id for run_id, young in sorted(_found().items()) if not young]
    dead = [run_id for run_id in dead if not _is_alive(run_id)]
    for run_id in dead:
        remove_run(run_id)
    return dead


def _found() -> dict[str, bool]:
    """Ids of runs that have something somewhere, and whether it is young."""
    found: dict[str, bool] = {}
    user = os.geteuid()
    for base in {Path(MEMORY_FOLDER), temporary_folder(), *_runtime_bases()}:
        for entry in base.glob("tidelog-*"):
            match = _NAME.fullmatch(entry.name)
            try:
                status = entry.lstat()
            except FileNotFoundError:
                continue
            if match and status.st_uid == user:
                young = time.time() - status.st_ctime < _YOUNG_S
                found[match[1]] = found.get(match[1], False) or young
    return found


def _is_alive(run_id: str) -> bool:
    try:
        descriptor = os.open(MEMORY_FOLDER + board_name(run_id), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
