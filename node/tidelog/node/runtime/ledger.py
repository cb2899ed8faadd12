"""The durability ledger: what of each file is on stable storage, told at the disk's seam. (shell)

`disk.py` says what it is about to do, and what it has done. Nothing is told of an append: what lies
behind the stable part of a file is what was appended since its last sync. Before bytes or names are
taken away that a power loss would bring back, they are put aside, in a folder beside the logs:
a replaced or removed file by a second link, cut bytes by a copy. What is too large for that counts
as gone for good, which a power loss may well make it.

Any thread of the process may call; another process has a ledger of its own.
"""

# A Path object costs more than the call it names, and these are called for each file of each log:
# ruff: noqa: PTH102, PTH108, PTH116, PTH123

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from struct import Struct as Packed
from typing import Final

from tidelog.kernel.launch import undo_directory
from tidelog.node.ipc.ledger_layout import (
    FileRow,
    FlushedRow,
    NameRow,
    Place,
    Rows,
    SyncedRow,
    rows_of,
)
from tidelog.node.ipc.ledger_memory import (
    LedgerMemory,
    helpers_of,
    read_ledger,
    remove_ledger,
)
from tidelog.node.runtime.inodes import directory_inode, inode_of, kept_in, tree_of
from tidelog.node.runtime.last_flushes import LastFlushes
from tidelog.node.runtime.unrecorded import Unrecorded

ASIDE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one file; whole segments that retention removes must not fill the disk they were to free."""
CUT_POSITION: Final = Packed("<Q")
"""Begins a file of cut bytes: from where on they lay."""
_DIRECTORY_PERMISSIONS: Final = 0o700
_PERMISSIONS: Final = 0o600

_NOT_KNOWN: Final = -1


class _File:
    __slots__ = ("place", "stable", "stamp", "syncs", "undo")

    def __init__(self, place: Place, stable: int, undo: int, stamp: int) -> None:
        self.place = place
        self.stable = stable
        self.undo = undo
        self.stamp = stamp
        """When this was last known better than by finding the file; 0 if it never was."""
        self.syncs: list[_Sync] = []


class _Sync:
    """One sync under way: how much it will make stable."""

    __slots__ = ("size", "undo")

    def __init__(self, size: int, undo: int) -> None:
        self.size = size
        self.undo = undo


class _Name:
    __slots__ = ("current", "done", "durable", "place")

    def __init__(self, place: Place, durable: int, current: int, done: int) -> None:
        self.place = place
        self.durable = durable
        self.current = current
        self.done = done
        """As `current`, but for a change that is under way: a sync need not cover it."""


class Ledger(Unrecorded):
    """Invariant: it never claims more than is so. What makes something durable is recorded when it
    is done; what takes that away, before it is begun."""

    def __init__(
        self,
        memory: LedgerMemory,
        tops: Sequence[str],
        on_full: Callable[[], None],
        *,
        tells_syncs: bool = False,
    ) -> None:
        """Of these directories. With `tells_syncs` it says when it synced which one, for the ledger
        of another process that writes into it."""
        self._memory = memory
        self._helpers = 0
        self._tops = {top: top for top in tops}
        self._synced: dict[int, Place] | None = {} if tells_syncs else None
        self._on_full = on_full
        self._rows = Rows(memory.parts, memory.grow)
        self._flushed = LastFlushes(self._rows)
        self._lock = threading.Lock()
        self._files: dict[int, _File] = {}
        self._names: dict[int, dict[str, _Name]] = {}
        """By the directory's inode: what it says otherwise than stable storage does."""
        self._targets: dict[int, int] = {}
        """How many names have an inode on stable storage, and not now."""
        self._aside: dict[int, str] = {}
        """Where a removed file is kept, by its inode."""
        self._orphans: list[int] = []
        """What stable storage has no name for any more."""
        self._numbers = 0
        """Of files of cut bytes."""
        self._said_full = False
        self._in_sync: Counter[int] = Counter()
        """How many syncs of a directory are under way."""
        self._take_up()

    # -- files

    def found(self, inode: int, size: int) -> None:
        if inode not in self._files:
            with self._lock:
                self._put_file(inode, size)

    def made(self, inode: int) -> None:
        with self._lock:
            self._forget(inode, self._files.get(inode))  # a file that had this number before
            self._put_file(inode, 0, time.monotonic_ns())

    def _put_file(self, inode: int, stable: int, stamp: int = 0) -> None:
        place = self._rows.put_file(inode, stable, stamp)
        if place is None:
            self._say_full()
        else:
            self._files[inode] = _File(place, stable, 0, stamp)

    def _stamp_file(self, file: _File) -> None:
        """With the lock: whatever another process's ledger says of this inode is older now."""
        file.stamp = time.monotonic_ns()
        self._rows.stamp_file(file.place, file.stamp)

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            self._on_full()

    def changing_from(self, path: str, fd: int, position: int) -> None:
        found = os.fstat(fd)
        self.found(found.st_ino, found.st_size)
        file = self._files.get(found.st_ino)
        if file is None:
            return
        undo = 0
        if position < file.stable:
            undo = self._keep_bytes(path, fd, found.st_ino, position, file)
        with self._lock:
            if self._files.get(found.st_ino) is not file:
                return  # removed meanwhile: its row may be another one's by now
            old = file.undo
            for sync in file.syncs:
                sync.size = min(sync.size, position)
            if position < file.stable:
                self._rows.set_undo(file.place, undo)
                self._rows.set_stable(file.place, position)
                file.undo, file.stable = undo, position
            self._stamp_file(file)
        if old and old != file.undo:
            self._drop_cut(found.st_ino, old)

    def _keep_bytes(self, path: str, fd: int, inode: int, position: int, file: _File) -> int:
        """The number of the file that has them; 0 where they are not kept."""
        if file.stable - position > ASIDE_BYTES_MAX:
            return 0
        kept = os.pread(fd, file.stable - position, position)
        if file.undo:
            with suppress(OSError), open(self._cut(path, inode, file.undo), "rb") as before:
                kept += before.read(ASIDE_BYTES_MAX)[CUT_POSITION.size :]
        with self._lock:
            self._numbers += 1
            number = self._numbers
        try:
            self._make_undo_directory(path)
            with open(self._cut(path, inode, number), "xb") as copy:
                copy.write(CUT_POSITION.pack(position) + kept)
        except OSError:
            return 0
        return number

    def _cut(self, path: str, inode: int, number: int) -> str:
        return f"{undo_directory(self._top(path))}/{inode}.{number}"

    def _drop_cut(self, inode: int, number: int) -> None:
        for beside in self._tops.values():
            with suppress(OSError):
                os.unlink(f"{undo_directory(beside)}/{inode}.{number}")

    @contextmanager
    def syncing(self, fd: int) -> Iterator[None]:
        found = os.fstat(fd)
        file = self._files.get(found.st_ino)
        if file is None:
            yield
            return
        with self._lock:
            sync = _Sync(found.st_size, file.undo)
            file.syncs.append(sync)
        begun = time.monotonic_ns()
        try:
            yield
        except BaseException:
            with self._lock:
                file.syncs.remove(sync)
            raise
        with self._lock:
            file.syncs.remove(sync)
            if self._files.get(found.st_ino) is not file:
                return
            self._flushed.note(found.st_ino, begun, time.monotonic_ns())
            if sync.size > file.stable:
                self._rows.set_stable(file.place, sync.size)
                file.stable = sync.size
            self._stamp_file(file)
            dropped = file.undo if file.undo == sync.undo else 0
            if dropped:
                self._rows.set_undo(file.place, 0)
                file.undo = 0
        if dropped:
            self._drop_cut(found.st_ino, dropped)

    def _forget(self, inode: int, file: _File | None) -> None:
        """With the lock; a file made meanwhile may have the number by now."""
        if file is not None and self._files.get(inode) is file:
            del self._files[inode]
            self._rows.free(file.place)
            self._flushed.forget(inode)
            if file.undo:
                self._drop_cut(inode, file.undo)

    # -- names

    @contextmanager
    def creating(self, path: str, name: str) -> Iterator[None]:
        directory = directory_inode(path)
        with self._lock:
            self._change(directory, name, was=0, now=_NOT_KNOWN)
        try:
            yield
        finally:
            self._look_again(directory, path, name)
        with self._lock:  # of a directory that had this number before
            for entry in self._names.pop(inode_of(f"{path}/{name}"), {}).values():
                self._free_name(entry)

    @contextmanager
    def renaming(self, path: str, old: str, new: str) -> Iterator[None]:
        directory = directory_inode(path)
        moved, replaced = inode_of(f"{path}/{old}"), inode_of(f"{path}/{new}")
        file = self._files.get(replaced)
        is_kept = self._keep_file(directory, path, new, replaced)
        with self._lock:
            # One change: where one half of it cannot be undone, neither can the other.
            self._change(directory, new, was=replaced if is_kept else moved, now=moved)
            self._change(directory, old, was=moved if is_kept else 0, now=0)
        try:
            yield
        except OSError:
            self._look_again(directory, path, old, new)
            raise
        self._settle(directory, old, new)
        if replaced not in self._aside:
            with self._lock:
                self._forget(replaced, file)

    @contextmanager
    def removing(self, path: str, name: str) -> Iterator[None]:
        directory, inode = directory_inode(path), inode_of(f"{path}/{name}")
        if not inode:
            yield
            return
        file = self._files.get(inode)
        is_kept = self._keep_file(directory, path, name, inode)
        with self._lock:
            self._change(directory, name, was=inode if is_kept else 0, now=0)
        try:
            yield
        except OSError:
            self._look_again(directory, path, name)
            raise
        self._settle(directory, name)
        if inode not in self._aside:
            with self._lock:
                self._forget(inode, file)

    @contextmanager
    def removing_tree(self, path: str, name: str) -> Iterator[None]:
        """It is not kept: its removal counts as durable once it is done."""
        directory = directory_inode(path)
        found = dict(tree_of(f"{path}/{name}"))
        files = {inode: self._files.get(inode) for inode in found}
        yield
        with self._lock:
            self._change(directory, name, was=0, now=0)
            for inode in found:
                for entry in self._names.pop(inode, {}).values():
                    self._free_name(entry)
            for inode, file in files.items():
                self._forget(inode, file)
                self._targets.pop(inode, None)
            gone = [key for key, entry in self._in(directory) if entry.durable in found]
            for key in gone:
                self._free_name(self._names[directory].pop(key))
        self._settle(directory, name)

    def _in(self, directory: int) -> list[tuple[str, _Name]]:
        return list(self._names.get(directory, {}).items())

    def _change(self, directory: int, name: str, *, was: int, now: int) -> None:
        """With the lock, before it is done: no row goes yet."""
        names = self._names.setdefault(directory, {})
        entry = names.get(name)
        if entry is not None:
            entry.current = now
            self._rows.set_stamp(entry.place, time.monotonic_ns())
            return
        if was == now:
            return
        place = self._rows.put_name(directory, os.fsencode(name), was, time.monotonic_ns())
        if place is None:
            self._say_full()
            return
        names[name] = _Name(place, was, now, was)
        if was:
            self._targets[was] = self._targets.get(was, 0) + 1

    def _look_again(self, directory: int, path: str, *names: str) -> None:
        """What it is by now, where that could not be told before."""
        there = {name: inode_of(f"{path}/{name}") for name in names}
        with self._lock:
            for name, inode in there.items():
                entry = self._names.get(directory, {}).get(name)
                if entry is not None:
                    entry.current = inode
        self._settle(directory, *names)

    def _settle(self, directory: int, *names: str) -> None:
        """After it is done: what is again as stable storage has it needs no row."""
        with self._lock:
            of_directory = self._names.get(directory, {})
            for name in of_directory.keys() & set(names):
                of_directory[name].done = of_directory[name].current
            self._settle_some(directory, names)
            gone = self._unwanted()
        self._drop(gone)

    def _settle_some(self, directory: int, names: Iterable[str]) -> None:
        """Not while the directory is being synced: a name that came and went meanwhile is there."""
        of_directory = self._names.get(directory, {})
        for name in () if directory in self._in_sync else names:
            entry = of_directory.get(name)
            if entry is not None and entry.current == entry.durable == entry.done:
                self._free_name(of_directory.pop(name))

    def _free_name(self, entry: _Name) -> None:
        self._rows.free(entry.place)
        self._release_target(entry.durable)

    def _release_target(self, inode: int) -> None:
        if inode:
            left = self._targets.get(inode, 0) - 1
            if left > 0:
                self._targets[inode] = left
            else:
                self._targets.pop(inode, None)
                self._orphans.append(inode)

    # -- what is kept aside

    def _keep_file(self, directory: int, path: str, name: str, inode: int) -> bool:
        """Before its last name goes: a second one, if stable storage still has the first. Whether
        what stable storage has can be brought back."""
        entry = self._names.get(directory, {}).get(name)
        is_target = inode in self._targets or (inode != 0 and entry is None)
        if not is_target or inode in self._aside:
            return True
        source, kept = f"{path}/{name}", f"{undo_directory(self._top(path))}/{inode}"
        if not self._link(path, source, kept):
            self._give_up(inode)
            return False
        self._aside[inode] = kept
        return True

    def _link(self, path: str, source: str, kept: str) -> bool:
        try:
            if os.stat(source, follow_symlinks=False).st_size > ASIDE_BYTES_MAX:
                return False
            self._make_undo_directory(path)
            with suppress(FileExistsError):
                os.link(source, kept, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _give_up(self, inode: int) -> None:
        """It cannot be kept: from here on, what it was called and where counts as durable now."""
        with self._lock:
            for names in self._names.values() if inode in self._targets else ():
                for name in [key for key, entry in names.items() if entry.durable == inode]:
                    self._free_name(names.pop(name))

    def _unwanted(self) -> list[tuple[int, str, _File | None]]:
        """With the lock: files aside that no name of stable storage means any more."""
        orphans, self._orphans = self._orphans, []
        return [
            (inode, self._aside.pop(inode), self._files.get(inode))
            for inode in orphans
            if inode in self._aside and inode not in self._targets
        ]

    def _drop(self, unwanted: Sequence[tuple[int, str, _File | None]]) -> None:
        for inode, path, file in unwanted:
            with suppress(OSError):
                last = os.stat(path, follow_symlinks=False).st_nlink == 1
                os.unlink(path)
                if last:
                    with self._lock:
                        self._forget(inode, file)

    def _make_undo_directory(self, path: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(undo_directory(self._top(path)), _DIRECTORY_PERMISSIONS)

    def _top(self, path: str) -> str:
        """Beside which what is taken away there is kept."""
        return next(
            beside
            for top, beside in self._tops.items()
            if path == top or path.startswith(f"{top}/")
        )

    @contextmanager
    def syncing_names(self, fd: int) -> Iterator[None]:
        directory = os.fstat(fd).st_ino
        with self._lock:
            submitted = {name: entry.done for name, entry in self._in(directory)}
            self._in_sync[directory] += 1
            stamp = time.monotonic_ns()
        synced = False
        try:
            yield
            synced = True
        finally:
            with self._lock:
                self._in_sync -= Counter((directory,))
                names = self._names.get(directory, {})
                for name in submitted.keys() & names.keys() if synced else ():
                    self._synced_name(names, name, names[name], submitted[name])
                if synced:
                    self._tell_sync(directory, stamp)
                self._settle_some(directory, list(names))
                gone = self._unwanted()
            self._drop(gone)

    def _tell_sync(self, directory: int, stamp: int) -> None:
        if self._synced is None:
            return
        place = self._synced.get(directory)
        if place is not None:
            self._rows.set_synced(place, stamp)
        elif (place := self._rows.put_synced(directory, stamp)) is not None:
            self._synced[directory] = place

    def _synced_name(
        self, names: dict[str, _Name], name: str, entry: _Name, submitted: int
    ) -> None:
        if entry.current == submitted:
            self._free_name(names.pop(name))
            return
        # Changed while the sync was under way: what it was then is durable, if it is still there.
        if submitted and not any(other.current == submitted for other in names.values()):
            self._free_name(names.pop(name))
            return
        self._rows.set_durable(entry.place, submitted)
        self._release_target(entry.durable)
        entry.durable = submitted
        if submitted:
            self._targets[submitted] = self._targets.get(submitted, 0) + 1

    def resting(self, age_ns: int) -> list[str]:
        """Of a busy directory some other sync lets the files go soon. If it is at rest, nobody
        syncs it, and they would stay for good."""
        before = time.monotonic_ns() - age_ns
        with self._lock:
            found = {
                directory
                for directory, names in self._names.items()
                for entry in names.values()
                if entry.durable in self._aside and self._rows.stamp_of(entry.place) <= before
            }
        places = self._directories() if found else {}
        return sorted(places[directory] for directory in found & places.keys())

    # -- another process's, and an earlier life's

    def absorb(self, parts: Sequence[memoryview]) -> None:
        """What a process that wrote into the same directories, and is dead, knew of them."""
        names: list[NameRow] = []
        with self._lock:
            for row in rows_of(parts):
                match row:
                    case FileRow():
                        self._absorb_file(row)
                    case NameRow():
                        names.append(row)
                    case SyncedRow(directory=directory, stamp=stamp):
                        self._settle_older(directory, stamp)
                    case FlushedRow(inode=inode, at=at, took_ns=took_ns):
                        self._flushed.note(inode, at - took_ns, at)
            self._absorb_names(names)
            self._absorb_aside(names)
            gone = self._unwanted()
        self._drop(gone)

    def _absorb_file(self, row: FileRow) -> None:
        """With the lock; what this process knows itself counts, unless it is of an earlier file."""
        known = self._files.get(row.inode)
        if known is None or known.stamp < row.stamp:
            self._forget(row.inode, known)
            self._put_file(row.inode, row.stable, row.stamp)

    def helper(self) -> list[str]:
        """What a process is told that is to write into the same directories; `end_helper` when it
        has ended."""
        self._helpers += 1
        memory = self._memory
        return [memory.run_id, f"{helpers_of(memory.owner)}{self._helpers}", memory.boot_id]

    def end_helper(self, told: Sequence[str]) -> None:
        run_id, name, _ = told
        self.take_over([(name, read_ledger(run_id, name))])

    def take_over(self, others: Iterable[tuple[str, Sequence[memoryview]]]) -> None:
        for name, parts in others:
            self.absorb(parts)
            remove_ledger(self._memory.run_id, name)

    def also(self, path: str, beside: str) -> None:
        """A directory of one of these, by another path: put aside what goes there as of this."""
        self._tops[path] = beside

    def _settle_older(self, directory: int, stamp: int) -> None:
        """Its sync covered what this process had changed there before."""
        names = self._names.get(directory, {})
        for name, entry in list(names.items()):
            if self._rows.stamp_of(entry.place) < stamp:
                self._free_name(names.pop(name))

    def _absorb_names(self, rows: Sequence[NameRow]) -> None:
        places = self._directories() if rows else {}
        for row in rows:
            path = places.get(row.directory)
            names = self._names.setdefault(row.directory, {})
            current = 0 if path is None else inode_of(f"{path}/{row.name}")
            if path is None or row.name in names or current == row.durable:
                continue
            self._change(row.directory, row.name, was=row.durable, now=current)
            if row.name in names:  # else there was no room
                names[row.name].done = current

    def _absorb_aside(self, rows: Iterable[NameRow]) -> None:
        """With the lock: the files that it kept for these names are kept by this one now."""
        for inode in {row.durable for row in rows} - self._aside.keys() - {0}:
            for beside in self._tops.values():
                path = f"{undo_directory(beside)}/{inode}"
                if inode_of(path) == inode:
                    self._aside[inode] = path
                    if inode not in self._targets:
                        self._orphans.append(inode)

    def _take_up(self) -> None:
        pending: list[NameRow] = []
        for row in self._rows.existing():
            match row:
                case FileRow(place, inode, stable, undo, stamp):
                    self._files[inode] = _File(place, stable, undo, stamp)
                    self._numbers = max(self._numbers, undo)
                case NameRow():
                    pending.append(row)
                case SyncedRow(place):
                    self._rows.free(place)
                case FlushedRow(place, inode):
                    self._flushed.take_up(inode, place)
        for beside in self._tops.values():
            for inode, path in kept_in(undo_directory(beside)):
                self._aside[inode] = path
        if pending:
            self._take_up_names(pending)
        self._orphans += self._aside
        self._drop(self._unwanted())

    def _take_up_names(self, pending: Sequence[NameRow]) -> None:
        places = self._directories()
        for row in pending:
            path = places.get(row.directory)
            if path is None:
                self._rows.free(row.place)
                continue
            current = inode_of(f"{path}/{row.name}")
            names = self._names.setdefault(row.directory, {})
            names[row.name] = _Name(row.place, row.durable, current, current)
            if row.durable:
                self._targets[row.durable] = self._targets.get(row.durable, 0) + 1
        for row in pending:
            self._settle(row.directory, row.name)

    def _directories(self) -> Mapping[int, str]:
        places = {}
        for top in self._tops:
            places[directory_inode(top)] = top
            with suppress(FileNotFoundError), os.scandir(top) as entries:
                places |= {e.inode(): e.path for e in entries if e.is_dir(follow_symlinks=False)}
        return places
