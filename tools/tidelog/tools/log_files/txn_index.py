"""Holds the indexes of aborted transactions against the markers in their segments."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.txn_index import TxnIndex
from tidelog.tools.log_files.findings import Report
from tidelog.wire.log_files import ABORTED_ENTRY, TXN_INDEX_SUFFIX, Aborted, file_name
from tidelog.wire.records import EndMarker


class TxnIndexCheck:
    """Takes what was aborted, as the batches say it, and looks at each index behind its segment.

    Of what was open before the log's first batch an index may say more, where nothing else does.
    And of what is compacted: but each entry stands beside its marker, and reaches back to no
    other one of its producer.
    """

    def __init__(self, directory: Directory, unknown_below: int, *, compacted: bool) -> None:
        self._directory = directory
        self._unknown_below = unknown_below
        self._compacted = compacted
        self._lost = False
        self._expected: dict[int, Aborted] = {}
        """By the offset of the marker, of the segment that comes by."""

        self._markers: dict[int, Seen] = {}
        """By their offsets, as above."""
        self._last: dict[int, int] = {}
        """Of each producer, where its last marker is."""

    def note_marker(self, offset: int, marker: EndMarker | None) -> None:
        """The next control batch; None where it ends nothing any more."""
        if marker is not None:
            before = self._last.get(marker.producer_id, -1)
            self._markers[offset] = Seen(marker, before)
            self._last[marker.producer_id] = offset

    def note(self, aborted: Aborted) -> None:
        """The next abort marker that had something to end."""
        self._expected[aborted.last_offset] = aborted

    def lose_track(self) -> None:
        """A batch cannot be read: what is open from here on is not known."""
        self._lost = True

    def look(self, base: int, end: int, report: Report, *, made_anew: bool) -> None:
        """All batches of a segment came by; `made_anew` where the next start looks at them too."""
        expected, self._expected = self._expected, {}
        markers, self._markers = self._markers, {}
        index = TxnIndex(self._directory, file_name(base, TXN_INDEX_SUFFIX), is_new=False)
        place = f"{self._directory.path}/{index.file.name}"
        try:
            index.load(base, end)
        except CorruptError as error:
            # The engine sees it as well, at the first use.
            report.remark(place, f"{error.reason}: it is going to be made anew", error.position)
            return
        reason, number = self._what_is_wrong(index.entries(), expected, markers)
        if reason is None or self._lost:
            return
        if made_anew:
            report.remark(
                place, f"{reason}: the next start makes it anew", number * ABORTED_ENTRY.size
            )
        else:
            report.violation(place, reason, number * ABORTED_ENTRY.size)

    def _what_is_wrong(
        self,
        entries: list[Aborted],
        expected: dict[int, Aborted],
        markers: Mapping[int, "Seen"],
    ) -> tuple[str | None, int]:
        """And the number of the entry."""
        for number, entry in enumerate(entries):
            true = expected.pop(entry.last_offset, None)
            seen = markers.get(entry.last_offset)
            if self._compacted and (seen is None or not seen.is_of(entry)):
                return f"says {tuple(entry)}, which no marker there ends", number
            if true is None:
                if not self._may_stay(entry):
                    return f"nothing was aborted at offset {entry.last_offset}", number
            elif not self._agree(entry, true):
                return f"says {tuple(entry)}, the log {tuple(true)}", number
        for offset in expected:
            return f"lacks what was aborted at offset {offset}", len(entries)
        return None, 0

    def _may_stay(self, entry: Aborted) -> bool:
        """Whether its records may have been there: deleted since, or compacted."""
        return self._compacted or entry.first_offset < self._unknown_below

    def _agree(self, entry: Aborted, true: Aborted) -> bool:
        if entry == true:
            return True
        if entry.producer_id != true.producer_id or entry.first_offset > true.first_offset:
            return False
        began_before = self._compacted or entry.first_offset < self._unknown_below
        was_open = self._compacted or entry.last_stable_offset < self._unknown_below
        if self._compacted and entry.last_stable_offset > true.last_stable_offset:
            return False
        return (entry.first_offset == true.first_offset or began_before) and (
            entry.last_stable_offset == true.last_stable_offset or was_open
        )


class Seen(NamedTuple):
    """A marker in the log."""

    marker: EndMarker
    before: int
    """Where its producer's marker before it is; -1: nowhere."""

    def is_of(self, entry: Aborted) -> bool:
        """Whether it may have ended what an entry tells."""
        return (
            not self.marker.committed
            and self.marker.producer_id == entry.producer_id
            and self.before < entry.first_offset <= entry.last_offset
            and entry.last_stable_offset <= entry.last_offset + 1
        )
