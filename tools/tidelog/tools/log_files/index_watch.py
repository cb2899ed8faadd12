"""Holds the two indexes of a segment against its batches, as these come by."""

from collections.abc import Callable

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.index import TIME_ENTRY, OffsetIndex, TimeIndex
from tidelog.tools.log_files.findings import Report
from tidelog.wire.log_files import (
    OFFSET_ENTRY_BYTES,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
)
from tidelog.wire.records import BatchHeader

INTERVAL_USUAL = 4096
"""index.interval.bytes where nobody sets it."""


class IndexWatch:
    """Invariant: every entry before `_next_offset` and `_next_time` was held against a batch."""

    def __init__(
        self, directory: Directory, base: int, log_bytes: int, interval: int, report: Report
    ) -> None:
        self._directory = directory
        self._base = base
        self._report = report
        self._offsets = OffsetIndex(directory, file_name(base, OFFSET_INDEX_SUFFIX))
        self._times = TimeIndex(directory, file_name(base, TIME_INDEX_SUFFIX))
        self._offsets_good = self._load(lambda: self._offsets.load(log_bytes))
        self._times_good = self._load(self._times.load)
        self._next_offset = 0
        self._next_time = 0
        self._largest = -1
        self._spacing = _Spacing(interval)

    def _load(self, load: Callable[[], None]) -> bool:
        try:
            load()
        except CorruptError as error:
            name = error.file.rpartition("/")[2]
            # The engine sees it as well, at the first use.
            reason = f"{error.reason}: it is going to be made anew"
            self._report.remark(self._place(name), reason, error.position)
            return False
        return True

    def _place(self, name: str) -> str:
        return f"{self._directory.path}/{name}"

    # -- batches

    def note(self, position: int, size: int, header: BatchHeader) -> None:
        """The next batch of the segment."""
        if self._offsets_good:
            self._note_offset(position, size, header.last_offset - self._base)
        if self._times_good:
            self._note_time(header.last_offset - self._base, header.max_timestamp)
        self._largest = max(self._largest, header.max_timestamp)

    def _note_offset(self, position: int, size: int, last: int) -> None:
        at = self._next_offset
        positions, offsets = self._offsets.positions, self._offsets.offsets
        if at < len(positions) and positions[at] < position:
            self._wrong_offset("points where no batch begins")
            return
        has_entry = at < len(positions) and positions[at] == position
        if has_entry and position == 0:
            self._wrong_offset("the first batch never has an entry")
            return
        if has_entry and offsets[at] != last:
            self._wrong_offset(f"says offset {self._base + offsets[at]} of {self._base + last}")
            return
        self._next_offset += has_entry
        self._spacing.note(size, has_entry=has_entry)

    def _note_time(self, last: int, timestamp: int) -> None:
        at = self._next_time
        if at >= len(self._times) or self._times.offsets[at] > last:
            return
        if self._times.offsets[at] < last:
            self._wrong_time("names an offset at which no batch ends")
        elif self._times.timestamps[at] != timestamp:
            self._wrong_time(f"says {self._times.timestamps[at]} of a batch of {timestamp}")
        elif timestamp <= self._largest:
            self._wrong_time(f"{timestamp} is not the largest timestamp so far")
        else:
            self._next_time += 1

    def _wrong_offset(self, reason: str) -> None:
        place = self._next_offset * OFFSET_ENTRY_BYTES
        self._report.violation(self._place(self._offsets.file.name), reason, place)
        self._offsets_good = False

    def _wrong_time(self, reason: str) -> None:
        place = self._next_time * TIME_ENTRY.size
        self._report.violation(self._place(self._times.file.name), reason, place)
        self._times_good = False

    # -- the end

    def finish(self) -> None:
        """All batches of a segment that is sealed, or was closed, came by."""
        if self._offsets_good and self._next_offset < len(self._offsets):
            self._wrong_offset("points where no batch begins")
        if self._times_good and self._next_time < len(self._times):
            self._wrong_time("names an offset at which no batch ends")
        if self._times_good and not len(self._times) and self._largest >= 0:
            place = self._place(self._times.file.name)
            self._report.remark(place, "is empty: it is going to be made anew")
        elif self._times_good and self._times.last()[0] != self._largest:
            self._wrong_time(f"the last entry is not the largest timestamp, {self._largest}")
        if self._offsets_good and not self._spacing.is_even:
            self._report.remark(
                self._place(self._offsets.file.name),
                f"has no entry for {self._spacing.widest} bytes of batches: entries are missing, "
                "or index.interval.bytes was changed",
                len(self._offsets) * OFFSET_ENTRY_BYTES,
            )


class _Spacing:
    """How far apart the entries are: a batch gets one where more than the interval lies behind."""

    def __init__(self, interval: int) -> None:
        # An index that had to be made anew has entries of the usual spacing.
        self._limit = max(interval, INTERVAL_USUAL)
        self._since = 0
        self.widest = 0

    def note(self, size: int, *, has_entry: bool) -> None:
        if has_entry:
            self._since = 0
        else:
            self.widest = max(self.widest, self._since)
        self._since += size

    @property
    def is_even(self) -> bool:
        return self.widest <= self._limit
