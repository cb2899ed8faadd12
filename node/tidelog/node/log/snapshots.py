"""The producer snapshots of one log: `<offset>.snapshot` holds what was known before it."""

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.node.log.producers import Producers
from tidelog.wire.log_files import SNAPSHOT_SUFFIX, file_name, offsets_with_suffix


def write_snapshot(directory: Directory, offset: int, producers: Producers) -> None:
    # A kill leaves the old or the new file; a power loss is found out by the checksum.
    directory.replace(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(producers), durable=False)


def newest_snapshot(directory: Directory, not_above: int) -> tuple[int, Producers] | None:
    """The newest readable snapshot up to an offset; unreadable ones are removed on the way."""
    for offset in reversed(snapshot_offsets(directory.names())):
        if offset > not_above:
            continue
        name = file_name(offset, SNAPSHOT_SUFFIX)
        try:
            return offset, decode_snapshot(directory.read_all(name) or b"", place=name)
        except CorruptError:
            directory.unlink(name)
    return None


def remove_snapshots(directory: Directory, *, above: int | None = None, below: int = 0) -> None:
    """Those above an offset, because the log was cut there; those below, for nobody needs them."""
    for offset in snapshot_offsets(directory.names()):
        if offset < below or (above is not None and offset > above):
            directory.unlink(file_name(offset, SNAPSHOT_SUFFIX))


def snapshot_offsets(names: list[str]) -> list[int]:
    return sorted(offsets_with_suffix(names, SNAPSHOT_SUFFIX))
