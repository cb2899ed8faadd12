"""Faults of durability put in on purpose: each must be caught, by name.

Those of the engine forget a sync that was promised: crash images show it. Those of the seam say
that something was synced which was not; the ledger believes them, and the trace does not. A disk
that forgets what the kernel had not written shows both.
"""

import os
from collections.abc import Callable, Mapping

import pytest

from tidelog.kernel.files import Syncable
from tidelog.node.log.segment import Segment
from tidelog.node.log.unflushed import Unflushed
from tidelog.node.runtime import disk

Plant = Callable[[pytest.MonkeyPatch], None]


def _skip_fsync(patch: pytest.MonkeyPatch) -> None:
    def none(_self: Segment, **_sealed: bool) -> list[Syncable]:
        return []

    patch.setattr(Segment, "syncables", none)


def _skip_dirsync(patch: pytest.MonkeyPatch) -> None:
    whole = Unflushed._named_since

    def without_directories(self: Unflushed, point: int) -> list[Syncable]:
        return whole(self, point)[:-2]

    def none(_self: disk.DiskDirectory) -> None: ...

    patch.setattr(Unflushed, "_named_since", without_directories)
    patch.setattr(disk.DiskDirectory, "sync", none)


def _fsync_wrong_file(patch: pytest.MonkeyPatch) -> None:
    def another(self: disk.DiskDirectory, name: str) -> disk.NamedFile:
        others = [one for one in self.names() if one != name and one.endswith(".log")]
        return disk.NamedFile(self, others[0] if others else "none")

    patch.setattr(disk.DiskDirectory, "syncable", another)


ENGINE: Mapping[str, Plant] = {
    "skip_fsync": _skip_fsync,
    "skip_dirsync": _skip_dirsync,
    "fsync_wrong_file": _fsync_wrong_file,
}


class _PlantedOs:
    """The `os` that the seam sees."""

    def __init__(self, **instead: Callable[[int], None]) -> None:
        self._instead = instead

    def __getattr__(self, name: str) -> object:
        return self._instead.get(name) or getattr(os, name)


def _nothing(_fd: int) -> None: ...


def _another(_fd: int) -> None:
    wrong = os.open("/proc/self/exe", os.O_RDONLY)
    os.fdatasync(wrong)
    os.close(wrong)


SEAM: Mapping[str, Mapping[str, Callable[[int], None]]] = {
    "skip_fsync": {"fdatasync": _nothing},
    "skip_dirsync": {"fsync": _nothing},
    "fsync_wrong_file": {"fdatasync": _another},
}


def seam_plant(name: str) -> Plant:
    """As one of the engine's, until it is taken back."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(vars(disk), "os", _PlantedOs(**SEAM[name]))

    return plant


def plant_in_seam(name: str) -> None:
    """For the rest of this process."""
    if name:
        vars(disk)["os"] = _PlantedOs(**SEAM[name])
