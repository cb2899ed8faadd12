"""Whether bytes that are no batch in order, at the end of a log, are a torn write or damage.

A killed process leaves the front part of one batch, at the very end. Anything else was whole once:
it must not be cut, for what follows it may be good. Records may hold whole batches themselves, as a
backup of segments does, so a batch inside the torn one proves nothing.
"""

import re
from collections.abc import Iterator
from typing import Final

from tidelog.kernel.files import File
from tidelog.kernel.limits import MIB
from tidelog.wire.crc import crc32c
from tidelog.wire.records import HEADER, BatchHeader, new_header

SEARCH_STEP_BYTES: Final = 32 * MIB
CHECKED_BYTES_MIN: Final = 64 * MIB
CHECKS_PER_BYTE: Final = 4
"""Bytes that look like many large batches must not make a start take the square of their size."""
STARTS_MAX: Final = 1_000_000
OFFSETS_AHEAD_MAX: Final = 2**31
"""No batch of the same segment has an offset so much larger."""
COVERED_FROM: Final = 21
"""A batch's checksum covers the batch from there on."""


def is_damage(file: File, *, position: int, end: int, offset: int) -> bool:
    """Whether what begins at `position`, and is no batch that may stand there, was good once.

    `offset` is the lowest one that a batch from there on may have.
    """
    if end - position < HEADER.size:
        return False  # a torn header, and nothing behind it
    header = new_header(HEADER.unpack_from(file.read(position, HEADER.size)))
    if header.magic != 2 or header.size_bytes < HEADER.size or header.last_offset_delta < 0:
        return _whole_batch_follows(file, position, end, offset)
    if _is_intact(file, position, end, header):
        return True
    if 0 <= header.base_offset - offset < OFFSETS_AHEAD_MAX:
        position += header.size_bytes  # what lies inside the batch may be its records
    return _whole_batch_follows(file, position, end, offset)


def _is_intact(file: File, position: int, end: int, header: BatchHeader) -> bool:
    """Whether the bytes from the header on, up to some place where a batch may begin or to the end
    of the file, have the checksum that the header claims.

    Offset, epoch and length lie outside the checksum: one of them is wrong then.
    """
    checksum, at = 0, position + COVERED_FROM
    for stop in _ends_of_a_batch(file, position, end, header):
        while at < stop:
            part = file.read(at, min(stop - at, MIB))
            checksum = crc32c(part, checksum)
            at += len(part) or stop - at
        if checksum == header.crc:
            return True
    return False


def _ends_of_a_batch(file: File, position: int, end: int, header: BatchHeader) -> Iterator[int]:
    """Rising; the claimed end among them."""
    claimed = min(position + header.size_bytes, end)
    first = position + HEADER.size
    for number, (content, start) in enumerate(_starts(file, first, claimed, header.base_offset)):
        if number >= STARTS_MAX:
            break
        yield content.start + start
    yield claimed


class _Window:
    """A part of a file in memory."""

    __slots__ = ("content", "start")

    def __init__(self, file: File, start: int, end: int) -> None:
        self.start = start
        # Windows overlap by half: a batch may begin in one and end in the next.
        self.content = file.read(start, min(2 * SEARCH_STEP_BYTES, end - start))


def _starts(file: File, position: int, end: int, offset: int) -> Iterator[tuple[_Window, int]]:
    """Where a batch may begin: each window of the file with a place in it."""
    # A batch starts with the upper half of its offset, which is that of the expected one
    # or the next; then its magic stands at the seventeenth byte.
    high = max(offset, 0) >> 32
    halves = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (high, high + 1))
    candidates = re.compile(rb"(?=(?:" + halves + rb").{4}[\x00-\x07].{7}\x02)", re.DOTALL)
    for start in range(position, end, SEARCH_STEP_BYTES):
        window = _Window(file, start, end)
        for match in candidates.finditer(window.content, 0, SEARCH_STEP_BYTES + 16):
            if match.start() < SEARCH_STEP_BYTES:
                yield window, match.start()


def _whole_batch_follows(file: File, position: int, end: int, offset: int) -> bool:
    """Whether some batch of the right place in the log is still whole; also where to find that out
    would take too long, for no kill leaves that."""
    left = max(CHECKED_BYTES_MIN, CHECKS_PER_BYTE * (end - position))
    for window, start in _starts(file, position, end, offset):
        content = window.content[start:]
        if len(content) < HEADER.size:
            continue
        header = new_header(HEADER.unpack_from(content))
        size = header.size_bytes
        if header.base_offset < offset or not HEADER.size <= size <= len(content):
            continue
        left -= size
        if left < 0 or crc32c(content[COVERED_FROM:size]) == header.crc:
            return True
    return False
