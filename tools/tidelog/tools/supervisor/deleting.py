"""Deletes the data folder of a stopped cluster, so that nobody starts it meanwhile."""

import os
import shutil
from pathlib import Path

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import broker_directories
from tidelog.node.runtime.lives import Verdict
from tidelog.tools.supervisor import disks, leftovers, registry, runs
from tidelog.tools.supervisor.folder import held_for_a_moment, read_cluster, run_in
from tidelog.tools.supervisor.runs import Run, State


class HeldError(Exception):
    """The cluster runs, or a process of it still ends."""


def delete(folder: Path) -> list[str]:
    """The log directories outside of the folder, which stay; HeldError, or OSError."""
    left = _outside(folder)
    real = folder.resolve()
    _make_lock(real)
    with held_for_a_moment(real) as nobody_has_it:
        if not nobody_has_it:
            raise HeldError
        disks.free(real)
        _forget_run(real)
        shutil.rmtree(_set_aside(real))
    if folder.is_symlink():
        folder.unlink()
    registry.forget(folder)
    registry.forget(real)
    return left


def _set_aside(folder: Path) -> Path:
    """Under another name, where that can be: who looks finds all of the data, or nothing."""
    aside = folder.with_name(f".{folder.name}.deleted-{os.urandom(4).hex()}")
    try:
        return folder.rename(aside)
    except OSError:
        return folder  # a disk's own folder, or its parent may not be written


def _make_lock(folder: Path) -> None:
    """Somebody may have deleted the lock of a stopped cluster. It is made again, unless a process
    may still live that holds the deleted one: then no new lock would show that."""
    if (folder / "lock").exists():
        return
    run = run_in(folder)
    if run is not None and not _is_dead(run):
        raise HeldError
    os.close(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _is_dead(run: Run) -> bool:
    """Whether the supervisor is known to be dead, and no process that it started is known to live.
    What the run has left may be gone already."""
    is_left = runs.of_run(run.run_id).state() in {State.RUNNING, State.ENDING}
    return run.verdict() is Verdict.DEAD and not is_left


def _forget_run(folder: Path) -> None:
    run = run_in(folder)
    if run is None or run.life is None:
        return
    verdict = run.life.verdict()
    if verdict is Verdict.LIVES:
        raise HeldError
    if verdict is Verdict.DEAD:
        leftovers.remove_run(run.run_id)


def _outside(folder: Path) -> list[str]:
    try:
        cluster = read_cluster(folder)
    except CannotStartError:
        return []  # it is to be deleted because it cannot be read, perhaps
    data = str(folder)
    found = [
        directory
        for broker in cluster.brokers
        for directory in broker_directories(
            data, broker, {**cluster.settings, **cluster.broker_settings.get(str(broker), {})}
        )
    ]
    return sorted({one for one in found if not one.startswith(f"{data}/") and Path(one).exists()})
