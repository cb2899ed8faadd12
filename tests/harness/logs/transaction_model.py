"""What a log with transactions comes to, counted from its first batch each time."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.node.log.producers import WrittenMarker
from tidelog.wire.log_files import Aborted
from tidelog.wire.records import EndMarker


class Written(NamedTuple):
    """One batch of the log, or one marker."""

    first: int
    records: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: EndMarker | None = None

    @property
    def last(self) -> int:
        return self.first + self.records - 1


@dataclass
class Transaction:
    """From its first record to its marker, if that came."""

    producer: int
    first: int
    marker: int | None = None
    committed: bool = False

    def holds_back(self, high_watermark: int) -> bool:
        return self.marker is None or self.marker >= high_watermark


@dataclass
class Model:
    """Everything in the log, in order."""

    written: list[Written] = field(default_factory=list)
    empty_up_to: int = 0
    """It went on there after everything was lost."""

    @property
    def end(self) -> int:
        return max(self.written[-1].last + 1 if self.written else 0, self.empty_up_to)

    def cut(self, end: int) -> None:
        self.written = [one for one in self.written if one.last < end]
        if self.end != end:
            self.empty_up_to = end

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        open_ones: dict[int, Transaction] = {}
        for one in self.written:
            if one.marker is not None:
                ended = open_ones.pop(one.producer, None)
                if ended is not None:
                    ended.marker, ended.committed = one.first, one.marker.committed
            elif one.transactional and one.producer not in open_ones:
                open_ones[one.producer] = Transaction(one.producer, one.first)
                found.append(open_ones[one.producer])
        return found

    def last_stable_offset(self, high_watermark: int, start: int) -> int:
        undecided = [one.first for one in self.transactions() if one.holds_back(high_watermark)]
        return min(max(min(undecided, default=high_watermark), start), high_watermark)

    def index(self) -> list[Aborted]:
        """What each abort marker found decided when it came."""
        found: list[Aborted] = []
        every = self.transactions()
        for one in sorted(every, key=lambda row: row.marker or 0):
            if one.marker is None or one.committed:
                continue
            others = [
                other.first
                for other in every
                if other.first < one.marker and (other.marker is None or other.marker > one.marker)
            ]
            stable = min(others, default=one.marker + 1)
            found.append(Aborted(one.first, one.producer, one.marker, stable))
        return found

    def aborted(self, offset: int, limit: int) -> set[tuple[int, int]]:
        return {
            (row.producer_id, row.first_offset)
            for row in self.index()
            if row.last_offset >= offset and row.first_offset < limit
        }

    def visible(self, limit: int, start: int) -> list[int]:
        """Offsets that a reader of what is committed sees, in batches below a limit."""
        hidden = [one for one in self.transactions() if one.marker and not one.committed]

        def is_hidden(row: Written) -> bool:
            return row.transactional and any(
                one.producer == row.producer and one.first <= row.first < (one.marker or 0)
                for one in hidden
            )

        return [
            offset
            for row in self.written
            if row.marker is None and row.last < limit and not is_hidden(row)
            for offset in range(row.first, row.last + 1)
            if offset >= start
        ]

    def producers(self) -> dict[int, tuple[object, ...]]:
        """As `known_of` tells them."""
        known: dict[int, _Known] = {}
        for row in self.written:
            if row.producer >= 0:
                known.setdefault(row.producer, _Known(row.epoch)).take(row)
        return {producer: one.told() for producer, one in known.items()}


class _Known:
    """One producer, counted from its first batch."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._next = 0
        self._batches: list[tuple[int, int, int, int]] = []
        self._coordinator = -1
        self._start = -1
        self._marker: WrittenMarker | None = None

    def take(self, row: Written) -> None:
        if row.epoch != self._epoch:
            self._epoch, self._next, self._batches = row.epoch, 0, []
        if row.marker is not None:
            self._coordinator, self._start = row.marker.coordinator_epoch, -1
            self._marker = WrittenMarker(row.first, row.marker.committed)
            return
        if row.sequence >= 0:
            last = row.sequence + row.records - 1
            self._batches = [*self._batches, (row.sequence, last, row.last, row.records - 1)][-5:]
            self._next = last + 1
        if row.transactional and self._start < 0:
            self._start = row.first

    def told(self) -> tuple[object, ...]:
        return (
            self._epoch,
            self._next,
            self._batches,
            self._coordinator,
            self._start,
            self._marker,
        )
