"""What each file in a log directory is, by its name."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidelog.node.log.directory_names import DELETED_SUFFIX, PENDING_SUFFIX, STRAY_SUFFIX, key_of
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.kept import KEPT_NAME
from tidelog.node.log.marks import MARK_NAME
from tidelog.node.runtime.disk import LOCK_NAME
from tidelog.wire import checkpoints
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_CHECK_SUFFIX,
    TXN_INDEX_SUFFIX,
)

CLEANER_OFFSETS: Final = checkpoints.CLEANED
METADATA_TOPIC: Final = "__cluster_metadata"


class FileKind(Enum):
    """Invariant: one kind, one format."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TXN_INDEX = "transaction index"
    TXN_CHECK = "checksum of a transaction index"
    PRODUCERS = "producer snapshot"
    METADATA_SNAPSHOT = "metadata snapshot"
    EPOCHS = "leader epochs"
    OFFSETS = "offset checkpoint"
    PARTITION_METADATA = "partition metadata"
    PROPERTIES = "properties"
    MARK = "mark"
    KEPT = "kept logs"
    CLEAN_SHUTDOWN = "clean shutdown"
    LOCK = "lock"
    LEFT_BEHIND = "left behind"
    """Was about to become something, or to go; the next start removes it."""
    UNKNOWN = "unknown"


_BY_NAME: Final[Mapping[str, FileKind]] = {
    EPOCHS_NAME: FileKind.EPOCHS,
    checkpoints.RECOVERY_POINTS: FileKind.OFFSETS,
    checkpoints.HIGH_WATERMARKS: FileKind.OFFSETS,
    checkpoints.LOG_STARTS: FileKind.OFFSETS,
    CLEANER_OFFSETS: FileKind.OFFSETS,
    checkpoints.PARTITION_METADATA: FileKind.PARTITION_METADATA,
    checkpoints.META_PROPERTIES: FileKind.PROPERTIES,
    MARK_NAME: FileKind.MARK,
    KEPT_NAME: FileKind.KEPT,
    checkpoints.CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    LOCK_NAME: FileKind.LOCK,
}
_BY_SUFFIX: Final[Mapping[str, FileKind]] = {
    LOG_SUFFIX: FileKind.SEGMENT,
    OFFSET_INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TXN_INDEX_SUFFIX: FileKind.TXN_INDEX,
    TXN_CHECK_SUFFIX: FileKind.TXN_CHECK,
    SNAPSHOT_SUFFIX: FileKind.PRODUCERS,
}
_NUMBERED: Final = re.compile(r"[0-9]{20}(\.[a-z]+)")
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_LEFT_BEHIND: Final = (".tmp", ".deleted", ".cleaned", ".swap", PENDING_SUFFIX)
_PARTITION_FILES: Final = frozenset({FileKind.EPOCHS, FileKind.PARTITION_METADATA})


def kind_of(name: str) -> FileKind:
    """Of a file, wherever it lies."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    numbered = _NUMBERED.fullmatch(name)
    if numbered and numbered[1] in _BY_SUFFIX:
        return _BY_SUFFIX[numbered[1]]
    if _METADATA_SNAPSHOT.fullmatch(name):
        return FileKind.METADATA_SNAPSHOT
    return FileKind.LEFT_BEHIND if name.endswith(_LEFT_BEHIND) else FileKind.UNKNOWN


def belongs_in_partition(name: str, *, metadata: bool) -> bool:
    """Whether a partition's directory may hold a file of that name."""
    kind = kind_of(name)
    if kind is FileKind.METADATA_SNAPSHOT:
        return metadata
    return kind in _PARTITION_FILES or kind is FileKind.LEFT_BEHIND or kind in _BY_SUFFIX.values()


OF_A_FILE_SYSTEM: Final = "lost+found"
"""What the top of a disk holds: a log directory may be one."""


def belongs_in_log_directory(name: str) -> bool:
    """Whether a log directory may hold a file or a directory of that name."""
    if (
        key_of(name) is not None
        or name.endswith((DELETED_SUFFIX, STRAY_SUFFIX))
        or name == OF_A_FILE_SYSTEM
    ):
        return True
    kind = kind_of(name)
    return kind is FileKind.LEFT_BEHIND or (name in _BY_NAME and kind not in _PARTITION_FILES)


def base_of(name: str) -> int:
    """The offset in the name of a segment's file or a snapshot."""
    return int(name[:20])
