"""A partition's segments at one glance: offsets, sizes, times, who led."""

from collections.abc import Iterator

from tidelog.kernel.files import Directory
from tidelog.tools.log_files.sheet import Column, Row, Sheet
from tidelog.tools.log_files.walk import Walk
from tidelog.tools.output import moment, size
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_ENTRY_BYTES,
    OFFSET_INDEX_SUFFIX,
    file_name,
    offsets_with_suffix,
)

_BAR = 24


def segment_map(directory: Directory, *, title: str = "") -> Sheet:
    """One row a segment, from headers alone; the bar shows which ones are large."""
    rows = list(_rows(directory))
    largest = max((int(str(row["size"])) for row in rows), default=0)

    def bar(row: Row) -> str:
        share = 0 if not largest else -(-int(str(row["size"])) * _BAR // largest)
        return "#" * share

    columns = (
        Column("SEGMENT", lambda row: row["file"]),
        Column("OFFSETS", lambda row: f"{row['base_offset']}..{row['end_offset']}"),
        Column("BATCHES", lambda row: row["batches"]),
        Column("SIZE", lambda row: size(int(str(row["size"])))),
        Column("FROM", lambda row: moment(int(str(row["first_timestamp"])))),
        Column("TO", lambda row: moment(int(str(row["max_timestamp"])))),
        Column("EPOCHS", _epochs),
        Column("INDEXED", lambda row: row["index_entries"]),
        Column("", bar),
    )
    return Sheet("segment", columns, rows, title)


def _epochs(row: Row) -> str:
    first, last = row["first_epoch"], row["last_epoch"]
    return "-" if first is None else f"{first}" if first == last else f"{first}..{last}"


def _rows(directory: Directory) -> Iterator[dict[str, int | str | None]]:
    for base in sorted(offsets_with_suffix(directory.names(), LOG_SUFFIX)):
        yield _row(directory, base)


def _row(directory: Directory, base: int) -> dict[str, int | str | None]:
    name = file_name(base, LOG_SUFFIX)
    file = directory.open(name)
    walk = Walk(file, next_offset=base)
    walk.check_crc = False
    batches, first_timestamp, max_timestamp = 0, -1, -1
    epochs: list[int] = []
    for seen in walk:
        if seen.header is None or seen.wrong is not None:
            continue
        first_timestamp = seen.header.base_timestamp if not batches else first_timestamp
        max_timestamp = max(max_timestamp, seen.header.max_timestamp)
        if not epochs or epochs[-1] != seen.header.partition_leader_epoch:
            epochs.append(seen.header.partition_leader_epoch)
        batches += 1
    byte_count = file.size
    file.close()
    index = directory.size(file_name(base, OFFSET_INDEX_SUFFIX))
    return {
        "file": name,
        "base_offset": base,
        "end_offset": walk.next_offset,
        "batches": batches,
        "size": byte_count,
        "first_timestamp": first_timestamp,
        "max_timestamp": max_timestamp,
        "first_epoch": epochs[0] if epochs else None,
        "last_epoch": epochs[-1] if epochs else None,
        "index_entries": None if index is None else index // OFFSET_ENTRY_BYTES,
    }
