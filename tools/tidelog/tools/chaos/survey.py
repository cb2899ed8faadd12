"""What of a dead process's files is on stable storage, out of its ledger and the files."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from tidelog.kernel.launch import undo_directory
from tidelog.node.ipc.ledger_layout import FileRow, FlushedRow, NameRow, SyncedRow, is_full, rows_of
from tidelog.node.runtime.ledger import CUT_POSITION

NO_STORAGE = frozenset({".lock"})
"""Names of files whose content means nothing: the kernel keeps what they are for."""


class SeenFile(Struct, frozen=True):
    """One file, wherever it is now."""

    path: str
    """Its name of now, or where it is kept since it has none."""
    size: int
    stable: int
    """Its first so many bytes are on stable storage."""
    undo: str | None = None
    """The file that holds what stable storage has behind them."""
    known: bool = True

    @property
    def is_stable(self) -> bool:
        return self.stable >= self.size and self.undo is None


class SeenDirectory(Struct, frozen=True):
    """One directory: what it says now and on stable storage, by inodes."""

    path: str
    now: Mapping[str, int]
    durable: Mapping[str, int]


class Survey(Struct):
    """Of one or more directories with all they hold."""

    tops: tuple[str, ...]
    directories: dict[int, SeenDirectory] = field(default_factory=dict)
    """By inode, each after those it is in."""
    files: dict[int, SeenFile] = field(default_factory=dict)
    is_full: bool = False
    """The ledger does not know everything: what it does not know counts as lost."""


class Recorded(Struct):
    """What the ledgers of a process, and of others that write into its directories, say."""

    files: dict[int, FileRow] = field(default_factory=dict)
    names: dict[int, list[NameRow]] = field(default_factory=dict)
    flushed: dict[int, FlushedRow] = field(default_factory=dict)
    is_full: bool = False


def recorded(ledgers: Iterable[Sequence[memoryview]]) -> Recorded:
    """What one has synced covers what another has changed before. Where several know a file by its
    inode, the one that made, changed or synced it last is right: the others' was removed since."""
    found, synced = Recorded(), dict[int, int]()
    for parts in ledgers:
        found.is_full |= bool(parts) and is_full(parts[0])
        for row in rows_of(parts):
            match row:
                case FileRow(inode=inode):
                    found.files[inode] = max(found.files.get(inode, row), row, key=_stamp)
                case NameRow(directory=directory):
                    found.names.setdefault(directory, []).append(row)
                case SyncedRow(directory=directory, stamp=stamp):
                    synced[directory] = max(stamp, synced.get(directory, 0))
                case FlushedRow(inode=inode):
                    found.flushed[inode] = row
    for directory, stamp in synced.items():
        rows = found.names.get(directory, [])
        found.names[directory] = [row for row in rows if row.stamp >= stamp]
    return found


def _stamp(row: FileRow) -> int:
    return row.stamp


def survey(said: Recorded, tops: Sequence[str]) -> Survey:
    """Nobody may write meanwhile, or the two do not fit."""
    found = Survey(tuple(tops), is_full=said.is_full)
    for top in tops:
        for path, inode, names in _walk(top):
            found.directories[inode] = SeenDirectory(path, names, names)
        for path, inode in _files(top):
            found.files.setdefault(inode, _seen(said, path, inode, top))
    for inode, seen in found.directories.items():
        durable = dict(seen.now)
        for row in said.names.get(inode, ()):
            _undo(durable, row, found)
        found.directories[inode] = SeenDirectory(seen.path, seen.now, durable)
    return found


def _undo(durable: dict[str, int], row: NameRow, found: Survey) -> None:
    """What cannot be brought back counts as gone for good."""
    if not row.durable:
        durable.pop(row.name, None)
    elif row.durable in found.files or row.durable in found.directories:
        durable[row.name] = row.durable


def _seen(said: Recorded, path: str, inode: int, top: str) -> SeenFile:
    size = Path(path).stat(follow_symlinks=False).st_size
    row = said.files.get(inode)
    if row is None:
        # What was there before the ledger began was read from the disk.
        return SeenFile(path, size, size if not said.is_full else 0, known=False)
    undo = f"{undo_directory(top)}/{inode}.{row.undo}" if row.undo else None
    if undo is not None and not Path(undo).exists():
        undo = None
    return SeenFile(path, size, min(row.stable, size), undo)


def read_undo(seen: SeenFile) -> tuple[int, bytes]:
    """From which position on stable storage had which bytes."""
    if seen.undo is None:
        return seen.stable, b""
    content = Path(seen.undo).read_bytes()
    (position,) = CUT_POSITION.unpack_from(content)
    kept = content[CUT_POSITION.size :]
    # A kill between two words of the row: the cut was noted, and not done.
    return seen.stable, kept[max(seen.stable - position, 0) :]


def _walk(path: str) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Each directory, after the one it is in: its path, its inode, its names."""
    if not Path(path).is_dir():
        return
    entries = sorted(os.scandir(path), key=lambda one: one.name)
    yield path, Path(path).stat().st_ino, {entry.name: entry.inode() for entry in entries}
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)


def _files(top: str) -> Iterator[tuple[str, int]]:
    """Each file by the name it has; last those that have none and are kept."""
    for path, _, names in _walk(top):
        for name, inode in names.items():
            if name not in NO_STORAGE and not Path(path, name).is_dir():
                yield f"{path}/{name}", inode
    for path, _, names in _walk(undo_directory(top)):
        for name in filter(str.isdecimal, names):
            yield f"{path}/{name}", int(name)
