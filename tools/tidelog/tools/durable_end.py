"""Up to which offset a segment is on stable storage, and since when the next record waits."""

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.index import OffsetIndex
from tidelog.tools.log_files.kinds import base_of
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.wire.log_files import OFFSET_INDEX_SUFFIX, file_name
from tidelog.wire.records import BATCH_LENGTH_MIN, HEADER, HEADER_BYTES, MAGIC, BatchHeader

HEADERS_MAX: Final = 100_000
"""In one look, about 0.2 s: where no index says where to begin, a segment is read from its start,
and a broker writes the index when it seals the segment."""
_LOG_APPEND_TIME: Final = 8
"""Attribute of a batch: the largest timestamp is when it was appended."""


class Allowance(Struct):
    """What the segments of one look share."""

    headers: int = HEADERS_MAX


class DurableEnd(Struct, frozen=True):
    """Of a log, as far as one segment tells it."""

    offset: int | None
    """The first one that is not stable; None where too much would have to be read."""
    waits_since_ms: int | None
    """The timestamp of its record; None where there is none, or it is not whole yet."""


def durable_end(directory: str, name: str, stable: int, allowance: Allowance) -> DurableEnd:
    """Reads headers only, from the last indexed batch on; FileNotFoundError where it has gone."""
    base = base_of(name)
    descriptor = os.open(Path(directory, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # Nothing is mapped: a broker that cuts its log would end whoever reads there.
        start = _indexed(directory, base, stable, os.fstat(descriptor).st_size)
        if _header(descriptor, start, base) is None:
            start = 0
        return _walk(descriptor, base, start, stable, allowance)
    finally:
        os.close(descriptor)


def _indexed(directory: str, base: int, stable: int, size: int) -> int:
    index = OffsetIndex(ReadOnlyDirectory(directory), file_name(base, OFFSET_INDEX_SUFFIX))
    try:
        index.load(size)
    except (CorruptError, OSError):
        return 0  # of a segment in use it is not written yet
    return index.batch_start_at_or_below(stable)


def _walk(
    descriptor: int, base: int, position: int, stable: int, allowance: Allowance
) -> DurableEnd:
    end = base
    while allowance.headers:
        allowance.headers -= 1
        header = _header(descriptor, position, end)
        if header is None:
            return DurableEnd(end, None)
        position += header.size_bytes
        if position > stable:
            stamped = header.attributes & _LOG_APPEND_TIME
            since = header.max_timestamp if stamped else header.base_timestamp
            return DurableEnd(header.base_offset, None if since < 0 else since)
        end = header.last_offset + 1
    return DurableEnd(None, None)


def _header(descriptor: int, position: int, offset_min: int) -> BatchHeader | None:
    """None behind the last whole one, and where there is none."""
    content = os.pread(descriptor, HEADER_BYTES, position)
    if len(content) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack(content))
    good = header.magic == MAGIC and header.batch_length >= BATCH_LENGTH_MIN
    return header if good and header.base_offset >= offset_min else None
