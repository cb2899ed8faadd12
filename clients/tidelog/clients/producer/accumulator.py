"""Records become batches, by partition: closed when full, or when they have waited long enough."""

from dataclasses import dataclass, field

from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.wire.codecs import Codec
from tidelog.wire.records import (
    HEADER_BYTES,
    Origin,
    Record,
    build_batch,
    iterate_records,
    read_header,
    stamp_origin,
)

RECORD_OVERHEAD_BYTES = 21
"""Lengths, attributes, deltas and header count of a record: what varints of usual size take."""

NO_SEQUENCE = -1


@dataclass(slots=True)
class Batch:
    """A closed batch on its way to a broker; the sender numbers it before it first goes out."""

    partition: TopicPartition
    records: list[Record]
    """With offsets from 0."""
    size_bytes: int
    """An estimate before compression; what it takes of the buffer until it is done."""
    give_up: Instant
    order: int = 0
    """Rises within a partition; halves of a batch share it."""
    sequence: int = NO_SEQUENCE
    failures: int = 0

    @property
    def count(self) -> int:
        return len(self.records)

    def encoded(self, codec: Codec, origin: Origin) -> bytearray:
        """As it is sent."""
        return build_batch(self.records, codec=codec, origin=origin)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two batches in place of one that is too large; their sequences follow each other."""
        middle = self.count // 2
        assert middle > 0, "a single record cannot be split"
        first = self._part(self.records[:middle], self.sequence, self.size_bytes // 2)
        sequence = self.sequence
        if sequence != NO_SEQUENCE:
            sequence = sequence_after(sequence, middle)
        rest = self.size_bytes - first.size_bytes
        return first, self._part(self.records[middle:], sequence, rest)

    def _part(self, records: list[Record], sequence: int, size_bytes: int) -> "Batch":
        renumbered = [one._replace(offset=number) for number, one in enumerate(records)]
        return Batch(self.partition, renumbered, size_bytes, self.give_up, self.order, sequence)


@dataclass(slots=True)
class EncodedBatch(Batch):
    """One that came encoded: its records are looked at only where it is too large."""

    content: bytearray = field(default_factory=bytearray)

    @property
    def count(self) -> int:
        return read_header(self.content).record_count

    def encoded(self, codec: Codec, origin: Origin) -> bytearray:  # noqa: ARG002 -- as it came
        stamp_origin(self.content, origin)
        return self.content

    def halves(self) -> tuple[Batch, Batch]:
        records = list(iterate_records(memoryview(self.content)))
        whole = Batch(self.partition, records, self.size_bytes, self.give_up, self.order)
        whole.sequence = self.sequence
        return whole.halves()


def sequence_after(sequence: int, count: int) -> int:
    """Sequences wrap from the largest int32 to 0.

    >>> sequence_after(2**31 - 1, 1)
    0
    """
    return (sequence + count) & 0x7FFF_FFFF


class Accumulator:
    """Invariant: `buffered_bytes` is the size of all batches that are open, closed, or not done."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._open: dict[TopicPartition, tuple[Batch, Instant]] = {}
        self._closed: list[Batch] = []
        self._batches = 0
        self.buffered_bytes = 0

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < self._settings.buffer_bytes

    def append(self, now: Instant, partition: TopicPartition, record: Record) -> bool:
        """Add one record; whether that closed a batch. Its offset is set here."""
        size = record_bytes(record)
        closes = False
        entry = self._open.get(partition)
        if entry is not None and entry[0].size_bytes + size > self._settings.batch_bytes:
            self._close(partition)
            entry = None
            closes = True
        if entry is None:
            give_up = Instant(now + self._settings.delivery_timeout_ns)
            self._batches += 1
            batch = Batch(partition, [], HEADER_BYTES, give_up, self._batches)
            entry = batch, Instant(now + self._settings.linger_ns)
            self._open[partition] = entry
            self.buffered_bytes += HEADER_BYTES
        batch = entry[0]
        batch.records.append(_numbered(record, len(batch.records)))
        batch.size_bytes += size
        self.buffered_bytes += size
        if batch.size_bytes >= self._settings.batch_bytes:
            self._close(partition)
            return True
        return closes

    def add(self, now: Instant, partition: TopicPartition, content: bytearray) -> None:
        """One whole batch, after all that was appended before it."""
        if partition in self._open:
            self._close(partition)
        self._batches += 1
        give_up = Instant(now + self._settings.delivery_timeout_ns)
        size = len(content)
        batch = EncodedBatch(partition, [], size, give_up, self._batches, content=content)
        self._closed.append(batch)
        self.buffered_bytes += size

    def close_due(self, now: Instant) -> None:
        """Close what has lingered long enough."""
        due = [one for one, (_, close_at) in self._open.items() if now >= close_at]
        for partition in due:
            self._close(partition)

    def close_all(self) -> None:
        """Close everything: a flush."""
        for partition in list(self._open):
            self._close(partition)

    def take_closed(self) -> list[Batch]:
        """Closed batches, in order within each partition, each given out once."""
        closed, self._closed = self._closed, []
        return closed

    def done(self, size_bytes: int) -> None:
        """So much of the buffer is free again."""
        self.buffered_bytes -= size_bytes
        assert self.buffered_bytes >= 0, self.buffered_bytes

    def deadline(self) -> Instant | None:
        """When the next open batch has lingered long enough."""
        return min((close_at for _, close_at in self._open.values()), default=None)

    def _close(self, partition: TopicPartition) -> None:
        batch, _ = self._open.pop(partition)
        self._closed.append(batch)


_new = tuple.__new__  # a third of the time of `_replace`, once for every record


def _numbered(record: Record, offset: int) -> Record:
    return _new(Record, (offset, *record[1:]))


def record_bytes(record: Record) -> int:
    """What a record takes in a batch, about."""
    _, _, key, value, headers = record
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 4
    return size
