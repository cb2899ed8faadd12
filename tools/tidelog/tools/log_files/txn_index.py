"""The index of aborted transactions: Kafka's rows, one a transaction."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.segment import TXN_INDEX_SUFFIX, file_name
from tidelog.tools.log_files.findings import Report

_ROW = Struct(">hqqqq")
_VERSION = 0


class AbortedRow(NamedTuple):
    """One aborted transaction of a producer."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_rows(content: bytes, *, place: str) -> Iterator[AbortedRow]:
    """CorruptError where the rows are not whole."""
    if len(content) % _ROW.size:
        raise CorruptError(file=place, position=len(content), reason="a broken last row")
    return map(AbortedRow._make, _ROW.iter_unpack(content))


def check_txn_index(directory: Directory, base: int, end: int, report: Report) -> None:
    """Rows rise, and name offsets up to the segment's end."""
    name = file_name(base, TXN_INDEX_SUFFIX)
    place = f"{directory.path}/{name}"
    try:
        last = -1
        for number, row in enumerate(aborted_rows(directory.read_all(name) or b"", place=place)):
            rises = row.first_offset <= row.last_offset and last < row.last_offset < end
            if row.version != _VERSION or row.last_offset < base or not rises:
                report.violation(place, "a row makes no sense", number * _ROW.size)
                return
            last = row.last_offset
    except CorruptError as error:
        report.violation(place, error.reason, error.position)
