"""Rewrites a dead process's files to what a power loss could have left of them.

The image is drawn first, from the survey and a seed alone; then it is made, in place. The same seed
and the same survey give the same image: each file and each directory has draws of its own.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random

from msgspec import Struct

from tidelog.kernel.launch import undo_directory
from tidelog.tools.chaos.crash_image import PAGE_BYTES, Fate, draw_bytes, draw_names, only_stable
from tidelog.tools.chaos.survey import NO_STORAGE, SeenDirectory, SeenFile, Survey, read_undo

_STAGED = ".power-loss-"


class Image(Struct, frozen=True):
    """What is to be left."""

    names: Mapping[int, Mapping[str, int]]
    """Of each directory, by inodes."""
    fates: Mapping[int, Fate]
    """Of files that are not left as they are."""


class Loss(Struct, frozen=True):
    """What one file lost, for the table."""

    path: str
    what: str
    size: int
    stable: int
    left: int
    torn_pages: int


def draw_image(found: Survey, seed: int, salt: str = "") -> Image:
    """`salt` parts processes that lose power together."""
    names, fates = dict[int, Mapping[str, int]](), dict[int, Fate]()
    linked = {inode for seen in found.directories.values() for inode in seen.now.values()}
    for inode, seen in found.directories.items():
        rng = Random(f"{seed}/{salt}/{_relative(found, seen.path)}/")  # noqa: S311 -- a seed's draw
        names[inode] = draw_names(seen.durable, seen.now, rng)
    for inode, file in found.files.items():
        if file.is_stable:
            continue
        rng = Random(f"{seed}/{salt}/{_relative(found, file.path)}")  # noqa: S311 -- as above
        # A removed file may be back, but nobody writes back what it held unsynced.
        drawn = draw_bytes(file.stable, file.size, rng) if inode in linked else None
        fates[inode] = drawn or only_stable(file.stable)
    return Image(names, fates)


def _relative(found: Survey, path: str) -> str:
    """So that an image does not hang on where the folder is."""
    for number, top in enumerate(found.tops):
        if path == top or path.startswith(f"{top}/"):
            return f"{number}{path.removeprefix(top)}"
    return Path(path).name


def losses(found: Survey, image: Image) -> list[Loss]:
    """What the image lacks, or has again, file by file."""
    rows: list[Loss] = []
    for inode, seen in found.directories.items():
        left = image.names[inode]
        for name in sorted(seen.now.keys() | left.keys()):
            was, becomes = seen.now.get(name), left.get(name)
            loss = _loss(found, image, f"{seen.path}/{name}", was, becomes)
            if loss is not None:
                rows.append(loss)
    return sorted(rows, key=lambda row: row.path)


def _loss(
    found: Survey, image: Image, path: str, was: int | None, becomes: int | None
) -> Loss | None:
    file = found.files.get(was if was is not None else becomes or 0)
    if file is None:
        # A directory, or a file that holds nothing.
        return None if was == becomes else Loss(path, what_became(was, becomes), 0, 0, 0, 0)
    fate = image.fates.get(was or 0)
    if was != becomes:
        back = found.files.get(becomes or 0)
        left = 0 if back is None else back.stable
        return Loss(path, what_became(was, becomes), file.size, file.stable, left, 0)
    if fate is None or fate == Fate(file.size, {}, old_tail=False):
        return None
    return Loss(path, "bytes", file.size, file.stable, _left(file, fate), len(fate.torn))


def what_became(was: int | None, becomes: int | None) -> str:
    """Of a name, by what it named: one word."""
    if becomes is None:
        return "gone"
    return "back" if was is None else "old file"


def _left(file: SeenFile, fate: Fate) -> int:
    position, undo = read_undo(file)
    return max(fate.size, position + len(undo)) if fate.old_tail else fate.size


def make_image(found: Survey, image: Image) -> None:
    """In place. The process is dead, and nobody reads."""
    for inode, fate in image.fates.items():
        _rewrite(found.files[inode], fate)
    for inode, seen in reversed(found.directories.items()):
        _rename(found, seen, image.names[inode])
    for top in found.tops:
        shutil.rmtree(undo_directory(top), ignore_errors=True)


def _rewrite(file: SeenFile, fate: Fate) -> None:
    position, undo = read_undo(file)
    with Path(file.path).open("r+b") as open_file:
        for start, first in fate.torn.items():
            stop = min(start + PAGE_BYTES, fate.size)
            open_file.seek(first)
            open_file.write(_old(undo, position, first, stop).ljust(stop - first, b"\0"))
        open_file.truncate(fate.size)
        if fate.old_tail:
            open_file.seek(fate.size)
            open_file.write(_old(undo, position, fate.size, position + len(undo)))


def whole_bytes(file: SeenFile, fate: Fate) -> int:
    """So many of its first bytes will be as they are now."""
    position, undo = read_undo(file)
    with Path(file.path).open("rb") as open_file:
        for start, first in sorted(fate.torn.items()):
            stop = min(start + PAGE_BYTES, fate.size)
            open_file.seek(first)
            now = open_file.read(stop - first)
            becomes = _old(undo, position, first, stop).ljust(stop - first, b"\0")
            for at, (one, other) in enumerate(zip(now, becomes, strict=True)):
                if one != other:
                    return first + at
    return fate.size


def _old(undo: bytes, position: int, start: int, stop: int) -> bytes:
    """What stable storage had between two positions, both behind its unchanged part."""
    assert start >= position, (start, position)
    return undo[start - position : max(stop - position, 0)]


def _rename(found: Survey, seen: SeenDirectory, wanted: Mapping[str, int]) -> None:
    """What comes is staged before anything goes: it may be the same file."""
    comes = {name: inode for name, inode in wanted.items() if seen.now.get(name) != inode}
    staged = {
        name: _stage(found, seen, inode, number)
        for number, (name, inode) in enumerate(comes.items())
    }
    for name, inode in seen.now.items():
        if wanted.get(name) != inode and name not in NO_STORAGE:
            _remove(Path(seen.path, name))
    for name, stage in staged.items():
        stage.rename(Path(seen.path, name))


def _stage(found: Survey, seen: SeenDirectory, inode: int, number: int) -> Path:
    stage = Path(seen.path, f"{_STAGED}{number}")
    if inode in found.directories:
        (name,) = (name for name, child in seen.now.items() if child == inode)
        return Path(seen.path, name).rename(stage)
    stage.hardlink_to(found.files[inode].path)
    return stage


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)  # a directory that got another name is there no more
