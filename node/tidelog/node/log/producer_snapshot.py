"""The snapshot of a log's producers, in Kafka's format."""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812 -- reads as the class it is
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.producers import (
    SEQUENCE_MASK,
    Producer,
    Producers,
    WrittenBatch,
    WrittenMarker,
)
from tidelog.wire.crc import crc32c

SNAPSHOT_HEAD: Final = Struct(">hIi")
ENTRY: Final = Struct(">qhiqiqiq")
assert ENTRY.size == 46
SNAPSHOT_VERSION: Final = 1

# What Kafka's format has no place for stands behind its entries, under the same checksum, where
# its readers do not look. First, which marker each producer's last transaction ended with, for a
# coordinator that asks for it once more; and the transactions that ended, but not yet below the
# high watermark, as far as the log knew that.
ENDED_MAGIC: Final = b"ended-1\n"
ENDED_COUNTS: Final = Struct(">ii")
MARKER: Final = Struct(">qq?")
ENDED: Final = Struct(">qq")
# Then the four batches before each producer's last one: it has up to five batches in flight, and
# may repeat any of them after a restart.
OLDER_MAGIC: Final = b"older-1\n"
OLDER: Final = Struct(">qiiqiq")


def encode_snapshot(producers: Producers) -> bytes:
    entries = b"".join(_entry(*row) for row in producers.items())
    body = len(producers).to_bytes(4, "big") + entries + _ended(producers) + _older(producers)
    return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


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


def _ended(producers: Producers) -> bytes:
    markers = [
        MARKER.pack(producer_id, *producer.marker)
        for producer_id, producer in producers.items()
        if producer.marker is not None
    ]
    ended = [ENDED.pack(*row) for row in producers.unstable.ended]
    if not markers and not ended:
        return b""
    counts = ENDED_COUNTS.pack(len(markers), len(ended))
    return ENDED_MAGIC + counts + b"".join(markers) + b"".join(ended)


def _older(producers: Producers) -> bytes:
    older = [
        OLDER.pack(producer_id, batch.first_sequence, *batch[1:])
        for producer_id, producer in producers.items()
        for batch in list(producer.batches)[:-1]
    ]
    return OLDER_MAGIC + b"".join(older) if older else b""


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
    tail = content[entries_end:]
    if tail.startswith(ENDED_MAGIC):
        tail = tail[_read_ended(state, tail) :]
    if tail.startswith(OLDER_MAGIC):  # anybody else's tail is none
        _read_older(state, tail[len(OLDER_MAGIC) :])
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
        state.restore(producer_id, producer)
    begun = sorted(producer.txn_start for _, producer in state.items())
    for first in begun:
        if first >= 0:
            state.unstable.begin(first)


def _read_ended(state: Producers, tail: bytes) -> int:
    """Where it ends."""
    at = len(ENDED_MAGIC)
    markers, ended = ENDED_COUNTS.unpack_from(tail, at)
    at += ENDED_COUNTS.size
    if markers < 0 or ended < 0:
        raise ValueError(f"{markers} markers, {ended} ended transactions")
    for _ in range(markers):
        producer_id, offset, committed = MARKER.unpack_from(tail, at)
        at += MARKER.size
        producer = state.get(producer_id)
        if producer is not None:
            producer.marker = WrittenMarker(offset, committed)
    for _ in range(ended):
        marker, first = ENDED.unpack_from(tail, at)
        at += ENDED.size
        state.unstable.note_ended(first, marker)
    return at


def _read_older(state: Producers, rows: bytes) -> None:
    """The batches before each producer's last, oldest first."""
    older: dict[int, list[WrittenBatch]] = {}
    for producer_id, *batch in OLDER.iter_unpack(rows):
        older.setdefault(producer_id, []).append(WrittenBatch(*batch))
    for producer_id, batches in older.items():
        producer = state.get(producer_id)
        if producer is not None and producer.batches:
            last = producer.batches.pop()
            producer.batches.extend(batches)
            producer.note(last)
