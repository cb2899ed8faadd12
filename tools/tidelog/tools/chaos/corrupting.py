"""Damage to one file of a broker: which file, where in it, by a seed, and made in place."""

import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from random import Random

from msgspec import Struct

from tidelog.kernel.files import File
from tidelog.node.log.epochs import FILE_NAME as EPOCHS
from tidelog.node.log.marks import MARK_NAME
from tidelog.node.runtime.page_cache import evict
from tidelog.tools.chaos.damage import Damage, How, NoDamageError, Within, draw_damage
from tidelog.tools.log_files.kinds import base_of
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.walk import Seen, Walk
from tidelog.wire.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)


class Files(Enum):
    """Which files of a partition, or of the log directory that it lies in."""

    LOG = LOG_SUFFIX
    INDEX = OFFSET_INDEX_SUFFIX
    TIME_INDEX = TIME_INDEX_SUFFIX
    TXN_INDEX = TXN_INDEX_SUFFIX
    SNAPSHOT = SNAPSHOT_SUFFIX
    EPOCHS = EPOCHS
    PARTITION_METADATA = PARTITION_METADATA
    RECOVERY_POINTS = RECOVERY_POINTS
    HIGH_WATERMARKS = HIGH_WATERMARKS
    LOG_STARTS = LOG_STARTS
    META_PROPERTIES = META_PROPERTIES
    CLEAN_SHUTDOWN = CLEAN_SHUTDOWN
    MARK = MARK_NAME

    @property
    def word(self) -> str:
        """As a person names it."""
        return self.value.removeprefix(".")

    @property
    def is_of_segment(self) -> bool:
        return self.value in SEGMENT_SUFFIXES


OF_LOG_DIRECTORY = frozenset(
    {
        Files.RECOVERY_POINTS,
        Files.HIGH_WATERMARKS,
        Files.LOG_STARTS,
        Files.META_PROPERTIES,
        Files.CLEAN_SHUTDOWN,
        Files.MARK,
    }
)
_MADE_AT_THE_END = frozenset({Files.INDEX, Files.TIME_INDEX})


class Batch(Struct, frozen=True):
    """A batch that the damage begins in."""

    position: int
    base_offset: int
    last_offset: int


class Wanted(Struct, frozen=True):
    """What is asked for; None is drawn."""

    target: Files
    how: How
    at: int | None = None
    offset: int | None = None


class Spot(Struct, frozen=True):
    """Damage that is to be made."""

    path: Path
    size: int
    damage: Damage
    batch: Batch | None


def plan_damage(partition: Path, wanted: Wanted, seed: int, *, is_closed: bool) -> Spot:
    """`is_closed` after a clean stop. NoDamageError where there is nothing to be damaged so."""
    drawn = Random(f"{seed}/file")  # noqa: S311 -- a seed's draw
    path = _choose(partition, wanted, drawn, is_closed=is_closed)
    file = ReadOnlyDirectory(str(path.parent)).open(path.name)
    content = bytes(file.read(0, file.size))
    batches = _batches(file, path) if wanted.target is Files.LOG else []
    file.close()
    within = _within(path, content, batches, wanted)
    rng = Random(f"{seed}/{path.name}")  # noqa: S311 -- as above
    try:
        damage = draw_damage(content, wanted.how, within, rng)
    except NoDamageError as error:
        raise NoDamageError(f"{path.name}: {error}") from error
    return Spot(path, len(content), damage, _batch_at(batches, damage.position))


def _choose(partition: Path, wanted: Wanted, rng: Random, *, is_closed: bool) -> Path:
    """A byte of all files of that kind is drawn, and so its file."""
    if wanted.target in OF_LOG_DIRECTORY:
        paths = [partition.parent / wanted.target.value]
    else:
        paths = sorted(partition.glob(f"*{wanted.target.value}"))
    if wanted.offset is not None:
        paths = _holding(partition, paths, wanted.offset)
    elif wanted.target in _MADE_AT_THE_END and not is_closed:
        paths = [path for path in paths if base_of(path.name) < max(_bases(partition))]
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    if not any(sizes):
        raise NoDamageError(_nothing(partition, wanted, is_closed=is_closed))
    return rng.choices(paths, sizes)[0]


def _nothing(partition: Path, wanted: Wanted, *, is_closed: bool) -> str:
    kind = f"{wanted.target.word} with bytes in it"
    if wanted.offset is not None:
        return f"{partition.name} has no {kind} for offset {wanted.offset}"
    if wanted.target in _MADE_AT_THE_END and not is_closed:
        return (
            f"{partition.name} has no {kind} beside its last segment, whose own is made anew "
            "unless the broker was stopped"
        )
    return f"{partition.name} has no {kind}"


def _bases(partition: Path) -> list[int]:
    return sorted(base_of(path.name) for path in partition.glob(f"*{LOG_SUFFIX}"))


def _holding(partition: Path, paths: Sequence[Path], offset: int) -> list[Path]:
    """The file of the segment that the offset lies in."""
    below = [base for base in _bases(partition) if base <= offset]
    return [path for path in paths if below and base_of(path.name) == below[-1]]


def _batches(file: File, path: Path) -> list[Seen]:
    walk = Walk(file, next_offset=base_of(path.name))
    walk.check_crc = False
    return list(walk)


def _within(path: Path, content: bytes, batches: Sequence[Seen], wanted: Wanted) -> Within:
    starts = {seen.position for seen in batches}
    if wanted.at is not None:
        if wanted.at >= len(content):
            raise NoDamageError(
                f"{path.name} has {len(content)} bytes: there is no byte {wanted.at}"
            )
        return Within(wanted.at, wanted.at + 1, starts)
    if wanted.offset is None or wanted.target is not Files.LOG:
        return Within(0, len(content), starts)
    for seen in batches:
        header = seen.header
        if header is not None and header.base_offset <= wanted.offset <= header.last_offset:
            return Within(seen.position, seen.position + seen.size, starts)
    raise NoDamageError(f"{path.name} has no batch with offset {wanted.offset}")


def _batch_at(batches: Sequence[Seen], position: int) -> Batch | None:
    for seen in batches:
        header = seen.header
        if header is not None and seen.position <= position < seen.position + seen.size:
            return Batch(seen.position, header.base_offset, header.last_offset)
    return None


def make_damage(spot: Spot) -> None:
    """On the disk; what the kernel knows of the file is forgotten, so that all read it anew."""
    damage = spot.damage
    with spot.path.open("r+b", buffering=0) as file:
        if damage.is_cut:
            file.truncate(damage.position)
        else:
            os.pwrite(file.fileno(), damage.new, damage.position)
        os.fsync(file.fileno())
        evict(file.fileno(), 0, 0)
