"""Deletes the data folder of a stopped cluster, so that nobody starts it meanwhile."""

import os
import shutil
from pathlib import Path

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import broker_directories
from tidelog.node.runtime.lives import Verdict
from tidelog.tools.supervisor import disks, leftovers, registry
from tidelog.tools.supervisor.folder import held_for_a_moment, read_cluster, run_in


class HeldError(Exception):
    """The cluster runs, or a process of it still ends."""


def delete(folder: Path) -> list[str]:
    """The log directories outside of the folder, which stay; HeldError, or OSError."""
    left = _outside(folder)
    real = folder.resolve()
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
