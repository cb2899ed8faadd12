"""Kills a broker, as `kill -9` does, before the system call that a test names.

Every Python process whose PYTHONPATH holds this folder loads it at its start, the worker that
compacts included. It does nothing unless the environment names a point, and dies once: the file
that arms it goes first.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINT = "HARNESS_DIES_AT"
ARMED = "HARNESS_DIES_WHILE_THERE_IS"


def _before(name: str, path_of: Callable[[Any], str], springs: Callable[[str, str], bool]) -> None:
    """Have that function of `os` look at the trap first."""
    call = getattr(os, name)

    def trapped(*arguments: Any, **named: Any) -> Any:
        if springs(name, Path(path_of(arguments[0])).name):
            _die()
        return call(*arguments, **named)

    setattr(os, name, trapped)


def _die() -> None:
    try:
        Path(os.environ[ARMED]).unlink()
    except FileNotFoundError:
        return
    is_worker = "tidelog.node.runtime.cleaner_worker" in sys.orig_argv
    os.kill(os.getppid() if is_worker else os.getpid(), signal.SIGKILL)
    signal.pause()  # a worker dies with its broker


def _path(path: Any) -> str:
    return str(os.fspath(path))


def _path_of_descriptor(descriptor: Any) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class _Traps:
    """Where each point is reached, as `harness.disks.mortal_disk` has them."""

    def __init__(self, point: str) -> None:
        self._springs = getattr(self, f"_{point.lower()}")
        self._swapped = False

    def __call__(self, call: str, name: str) -> bool:
        self._swapped |= call == "rename" and name.endswith(".log.swap")
        return bool(self._springs(call, name))

    def _written(self, call: str, name: str) -> bool:
        return call == "fdatasync" and name.endswith(".log.cleaned")

    def _synced(self, call: str, name: str) -> bool:
        return call == "rename" and name.endswith(".cleaned")

    def _renaming(self, call: str, name: str) -> bool:
        return call == "rename" and name.endswith(".log.swap")

    def _unlinking(self, call: str, name: str) -> bool:
        return call == "unlink" and name.endswith(".log.deleted")

    def _checkpointing(self, call: str, name: str) -> bool:
        return self._swapped and call == "rename" and name == "cleaner-offset-checkpoint.pending"

    def _deleting(self, call: str, name: str) -> bool:
        """The directory of a deleted topic's partition is about to be put aside."""
        return call == "rename" and name == "t-0"

    def _removing(self, call: str, name: str) -> bool:
        """It was put aside, and its files are about to go."""
        return call == "unlink" and name.endswith(".log")


if POINT in os.environ:
    _traps = _Traps(os.environ[POINT])
    _before("fdatasync", _path_of_descriptor, _traps)
    _before("rename", _path, _traps)
    _before("unlink", _path, _traps)
