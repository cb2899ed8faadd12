"""The files of a log, in Kafka's names and entries: what a broker writes and others may read."""

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.failures import CorruptError

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
TXN_CHECK_SUFFIX = ".txncheck"
"""The checksum of a `.txnindex` file, which has none itself; Kafka knows no such file."""
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TXN_CHECK_SUFFIX,
)

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
"""What compaction made, first unfinished, then whole and about to take the old segments' place."""

OFFSET_ENTRY_BYTES = 8
ABORTED_ENTRY: Final = Struct(">hqqqq")
assert ABORTED_ENTRY.size == 34
_ABORTED_VERSION: Final = 0
_SWAP_BYTES: Final = sys.byteorder == "little"


def file_name(offset: int, suffix: str) -> str:
    """Kafka's: twenty digits and what the file is."""
    return f"{offset:020d}{suffix}"


def offsets_with_suffix(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets in names of twenty digits and that suffix; other names are none of ours."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return [int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal() and stem.isascii()]


def read_offset_entries(content: bytes) -> "tuple[array[int], array[int]]":
    """Of whole entries of a `.index` file: last offsets of batches, relative to the segment's
    base, and where those batches begin.
    """
    both = array("i", content)
    if _SWAP_BYTES:
        both.byteswap()
    return both[0::2], both[1::2]


class Aborted(NamedTuple):
    """One aborted transaction, as `.txnindex` files have it."""

    first_offset: int
    producer_id: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int
    """When the marker was appended; all below it was decided then, and this one was left out."""


def decode_aborted(content: bytes, *, place: str) -> list[Aborted]:
    """A `.txnindex` file; CorruptError where it is not one."""
    if len(content) % ABORTED_ENTRY.size:
        raise CorruptError(file=place, position=len(content), reason="a broken last entry")
    found = []
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(content):
        if version != _ABORTED_VERSION or last < first:
            raise CorruptError(file=place, position=0, reason="no index of aborted transactions")
        found.append(Aborted(first, producer_id, last, stable))
    return found


def encode_aborted(entries: Iterable[Aborted]) -> bytes:
    return b"".join(
        ABORTED_ENTRY.pack(
            _ABORTED_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry[3]
        )
        for entry in entries
    )
