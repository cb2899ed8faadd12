"""Checks the index of aborted transactions of one segment."""

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.cleaning_transactions import ENTRY, decode_aborted
from tidelog.node.log.segment import TXN_INDEX_SUFFIX, file_name
from tidelog.tools.log_files.findings import Report


def check_txn_index(directory: Directory, base: int, end: int, report: Report) -> None:
    """Transactions stand in the order of their ends, which lie in the segment."""
    name = file_name(base, TXN_INDEX_SUFFIX)
    place = f"{directory.path}/{name}"
    try:
        rows = decode_aborted(directory.read_all(name) or b"", place=place)
    except CorruptError as error:
        report.violation(place, error.reason, error.position)
        return
    last = base - 1
    for number, row in enumerate(rows):
        if not last < row.last_offset < end:
            reason = f"a transaction ends at offset {row.last_offset}, not in {last + 1}..{end - 1}"
            report.violation(place, reason, number * ENTRY.size)
            return
        last = row.last_offset
