"""Processes whose files lie on disks of their own, and a cut that takes what the kernel had not
written: power as a machine loses it. Needs root and loop devices.

Each broker's folder, and the coordinator's, is a file system in an image. The cut kills them, tells
the file systems to forget all that is not on the disk, journal included, and mounts what is left.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from harness.cluster import Cluster
from harness.mounts import break_disk, make_image, mount_image, need_disks, own_mounts, unmount
from tidelog.tools.chaos.losing import broker_victim, coordinator_victim, forget_ledger, look
from tidelog.tools.chaos.survey import NO_STORAGE, SeenDirectory, Survey
from tidelog.tools.supervisor.ask import Link

DISK_BYTES = 64 << 20


@dataclass(slots=True)
class DarkDisk:
    """One folder on a file system of its own; only inside `own_mounts`."""

    place: Path
    image: Path

    def begin(self) -> None:
        """What is in the folder is on the disk from now on."""
        self.image.parent.mkdir(exist_ok=True)
        make_image(self.image, DISK_BYTES)
        before = self.place.with_name(f"{self.place.name}.before")
        self.place.rename(before)
        self.place.mkdir()
        self._mount()
        shutil.copytree(before, self.place, dirs_exist_ok=True)
        shutil.rmtree(before)
        (self.place / "lost+found").rmdir()
        unmount(self.place)  # which writes all of it
        self._mount()

    def cut(self, let_go: Callable[[], None] | None = None) -> None:
        """Who writes there is dead already, or lets go of the files only then."""
        break_disk(self.place)
        if let_go is not None:
            let_go()
        unmount(self.place)
        self._mount()

    def _mount(self) -> None:
        mount_image(self.image, self.place)


@dataclass(slots=True)
class DarkCluster:
    """A running cluster on such disks."""

    cluster: Cluster
    brokers: Sequence[DarkDisk]
    coordinator: DarkDisk

    def lose(self, *brokers: int) -> list[str]:
        """The power of these, or of the whole machine; brokers stay down. What the disks lack of
        what the ledgers called stable."""
        data, run_id = str(self.cluster.data), self.cluster.runs[-1].run_id
        ids = list(brokers or range(self.cluster.brokers))
        disks = [self.brokers[one] for one in ids]
        victims = [broker_victim(data, one, {}) for one in ids]
        if not brokers:
            disks.append(self.coordinator)
            victims.append(coordinator_victim(data))
        link = Link.to(self.cluster.data)
        try:
            link.ask("power-loss", ids=list(brokers), all=not brokers)
            promised = [Stable.of(look(run_id, victim)) for victim in victims]
            for disk in disks:
                disk.cut()
            for victim in victims:
                forget_ledger(run_id, data, victim)
            return [fault for one in promised for fault in one.lacking()]
        finally:
            link.ask("power-back")
            link.close()


class Stable(NamedTuple):
    """What a ledger says that no power loss takes."""

    names: Mapping[Path, int]
    """And their inodes: those that have not changed since their directory was synced."""
    contents: Mapping[Path, bytes]

    @classmethod
    def of(cls, found: Survey) -> Self:
        """Of processes that are dead."""
        names: dict[Path, int] = {}
        contents: dict[Path, bytes] = {}
        for seen in _stable_directories(found):
            for name, inode in seen.durable.items():
                if seen.now.get(name) != inode or name in NO_STORAGE:
                    continue
                path = Path(seen.path, name)
                names[path] = inode
                if inode in found.files:
                    contents[path] = path.read_bytes()[: found.files[inode].stable]
        return cls(names, contents)

    def lacking(self) -> list[str]:
        """Of what is there now."""
        gone = [path for path, inode in self.names.items() if _inode(path) != inode]
        cut = [path for path, content in self.contents.items() if not _begins(path, content)]
        return [f"{path} is gone" for path in gone] + [f"{path} lost bytes" for path in cut]


def _stable_directories(found: Survey) -> Iterator[SeenDirectory]:
    """Those whose names on the way from the top are stable too."""
    wanted = {Path(top).stat().st_ino for top in found.tops}
    for inode, seen in found.directories.items():
        if inode in wanted:
            wanted |= {one for name, one in seen.durable.items() if seen.now.get(name) == one}
            yield seen


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def _begins(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes().startswith(content)


@contextmanager
def on_dark_disks(cluster: Cluster) -> Iterator[DarkCluster]:
    """Runs it, on disks that are gone with it, whatever becomes of the test."""
    need_disks()
    with cluster:  # no start takes a folder that it did not make
        data = cluster.data
    images = cluster.folder / "images"
    names = [*(f"broker-{broker}" for broker in range(cluster.brokers)), "coordinator"]
    disks = [DarkDisk(data / name, images / name) for name in names]
    with own_mounts():
        for disk in disks:
            disk.begin()
        with cluster:
            yield DarkCluster(cluster, disks[:-1], disks[-1])
