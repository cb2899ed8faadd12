"""Whether a process that something was written about still lives. (shell)

A pid alone does not say it: the kernel gives numbers again, counts anew after a restart of the
machine, and counts separately in each container. So what is written down is the pid, when the
process started, and where both count. A process is dead only if that is shown: nothing that may
belong to a living one is removed, and no process is signalled that is not the one written about.

What a run leaves (a folder of sockets, shared memory) is also locked by each of its processes. A
lock holds in every container that sees the same file, and a living process keeps it whatever the
numbers say. Without such a lock a container is known to be dead when the machine's own processes
see no process in its pid namespace any more.
"""

import contextlib
import fcntl
import os
from enum import Enum
from pathlib import Path
from typing import Self

from msgspec import Struct

from tidelog.node.runtime import pid_namespaces

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19  # counted from the field after the name, as in proc(5)
_OVER = frozenset({"Z", "X"})


class Verdict(Enum):
    """What is known of a process."""

    LIVES = "lives"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """It belongs to another container, or what was written about it is not complete."""


class Life(Struct, frozen=True):
    """One life of one process."""

    pid: int
    started: int
    """Clock ticks from the start of the machine to its own, as in proc(5)."""
    boot_id: str
    namespaces: str
    """Where its pid and its start are counted."""

    @classmethod
    def own(cls) -> Self:
        return cls(os.getpid(), started(os.getpid()), boot_id(), _namespaces())

    def verdict(self) -> Verdict:
        if self.pid <= 0 or not (self.started and self.boot_id and self.namespaces):
            return Verdict.UNKNOWN
        if self.boot_id != boot_id():
            return Verdict.DEAD
        if not self.is_counted_here():
            return Verdict.DEAD if self._is_namespace_gone() else Verdict.UNKNOWN
        return Verdict.LIVES if started(self.pid) == self.started else Verdict.DEAD

    def is_counted_here(self) -> bool:
        """Whether its pid and its start mean the same to this process."""
        return self.namespaces == _namespaces() and _proc_is_ours()

    def _is_namespace_gone(self) -> bool:
        """Whether it ran in a container that has ended, as far as that can be seen from here."""
        pids = self.namespaces.partition(" ")[0]
        return _proc_is_ours() and pid_namespaces.is_gone(pids, _PROC)

    def open(self) -> int | None:
        """A pidfd of this very process; None if it is dead, or cannot be shown to live."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, OverflowError):
            return None
        # The number may have been given again: asked after the descriptor is open, the answer is
        # about the process that the descriptor refers to.
        if self.verdict() is Verdict.LIVES:
            return descriptor
        os.close(descriptor)
        return None


def started(pid: int) -> int:
    """When a process started, in ticks of the kernel; 0 if there is none, or it is dead and only
    waits for its parent."""
    name = "self" if pid == os.getpid() else str(pid)  # /proc may be of another container
    try:
        text = (_PROC / name / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(") ")[2].split()
    return 0 if fields[_STATE] in _OVER else int(fields[_STARTED])


def boot_id() -> str:
    """Another one after each start of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespaces() -> str:
    """Of pids, and of the clock that starts are told by, which older kernels have only one of."""
    found = []
    for kind in ("pid", "time"):
        try:
            found.append(str((_PROC / "self/ns" / kind).readlink()))
        except OSError:
            continue
    return " ".join(found)


def _proc_is_ours() -> bool:
    """Whether /proc numbers processes as this one does; in a container it may be the machine's."""
    try:
        return str((_PROC / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


# -- locks ----------------------------------------------------------------------------------------


def hold(path: str) -> int:
    """Show whoever asks `is_held` that this process lives, as long as the descriptor is open."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: `is_held` shows nothing there
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_held(path: str) -> bool:
    """Whether a living process holds this file or folder. False if there is no such path."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nothing is shown by that
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


# -- folders --------------------------------------------------------------------------------------


def identity(path: str | Path | int) -> tuple[int, int]:
    """Which folder this is, whatever its path: the same through links and bind mounts, another one
    for each copy. (0, 0) if there is none."""
    try:
        return identity_of(os.stat(path))  # noqa: PTH116 -- descriptors too
    except OSError:
        return (0, 0)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)
