"""Batch by batch what a segment file says of transactions, without reading any records.

The indexes of aborted transactions are taken from files, and those may lack an entry: the disk had
no room for it, or the replica has not got that far. The markers in the log itself say it as well.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tidelog.clients.consumer.reading import is_abort_marker
from tidelog.wire.errors import WireError
from tidelog.wire.log_files import LOG_SUFFIX, Aborted, file_name
from tidelog.wire.records import HEADER_BYTES, MAGIC, BatchHeader, read_header

_MARKER_BYTES_MAX: Final = 4096
"""Of a control batch; they have some 80."""


class Stretch(NamedTuple):
    """What is to be read of a replica: offsets, and where in which of its segments they are."""

    folder: Path
    bases: Sequence[int]
    position: int
    """In the first segment: a batch begins there, and none before it is wanted."""
    first: int
    end: int


def missing_end(stretch: Stretch, aborted: Sequence[Aborted]) -> str | None:
    """Why these are not all the aborted transactions of a stretch; None where they are.

    All that begins below its end is decided somewhere, by the word of who named that end: what is
    undecided up to there is looked for behind it.
    """
    known = {(one.producer_id, one.last_offset) for one in aborted}
    for end in _ends(stretch):
        if end.offset is None:
            return f"it holds no end of a transaction of producer {end.producer_id}"
        if end.is_abort and (end.producer_id, end.offset) not in known:
            return f"its index lacks the transaction that was aborted at offset {end.offset}"
    return None


class _End(NamedTuple):
    producer_id: int
    offset: int | None
    """None where the replica does not have it."""
    is_abort: bool


def _ends(stretch: Stretch) -> Iterator[_End]:
    """Of the transactions of which records are wanted."""
    running: set[int] = set()
    for file, position, header in _batches(stretch):
        producer = header.producer_id
        if header.base_offset >= stretch.end and not running:
            return
        if _is_in_a_transaction(header, stretch):
            running.add(producer)
        elif header.is_control and producer in running:
            running.remove(producer)
            yield _End(producer, header.base_offset, _is_abort(file, position, header))
    for producer in sorted(running):
        yield _End(producer, None, is_abort=False)


def _is_in_a_transaction(header: BatchHeader, stretch: Stretch) -> bool:
    """Whether it holds records of one, also such as are wanted. A compaction may leave none."""
    is_wanted = header.last_offset >= stretch.first and header.base_offset < stretch.end
    is_of_one = header.is_transactional and not header.is_control
    return is_wanted and is_of_one and header.record_count > 0


def _batches(stretch: Stretch) -> Iterator[tuple[BinaryIO, int, BatchHeader]]:
    position = stretch.position
    for base in stretch.bases:
        with (stretch.folder / file_name(base, LOG_SUFFIX)).open("rb", buffering=0) as file:
            for at, header in headers(file, position):
                yield file, at, header
        position = 0


def _is_abort(file: BinaryIO, position: int, header: BatchHeader) -> bool:
    batch = os.pread(file.fileno(), min(header.size_bytes, _MARKER_BYTES_MAX), position)
    return is_abort_marker(memoryview(batch))


def headers(file: BinaryIO, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Of a segment's batches, and where they are; WireError where one is none. A torn one ends
    it."""
    while len(head := os.pread(file.fileno(), HEADER_BYTES, position)) == HEADER_BYTES:
        header = read_header(head)
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
            raise WireError(f"{Path(file.name).name} has no batch at byte {position}")
        yield position, header
        position += header.size_bytes
