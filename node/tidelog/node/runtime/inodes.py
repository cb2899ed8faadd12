"""Files and directories by their inodes, which stay when names change. (shell)"""

# As in `ledger.py`, whose look at the file system this is:
# ruff: noqa: PTH116

import os
from collections.abc import Iterator
from contextlib import suppress


def inode_of(path: str) -> int:
    """0 where nothing is."""
    try:
        return os.stat(path, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return 0


def directory_inode(path: str) -> int:
    """As `inode_of`; a path of a descriptor is the directory that it is open on."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def tree_of(path: str) -> Iterator[tuple[int, str]]:
    """Every inode of a directory, its own among them."""
    yield inode_of(path), path
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from tree_of(entry.path)
            else:
                yield entry.inode(), entry.path


def kept_in(path: str) -> Iterator[tuple[int, str]]:
    """Whole files; those of cut bytes have a dot in their names."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield int(entry.name), entry.path
