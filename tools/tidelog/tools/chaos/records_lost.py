"""How many records a power loss takes of each replica: the window that people are told."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from tidelog.kernel.ids import TopicPartition
from tidelog.node.log.directory_names import key_of
from tidelog.tools.chaos.crash_image import Fate
from tidelog.tools.chaos.power_loss import Image, whole_bytes
from tidelog.tools.chaos.survey import SeenDirectory, SeenFile, Survey
from tidelog.tools.durable_end import Allowance, durable_end
from tidelog.tools.log_files.kinds import FileKind, base_of, kind_of

_WholeBytes = Callable[[int], int]
"""Of a file, by its inode: so many of its first bytes are as they are now."""


class Window(Struct, frozen=True):
    """What one replica loses."""

    place: TopicPartition
    end: int
    """Of its log, when the power went."""
    durable: int
    """Up to here nothing could be lost."""
    left: int
    """Where the next life cuts its log."""

    @property
    def records(self) -> int:
        return self.end - self.left


def windows(found: Survey, image: Image) -> list[Window]:
    """Of each replica that loses records. Before the image is made: it reads what is there now.

    A log of which too many headers would have to be read is left out.
    """
    allowance = Allowance()
    rows = (_window(found, image, *one, allowance) for one in _replicas(found))
    return sorted((row for row in rows if row is not None), key=lambda row: row.place)


def _replicas(found: Survey) -> Iterator[tuple[TopicPartition, int]]:
    for inode, seen in found.directories.items():
        place = key_of(Path(seen.path).name)
        if place is not None:
            yield place, inode


def _window(
    found: Survey, image: Image, place: TopicPartition, directory: int, allowance: Allowance
) -> Window | None:
    seen, files = found.directories[directory], found.files
    left = image.names[directory] if _is_there(found, image, directory) else {}
    now = _Log(seen, seen.now, lambda inode: files[inode].size)
    kept = _Log(seen, left, lambda inode: _whole(files[inode], image.fates.get(inode)))
    if now.first_cut == kept.first_cut:
        return None
    stable = _Log(seen, seen.durable, lambda inode: files[inode].stable)
    ends = [log.end(allowance) for log in (now, stable, kept)]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or known[0] == known[2]:
        return None
    return Window(place, *known)


def _is_there(found: Survey, image: Image, directory: int) -> bool:
    return any(
        image.names[inode].get(name) == directory
        for inode, seen in found.directories.items()
        for name, child in seen.now.items()
        if child == directory
    )


def _whole(file: SeenFile, fate: Fate | None) -> int:
    return file.size if fate is None else whole_bytes(file, fate)


class _Log:
    """The segments of a replica that are there now, as far as one state of the disk has them."""

    def __init__(self, seen: SeenDirectory, names: Mapping[str, int], whole: _WholeBytes) -> None:
        self._path = seen.path
        self.first_cut: tuple[str, int] | None = None
        """The last segment that counts, and how many bytes of it."""
        for name in sorted(one for one in seen.now if kind_of(one) is FileKind.SEGMENT):
            inode = seen.now[name]
            is_kept = names.get(name) == inode
            self.first_cut = name, whole(inode) if is_kept else 0
            if not is_kept or whole(inode) < Path(seen.path, name).stat().st_size:
                break

    def end(self, allowance: Allowance) -> int | None:
        if self.first_cut is None:
            return 0
        name, size = self.first_cut
        return durable_end(self._path, name, size, allowance).offset if size else base_of(name)
