"""Takes the power from file systems: the kernel forgets what it had not written to them.

Nothing is drawn, and what is left is not made up by us. So the durability ledger is not the source
of what is lost here but what is held against it: each name and byte that it calls stable must be
there, or a sync was forgotten somewhere between a broker and its disk.
"""

import fcntl
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from msgspec import Struct

from tidelog.kernel.launch import undo_directory
from tidelog.tools.chaos.crash_image import PAGE_BYTES, only_stable
from tidelog.tools.chaos.losing import Lost, Victim, forget_ledger, look
from tidelog.tools.chaos.power_loss import Image, Loss, losses, what_became
from tidelog.tools.chaos.survey import NO_STORAGE, Survey
from tidelog.tools.supervisor.disks import Disk, disk_of, held, mount

_EXT4_SHUTDOWN, _WITHOUT_JOURNAL = 0x8004_587D, 2
_READ_BYTES = 1 << 20


class Sums(Struct, frozen=True):
    """Of one file's content, to hold another look against it."""

    inode: int
    size: int
    stable_bytes: int
    stable: int
    """Of its stable bytes, as far as they are there."""
    pages: tuple[int, ...]
    """Of each page's part behind them."""

    @classmethod
    def of(cls, path: str, stable_bytes: int) -> Self:
        with Path(path).open("rb") as file:
            stable, left = 0, stable_bytes
            while left and (chunk := file.read(min(left, _READ_BYTES))):
                stable, left = zlib.crc32(chunk, stable), left - len(chunk)
            pages, wanted = list[int](), PAGE_BYTES - stable_bytes % PAGE_BYTES
            while chunk := file.read(wanted):
                pages.append(zlib.crc32(chunk))
                wanted = PAGE_BYTES
            return cls(
                os.fstat(file.fileno()).st_ino, file.tell(), stable_bytes, stable, tuple(pages)
            )

    def torn(self, now: Self) -> int:
        """How many pages are there to their end and are not what was written."""
        ends = min(self.size, now.size)
        whole = ends // PAGE_BYTES - self.stable_bytes // PAGE_BYTES
        return sum(self.pages[page] != now.pages[page] for page in range(whole))

    def is_kept(self, now: Self) -> bool:
        """Whether its stable bytes are there."""
        return now.size >= self.stable_bytes and now.stable == self.stable


class Before(Struct, frozen=True):
    """What there was of a dead process, a moment before the cut."""

    found: Survey
    sums: Mapping[str, Sums]
    """By path, of all files that have one."""
    promised: Mapping[str, int]
    """Paths and inodes that the ledger calls stable: on the way there too, every name is as it was
    when its directory was synced."""

    @classmethod
    def of(cls, found: Survey) -> Self:
        sums, promised = dict[str, Sums](), dict[str, int]()
        stable = {Path(top).stat().st_ino for top in found.tops}
        for directory, seen in found.directories.items():
            for name in seen.now.keys() - NO_STORAGE:
                path, inode = f"{seen.path}/{name}", seen.now[name]
                if inode in found.files:
                    sums[path] = Sums.of(path, found.files[inode].stable)
                if directory in stable and seen.durable.get(name) == inode:
                    promised[path] = inode
                    stable.add(inode)
        return cls(found, sums, promised)

    def held_against_now(self) -> tuple[list[Loss], list[str]]:
        """What is lost, and what of it must not be."""
        rows = list[Loss]()
        now = {
            path: Sums.of(path, sums.stable_bytes)
            for path, sums in self.sums.items()
            if inode_of(path) == sums.inode
        }
        for seen in self.found.directories.values():
            left = _names(seen.path)
            for name in (seen.now.keys() | left.keys()) - NO_STORAGE:
                path = f"{seen.path}/{name}"
                loss = self._loss(path, seen.now.get(name), left.get(name), now.get(path))
                rows += [loss] if loss is not None else []
        broken = [path for path in self.promised if not self._is_kept(path, now.get(path))]
        return sorted(rows, key=lambda row: row.path), sorted(broken)

    def _loss(
        self, path: str, was: int | None, becomes: int | None, now: Sums | None
    ) -> Loss | None:
        before = self.sums.get(path)
        size, stable = (before.size, before.stable_bytes) if before is not None else (0, 0)
        if was != becomes:
            left = Path(path).stat().st_size if Path(path).is_file() else 0
            return Loss(path, what_became(was, becomes), size, stable, left, 0)
        if before is None or now is None or before == now:
            return None  # a directory, or as it was
        return Loss(path, "bytes", size, stable, now.size, before.torn(now))

    def _is_kept(self, path: str, now: Sums | None) -> bool:
        if path in self.sums:
            return now is not None and self.sums[path].is_kept(now)
        return inode_of(path) == self.promised[path]


def inode_of(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None


def _names(path: str) -> dict[str, int]:
    """Of a directory, if it is one."""
    if not Path(path).is_dir():
        return {}
    return {entry.name: entry.inode() for entry in os.scandir(path)}


# -- the cut ------------------------------------------------------------------------------------


def cut(disk: Disk, lock: int, let_go: Callable[[], None] | None = None) -> None:
    """Who writes there is dead already, or lets go of the files only then. What is mounted again is
    what was on the disk."""
    shut_down(disk.place)
    if let_go is not None:
        let_go()
    mount(disk, lock)


def shut_down(place: Path) -> None:
    """From now on every call that needs the disk fails with EIO, also of files that are open."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, _WITHOUT_JOURNAL.to_bytes(4, sys.byteorder))
    finally:
        os.close(descriptor)


def lose_cached(run_id: str, data_dir: str, victims: Sequence[Victim]) -> list[Lost]:
    """All of them are dead, and each has a disk of its own."""
    disks = [disk_of(data_dir, victim.ledger) for victim in victims]
    with ExitStack() as stack:
        locks = [stack.enter_context(held(disk)) for disk in disks]
        before = [Before.of(look(run_id, victim)) for victim in victims]
        for disk in disks:  # as near to one moment as it can be
            shut_down(disk.place)
        for victim in victims:
            forget_ledger(run_id, data_dir, victim)
        for disk, lock in zip(disks, locks, strict=True):
            mount(disk, lock)
    return [_lost(victim, seen) for victim, seen in zip(victims, before, strict=True)]


def _lost(victim: Victim, before: Before) -> Lost:
    rows, broken = before.held_against_now()
    found = before.found
    for top in found.tops:
        shutil.rmtree(undo_directory(top), ignore_errors=True)
    return Lost(victim, len(found.files), tuple(rows), found.is_full, broken=tuple(broken))


def losable(run_id: str, victims: Sequence[Victim]) -> list[Lost]:
    """What the kernel may not have written yet: at the worst all that nobody has synced."""
    done = []
    for victim in victims:
        found = look(run_id, victim)
        names = {inode: seen.durable for inode, seen in found.directories.items()}
        fates = {
            inode: only_stable(file.stable)
            for inode, file in found.files.items()
            if not file.is_stable
        }
        rows = tuple(losses(found, Image(names, fates)))
        done.append(Lost(victim, len(found.files), rows, found.is_full))
    return done
