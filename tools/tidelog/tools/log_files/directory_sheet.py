"""A log directory at one glance: a row for each partition, from names, sizes and checkpoints."""

from collections.abc import Iterator

from tidelog.kernel.files import Directory
from tidelog.node.log.directory_names import key_of
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.sheet import Column, Sheet, plain
from tidelog.tools.log_files.verify_directory import Checkpoints, read_checkpoints
from tidelog.tools.output import size
from tidelog.wire.log_files import LOG_SUFFIX, file_name, offsets_with_suffix


def directory_sheet(directory: Directory, *, title: str = "") -> Sheet:
    """No log is read: a broker may have very many."""
    columns = (
        *plain("topic", "partition", "segments"),
        Column("SIZE", lambda row: size(int(str(row["size"])))),
        *plain("first_segment", "log_start", "recovery_point", "high_watermark"),
    )
    return Sheet(
        "partition", columns, _rows(directory, read_checkpoints(directory, Report())), title
    )


def _rows(directory: Directory, found: Checkpoints) -> Iterator[dict[str, object]]:
    for name in directory.names():
        key = key_of(name)
        if key is None:
            continue
        where = directory.directory(name)
        bases = sorted(offsets_with_suffix(where.names(), LOG_SUFFIX))
        yield {
            "topic": key[0],
            "partition": key[1],
            "segments": len(bases),
            "size": sum(where.size(file_name(base, LOG_SUFFIX)) or 0 for base in bases),
            "first_segment": bases[0] if bases else None,
            "log_start": found.log_starts.get(key),
            "recovery_point": found.recovery_points.get(key),
            "high_watermark": found.high_watermarks.get(key),
        }
