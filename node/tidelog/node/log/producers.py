"""What each producer wrote last in one log: idempotence, and the transactions that are open."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.kernel.limits import PRODUCER_BATCHES_KEPT, PRODUCERS_PER_LOG_MAX
from tidelog.node.log.unstable import Unstable
from tidelog.node.log.verifications import Verifications
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.log_files import Aborted
from tidelog.wire.records import TRANSACTIONAL_BIT, BatchHeader, EndMarker, read_marker

SEQUENCE_MASK: Final = 0x7FFF_FFFF


class WrittenBatch(NamedTuple):
    """One batch of an idempotent producer, as kept for the answer to its repetition."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class WrittenMarker(NamedTuple):
    """The marker that ended a producer's last transaction, for whoever asks for it once more."""

    offset: int
    committed: bool


_new_batch = tuple.__new__  # skips the tuple's own Python-level constructor


class Producer:
    """Invariant: batches are those of `epoch`, oldest first, without a gap in the sequence."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "marker",
        "next_sequence",
        "seen_ms",
        "txn_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=PRODUCER_BATCHES_KEPT)
        self.next_sequence = 0
        self.seen_ms = -1
        self.coordinator_epoch = -1
        """Of the last marker; -1 before the first."""
        self.txn_start = -1
        """The first offset of the transaction that is open; -1: none is."""
        self.marker: WrittenMarker | None = None
        """Of this epoch or an earlier one."""

    def begin_epoch(self, epoch: int) -> None:
        """Its sequence begins at 0 again; a transaction stays open until its marker comes."""
        self.epoch = epoch
        self.batches.clear()
        self.next_sequence = 0

    def note(self, batch: WrittenBatch) -> None:
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK


class Producers:
    """The producers of one log, those that wrote last at the end.

    Invariant: no more than `limit`, but for those with a transaction open. Who is forgotten may
    start anywhere: only what it repeats of before is not known for a repetition.
    """

    __slots__ = ("_limit", "_producers", "unstable", "verifications")

    def __init__(self, limit: int = PRODUCERS_PER_LOG_MAX) -> None:
        self._producers: dict[int, Producer] = {}
        self._limit = limit
        self.unstable = Unstable()
        self.verifications = Verifications()
        """In no snapshot: they are of one life, and of one history of the log."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterable[tuple[int, Producer]]:
        """Every producer with its id."""
        return self._producers.items()

    # -- records

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch this one repeats, if it does; Rejected where it may not be appended."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # its state expired, or it is new: it may start anywhere
        if header.producer_epoch == producer.epoch:
            if header.base_sequence != producer.next_sequence and header.base_sequence >= 0:
                return _repeated(producer, header)
        elif header.producer_epoch < producer.epoch:
            raise _older_epoch(header.producer_id, header.producer_epoch, producer)
        elif header.base_sequence > 0:  # what coordinators write has none
            raise Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: epoch {header.producer_epoch} "
                f"begins with sequence {header.base_sequence} instead of 0",
            )
        if producer.txn_start >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise Rejected(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id}: its transaction is open since offset "
                f"{producer.txn_start}, and this batch is not of it",
            )
        return None

    def note(self, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        """A batch of an idempotent producer is in the log."""
        known = self._producers.pop(header.producer_id, None)
        producer = Producer(header.producer_epoch) if known is None else known
        if producer.epoch != header.producer_epoch:
            producer.begin_epoch(header.producer_epoch)
        self._producers[header.producer_id] = producer
        delta = header.last_offset_delta
        first = header.base_sequence
        if first >= 0:  # what the coordinators write carries none
            last = (first + delta) & SEQUENCE_MASK
            kept = (first, last, last_offset, delta, header.max_timestamp)
            producer.note(_new_batch(WrittenBatch, kept))
        producer.seen_ms = now_ms
        if header.attributes & TRANSACTIONAL_BIT and producer.txn_start < 0:
            producer.txn_start = last_offset - delta
            self.unstable.begin(producer.txn_start)
            self.verifications.end(header.producer_id)
        if known is None:
            self._make_room()

    # -- markers

    def check_marker(self, marker: EndMarker) -> WrittenMarker | None:
        """The marker that this one repeats, if it does; Rejected where its producer is of the past.

        Of the same producer epoch and kind as the last thing the producer has here, it can only be
        that one: a transaction of it that began since would have records here. In either case what
        the coordinator has said of the producer's transaction is of the past now.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is not None and marker.producer_epoch < producer.epoch:
            raise _older_epoch(marker.producer_id, marker.producer_epoch, producer)
        self.verifications.end(marker.producer_id)
        if producer is None:
            return None
        there = producer.marker
        if there is None or marker.producer_epoch != producer.epoch or producer.txn_start >= 0:
            return None
        is_last = not producer.batches or producer.batches[-1].last_offset < there.offset
        return there if is_last and there.committed == marker.committed else None

    def check_coordinator(self, marker: EndMarker) -> None:
        """Rejected where the last marker of its producer is of a later coordinator.

        That is for an operator's markers alone. Their epochs are what somebody typed: held against
        our coordinators, whose epochs brokers have heard of, one too high would be for ever.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise Rejected(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {marker.producer_id}: a coordinator of epoch "
                f"{producer.coordinator_epoch} came before that of {marker.coordinator_epoch}",
            )

    def end(
        self, marker: EndMarker, offset: int, now_ms: int, high_watermark: int = 0
    ) -> Aborted | None:
        """A marker is in the log. What the index must have, where it aborts something."""
        known = self._producers.pop(marker.producer_id, None)
        producer = Producer(marker.producer_epoch) if known is None else known
        if producer.epoch != marker.producer_epoch:
            producer.begin_epoch(marker.producer_epoch)
        self._producers[marker.producer_id] = producer
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.seen_ms = now_ms
        producer.marker = WrittenMarker(offset, marker.committed)
        first, producer.txn_start = producer.txn_start, -1
        if known is None:
            self._make_room()
        if first < 0:
            return None
        self.unstable.settle(high_watermark)
        stable = self.unstable.end(first, offset)
        return None if marker.committed else Aborted(first, marker.producer_id, offset, stable)

    def take_control(
        self, header: BatchHeader, batch: memoryview, now_ms: int, high_watermark: int = 0
    ) -> Aborted | None:
        """A control batch as it stands in the log; as `end`."""
        marker = read_marker(header, batch)
        if header.producer_id >= 0 and marker is None:
            self._note_emptied(header, now_ms)
        elif marker is not None:
            return self.end(marker, header.last_offset, now_ms, high_watermark)
        return None

    def _note_emptied(self, header: BatchHeader, now_ms: int) -> None:
        """A marker that compaction has emptied: it still tells its producer's epoch."""
        known = self._producers.get(header.producer_id)
        if known is None:
            known = self._producers[header.producer_id] = Producer(header.producer_epoch)
            self._make_room()
        elif known.epoch < header.producer_epoch:
            known.begin_epoch(header.producer_epoch)
        known.seen_ms = now_ms

    # -- who stays

    def _make_room(self) -> None:
        """Of too many, forget who wrote nothing for longest and has no transaction open."""
        if len(self._producers) > self._limit:
            idle = (one for one, producer in self._producers.items() if producer.txn_start < 0)
            gone = next(idle, None)
            if gone is not None:
                del self._producers[gone]

    def expire(self, seen_before_ms: int) -> int:
        """Forget who was not seen since then and has no transaction open; how many that were."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.seen_ms < seen_before_ms and producer.txn_start < 0
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def restore(self, producer_id: int, producer: Producer) -> None:
        """One that wrote later than those before, as a snapshot has it."""
        self._producers[producer_id] = producer


def _older_epoch(producer_id: int, epoch: int, producer: Producer) -> Rejected:
    return Rejected(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id}: epoch {epoch} is older than {producer.epoch}",
    )


def _repeated(producer: Producer, header: BatchHeader) -> WrittenBatch:
    first = header.base_sequence
    last = (first + header.last_offset_delta) & SEQUENCE_MASK
    for batch in producer.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    raise Rejected(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}: sequence {first} instead of {producer.next_sequence}",
    )
