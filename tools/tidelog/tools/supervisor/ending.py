"""Ends a cluster from outside: asks its supervisor, waits, says who is late; by force it kills.

A supervisor that is stopped (Ctrl-Z in its terminal) is woken. One that does not answer is killed,
by force only: the kernel then tells its children to end, and the coordinator kills who does not.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from tidelog.node.runtime.lives import Life, Verdict
from tidelog.tools.supervisor import disks, leftovers
from tidelog.tools.supervisor.ask import (
    UNREACHABLE,
    EndedError,
    Link,
    SaidNoError,
    SilentError,
)
from tidelog.tools.supervisor.folder import (
    child_in,
    forget_run,
    holder_named,
    run_in,
    supervisor_in,
)

LATE_AFTER_S = 5.0
"""Then the user is told who is waited for."""
GIVE_UP_AFTER_S = 60.0
FORCED_WITHIN_S = 15.0
"""The supervisor kills by force after 5 s, and what is killed is gone at once."""
REST_ENDS_WITHIN_S = 12.0
"""As long as the coordinator gives the others once the supervisor is dead, and a moment more."""
_LOOK_EVERY_S = 0.02

Note = Callable[[str], None]


def end(link: Link, *, force: bool, sync: bool, note: Note) -> None:
    """When this returns, the cluster's processes and shared memory are gone; else SaidNoError."""
    link.wake()
    try:
        link.ask("down", force=force, sync=sync)
    except EndedError:
        pass  # somebody else has ended it meanwhile
    except SaidNoError as error:
        if error.code != UNREACHABLE:
            raise
        if not force:
            raise SilentError(
                f"{error}, or kill it with tidelog down --force", UNREACHABLE
            ) from error
        _kill(link)
    if link.wait_until_gone(LATE_AFTER_S):
        _end_what_it_left(link, force=force)
        return
    hint = "" if force else "; tidelog down --force kills what does not end"
    note(f"waiting for {_late(link)}{hint}")
    if link.wait_until_gone((FORCED_WITHIN_S if force else GIVE_UP_AFTER_S) - LATE_AFTER_S):
        _end_what_it_left(link, force=force)
        return
    if not force:
        raise SaidNoError(
            f"not ended within {GIVE_UP_AFTER_S:.0f} s: {_late(link)}; wait on with tidelog down, "
            "see tidelog logs, or kill it with tidelog down --force",
            UNREACHABLE,
        )
    _kill(link)


def _end_what_it_left(link: Link, *, force: bool) -> None:
    """Nothing, unless it was killed while it was asked to end.

    From another container only its closed stream tells that the supervisor ends. It has the folder
    for a moment longer, in which it looks like one that is just starting.
    """
    deadline = time.monotonic() + LATE_AFTER_S
    while (run := run_in(link.folder)) is not None and run.run_id == link.run.run_id:
        if supervisor_in(link.folder) is None or time.monotonic() >= deadline:
            end_rest(link.folder, force=force)
            return
        time.sleep(_LOOK_EVERY_S)


def end_rest(folder: Path, *, force: bool) -> list[int]:
    """Where no supervisor listens: who has the folder ends by itself, or is killed by force. The
    pids of those that were killed."""
    run = run_in(folder)
    life = None if run is None else run.life
    _refuse_living(folder, life, force=force)
    killed = _wait_for_holders(folder, force=force)
    disks.free_unheld(folder)
    if run is None:
        return killed
    if run_in(folder) == run and supervisor_in(folder) is None:
        forget_run(folder)
    if run.verdict() is Verdict.DEAD:
        leftovers.remove_run(run.run_id, str(folder))
    return killed


def _refuse_living(folder: Path, life: Life | None, *, force: bool) -> None:
    """What only looks as if it were over is not to be cleaned up."""
    supervisor = supervisor_in(folder)
    if supervisor is None:
        if life is not None and life.verdict() is Verdict.LIVES:
            raise SaidNoError(
                f"the supervisor (pid {life.pid}) lives, but the lock in {folder} is gone: it ends "
                "within a second, so try again",
                UNREACHABLE,
            )
    elif not force:
        raise SaidNoError(
            f"the supervisor ({holder_named(supervisor)}) has {folder} and does not listen: it is "
            "just starting, so try again in a moment, or kill it with tidelog down --force",
            UNREACHABLE,
        )


def _wait_for_holders(folder: Path, *, force: bool) -> list[int]:
    deadline = time.monotonic() + REST_ENDS_WITHIN_S
    killed: list[int] = []
    while (pid := _holder(folder)) is not None:
        if time.monotonic() >= deadline:
            _give_up(pid, killed=pid in killed)
        if force and pid not in killed:
            _kill_holder(folder, pid)
            killed.append(pid)
        time.sleep(_LOOK_EVERY_S)
    return killed


def _holder(folder: Path) -> int | None:
    supervisor = supervisor_in(folder)
    return child_in(folder) if supervisor is None else supervisor


def _kill_holder(folder: Path, pid: int) -> None:
    """By a descriptor, looked at again: the number may belong to somebody else by now."""
    with suppress(OSError):  # gone; or of another container, where the kernel tells no number
        descriptor = os.pidfd_open(pid)
        try:
            if _holder(folder) == pid:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _kill(link: Link) -> None:
    """The supervisor, and what does not follow it."""
    link.kill()
    link.wait_until_gone(LATE_AFTER_S)
    end_rest(link.folder, force=True)


def _give_up(pid: int, *, killed: bool) -> NoReturn:
    if killed:
        why = "is killed but does not go: the kernel holds it, as for a disk that does not answer"
    else:
        why = "has lost its supervisor and does not end: kill it with tidelog down --force"
    who = f"process {pid}" if pid else "a process in another container"
    raise SaidNoError(f"{who} {why}", UNREACHABLE)


def _late(link: Link) -> str:
    """Who has not ended yet, for people."""
    try:
        processes = link.ask("status")["status"]["processes"]
    except SaidNoError:
        processes = []
    alive = [row for row in processes if row["pid"] not in {None, link.pid}]
    # The coordinator is asked to end when they have.
    brokers = [row for row in alive if row["role"] == "broker"]
    named = [_named(row) for row in brokers or alive]
    return ", ".join(named) or f"the supervisor (pid {link.pid})"


def _named(row: Mapping[str, Any]) -> str:
    name = f"broker {row['id']}" if row["role"] == "broker" else row["role"]
    return f"{name} (pid {row['pid']})"
