"""How much of the log is known to have been on stable storage, out of the log itself.

A batch is written only when all rounds before its own are on disk, and its first record says where
that round began. So a whole batch vouches for everything before that, wherever it is found. After a
power loss this tells damage from what was merely not forced out: the first must stop the start, the
second may go.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final

from tidelog.kernel.files import Directory
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import HEADER_BYTES, check_crc, iterate_records, read_header

HEADER_NAME: Final = "flushed"
_OFFSET: Final = Struct(">q")
_CANDIDATE: Final = re.compile(rb"(?=\x00\x00.{6}\x00.{7}\x02)", re.DOTALL)
"""Where a batch may begin: an offset below 2^48, a length below 2^24, and magic 2."""
_SEGMENT: Final = re.compile(r"\d{20}\.log")

Headers = tuple[tuple[str, bytes | None], ...]


def flushed_header(end: int) -> Headers:
    """For the first record of a batch: everything before `end` is on disk."""
    return ((HEADER_NAME, _OFFSET.pack(end)),)


def flushed_end(directory: Directory) -> int:
    """The largest end that any whole batch vouches for; 0 where none does."""
    names = [name for name in directory.names() if _SEGMENT.fullmatch(name)]
    return max((end for name in names for end in _ends(directory.read_all(name) or b"")), default=0)


def _ends(content: bytes) -> Iterator[int]:
    view = memoryview(content)
    position = 0
    while (match := _CANDIDATE.search(content, position)) is not None:
        batch = _whole_batch(view, match.start())
        if batch is None:
            position = match.start() + 1
        else:
            yield _vouched(batch)
            position = match.start() + len(batch)


def _whole_batch(view: memoryview, position: int) -> memoryview | None:
    if len(view) - position < HEADER_BYTES:
        return None
    size = read_header(view, position).size_bytes
    batch = view[position : position + size]
    return batch if HEADER_BYTES <= size == len(batch) and check_crc(batch) else None


def _vouched(batch: memoryview) -> int:
    try:
        first = next(iterate_records(batch), None)
    except (WireError, Rejected):
        return 0
    for name, value in first.headers if first else ():
        if name == HEADER_NAME and value is not None and len(value) == _OFFSET.size:
            (end,) = _OFFSET.unpack(value)
            return int(end)
    return 0
