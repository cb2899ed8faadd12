"""From fetched bytes to the records a reader should see.

A batch may begin before the position: what is earlier is skipped. Control batches are never
records. With read_committed the broker lists the transactions that were aborted in the range: a
producer's batches from such an offset on are skipped, up to its abort marker.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.kernel.ids import NO_EPOCH, Epoch, Offset, TopicPartition
from tidelog.wire.errors import WireError
from tidelog.wire.messages.k01_fetch import AbortedTransaction
from tidelog.wire.records import BatchHeader, Record, check_crc, iterate_batches, iterate_records

ABORT_MARKER = 0
"""The type in a control record's key: version int16, type int16."""


@dataclass(slots=True)
class Fetched:
    """What one answer holds of one partition. `position` and `epoch` move as `records` is
    consumed: the next offset, and the leader epoch of what was read last."""

    partition: TopicPartition
    position: Offset
    view: memoryview
    aborted: Sequence[AbortedTransaction] = ()
    high_watermark: Offset = field(default=Offset(-1))
    epoch: Epoch = NO_EPOCH

    def records(self) -> Iterator[Record]:
        """Records from the position on; when it ends, the position is behind the last batch."""
        yield from self._records()

    def first_not_older(self, timestamp: int) -> Record | None:
        """The first record from the position on that is at least as young.

        Batches that are older as a whole are not unpacked.
        """
        return next((one for one in self._records(timestamp) if one.timestamp >= timestamp), None)

    def _records(self, not_before: int | None = None) -> Iterator[Record]:
        """All of them, or those of batches that have a record at or after a time."""
        skipping = Hidden(self.aborted)
        for header, batch in iterate_batches(self.view):
            if header.last_offset < self.position:
                skipping.pass_by(header, batch)
                continue
            if not check_crc(batch):
                raise WireError(f"{self.partition}: CRC of the batch at {header.base_offset}")
            self.epoch = Epoch(header.partition_leader_epoch)
            is_young = not_before is None or header.max_timestamp >= not_before
            if skipping.shows(header, batch) and is_young:
                yield from self._records_of(batch)
            self.position = Offset(header.next_offset)

    def _records_of(self, batch: memoryview) -> Iterator[Record]:
        for record in iterate_records(batch):
            if record.offset >= self.position:
                self.position = Offset(record.offset + 1)
                yield record


class Hidden:
    """Which producers' batches are hidden at this place of the log, given what the broker said of
    the range that is read: the transactions in it that were aborted.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._hidden: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a reader sees the records of this batch, the next in the log."""
        self.pass_by(header, batch)
        if header.is_control:
            return False
        return not (header.is_transactional and header.producer_id in self._hidden)

    def pass_by(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch that nobody asked for; it may begin or end a transaction."""
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            self._hidden.add(self._coming.popleft().producer_id)
        if header.is_control and header.producer_id in self._hidden and is_abort_marker(batch):
            self._hidden.discard(header.producer_id)


def is_abort_marker(batch: memoryview) -> bool:
    """Of a control batch: whether it ends a transaction of which nothing counts."""
    marker = next(iterate_records(batch), None)
    key = b"" if marker is None or marker.key is None else marker.key
    return int.from_bytes(key[2:4], "big") == ABORT_MARKER
