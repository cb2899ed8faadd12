"""What each producer wrote last in one log: idempotence, and its snapshots in Kafka's format."""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812 -- reads as the class it is
from typing import Final, NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.limits import PRODUCER_BATCHES_KEPT, PRODUCERS_PER_LOG_MAX
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import BatchHeader

SEQUENCE_MASK: Final = 0x7FFF_FFFF
SNAPSHOT_HEAD: Final = Struct(">hIi")
ENTRY: Final = Struct(">qhiqiqiq")
assert ENTRY.size == 46
SNAPSHOT_VERSION: Final = 1

# Kafka's format keeps one batch of each producer. The four before it stand behind Kafka's entries,
# under the same checksum, where Kafka's readers do not look: a producer has up to five batches in
# flight and may repeat any of them after a restart.
OLDER_MAGIC: Final = b"older-1\n"
OLDER: Final = Struct(">qiiqiq")


class WrittenBatch(NamedTuple):
    """One batch of an idempotent producer, as kept for the answer to its repetition."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


_new_batch = tuple.__new__  # skips the tuple's own Python-level constructor


class Producer:
    """Invariant: batches are those of `epoch`, oldest first, without a gap in the sequence."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "next_sequence", "seen_ms", "txn_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=PRODUCER_BATCHES_KEPT)
        self.next_sequence = -1
        """-1: nothing of this epoch is known, any may come."""
        self.seen_ms = -1
        self.coordinator_epoch = -1
        self.txn_start = -1

    def note(self, batch: WrittenBatch) -> None:
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK


class Producers:
    """The producers of one log, those that wrote last at the end.

    Invariant: no more than `limit`, but for those with a transaction open. Who is forgotten may
    start anywhere: only what it repeats of before is not known for a repetition.
    """

    __slots__ = ("_limit", "_producers")

    def __init__(self, limit: int = PRODUCERS_PER_LOG_MAX) -> None:
        self._producers: dict[int, Producer] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterable[tuple[int, Producer]]:
        """Every producer with its id."""
        return self._producers.items()

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch this one repeats, if it does; Rejected where it may not be appended."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # its state expired, or it is new: it may start anywhere
        if header.producer_epoch == producer.epoch:
            if header.base_sequence == producer.next_sequence or producer.next_sequence < 0:
                return None
            return _repeated(producer, header)
        if header.producer_epoch < producer.epoch:
            raise Rejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id}: epoch {header.producer_epoch} "
                f"is older than {producer.epoch}",
            )
        if header.base_sequence != 0:
            raise Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: epoch {header.producer_epoch} "
                f"begins with sequence {header.base_sequence} instead of 0",
            )
        return None

    def note(self, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        """A batch of an idempotent producer is in the log."""
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = Producer(header.producer_epoch)
        self._producers[header.producer_id] = producer
        delta = header.last_offset_delta
        first = header.base_sequence
        if first >= 0:  # what the coordinators write carries none
            last = (first + delta) & SEQUENCE_MASK
            kept = (first, last, last_offset, delta, header.max_timestamp)
            producer.note(_new_batch(WrittenBatch, kept))
        producer.seen_ms = now_ms
        if len(self._producers) > self._limit:
            self._forget_one()

    def _forget_one(self) -> None:
        """Who wrote nothing for longest, and has no transaction open."""
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

    def encode(self) -> bytes:
        """A snapshot file."""
        entries = b"".join(map(_entry, self._producers.keys(), self._producers.values()))
        older = [
            OLDER.pack(producer_id, batch.first_sequence, *batch[1:])
            for producer_id, producer in self._producers.items()
            for batch in list(producer.batches)[:-1]
        ]
        tail = OLDER_MAGIC + b"".join(older) if older else b""
        body = len(self._producers).to_bytes(4, "big") + entries + tail
        return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


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


def _entry(producer_id: int, producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else WrittenBatch(-1, -1, -1, 0, -1)
    return ENTRY.pack(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.seen_ms,
        producer.coordinator_epoch,
        producer.txn_start,
    )


def decode_snapshot(content: bytes, *, place: str) -> Producers:
    """Read a snapshot file; CorruptError where it is not one."""
    try:
        return _read(content)
    except (ValueError, StructError) as error:
        raise CorruptError(file=place, position=0, reason=f"no snapshot: {error}") from error


def _read(content: bytes) -> Producers:
    version, checksum, count = SNAPSHOT_HEAD.unpack_from(content)
    if version != SNAPSHOT_VERSION or crc32c(memoryview(content)[6:]) != checksum:
        raise ValueError("wrong version or checksum")
    entries_end = SNAPSHOT_HEAD.size + count * ENTRY.size
    if not SNAPSHOT_HEAD.size <= entries_end <= len(content):
        raise ValueError(f"{count} entries do not fit in")
    state = Producers()
    _read_entries(state, ENTRY.iter_unpack(content[SNAPSHOT_HEAD.size : entries_end]))
    _read_older(state, content[entries_end:])
    return state


def _read_entries(state: Producers, entries: Iterable[tuple[int, ...]]) -> None:
    for producer_id, epoch, sequence, offset, delta, seen_ms, coordinator, txn_start in entries:
        producer = Producer(epoch)
        producer.seen_ms = seen_ms
        producer.coordinator_epoch = coordinator
        producer.txn_start = txn_start
        if sequence >= 0:
            first = (sequence - delta) & SEQUENCE_MASK
            producer.note(WrittenBatch(first, sequence, offset, delta, seen_ms))
        state._producers[producer_id] = producer  # noqa: SLF001 -- its own reader


def _read_older(state: Producers, tail: bytes) -> None:
    """The batches before each producer's last, oldest first; anybody else's tail is none."""
    if not tail.startswith(OLDER_MAGIC):
        return
    older: dict[int, list[WrittenBatch]] = {}
    for producer_id, *batch in OLDER.iter_unpack(tail[len(OLDER_MAGIC) :]):
        older.setdefault(producer_id, []).append(WrittenBatch(*batch))
    for producer_id, batches in older.items():
        producer = state.get(producer_id)
        if producer is not None and producer.batches:
            last = producer.batches.pop()
            producer.batches.extend(batches)
            producer.note(last)
