"""Transactions in one log: what a producer writes, and what its coordinator ends them with."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harness.logs.batches import NOW, NOW_MS
from tidelog.clients.consumer.reading import Fetched
from tidelog.kernel.ids import Offset, Partition
from tidelog.node.log.contracts import Appended
from tidelog.node.log.log import Log
from tidelog.node.log.markers import append_marker
from tidelog.node.log.producers import Producers
from tidelog.wire.log_files import Aborted, decode_aborted, file_name
from tidelog.wire.messages.k01_fetch import AbortedTransaction
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    EndMarker,
    Origin,
    Record,
    build_batch,
    build_marker,
    read_header,
)


class Writer:
    """One producer, as its client counts: no gap in the sequence, and an epoch."""

    def __init__(self, producer_id: int = 7, epoch: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def batch(self, count: int = 1, *, plain: bool = False, size: int = 10) -> memoryview:
        """The next one; in a transaction unless it is a plain one."""
        rows = [Record(at, NOW_MS + at, b"k", bytes(size)) for at in range(count)]
        flags = 0 if plain else TRANSACTIONAL_BIT
        origin = Origin(self.producer_id, self.epoch, self.sequence, flags)
        return memoryview(build_batch(rows, origin=origin))

    def write(
        self, log: Log, count: int = 1, *, plain: bool = False, size: int = 10, epoch: int = 0
    ) -> Appended:
        view = self.batch(count, plain=plain, size=size)
        done = log.append_as_leader(NOW, NOW_MS, view, read_header(view), epoch)
        self.sequence += count
        return done

    def end(
        self,
        log: Log,
        *,
        committed: bool,
        coordinator: int = 0,
        high_watermark: int = 0,
        epoch: int = 0,
    ) -> Appended:
        """Its coordinator's marker."""
        marker = EndMarker(self.producer_id, self.epoch, coordinator, committed)
        view = memoryview(build_marker(marker, NOW_MS))
        return append_marker(log, NOW, NOW_MS, view, epoch, high_watermark)

    def bump(self) -> None:
        self.epoch += 1
        self.sequence = 0


def index_files(log: Log) -> list[Aborted]:
    """What the `.txnindex` files say, segment after segment."""
    found: list[Aborted] = []
    for segment in log.segments:
        name = file_name(segment.base, ".txnindex")
        found += decode_aborted(log.directory.read_all(name) or b"", place=name)
    return found


def aborted(log: Log, offset: int, limit: int, max_bytes: int = 1 << 30) -> set[tuple[int, int]]:
    """Producer and first offset of what a reader at an offset is told, below a limit."""
    found = log.read(offset, max_bytes, limit, min_one=True)
    assert found is not None
    return {(row.producer_id, row.first_offset) for row in log.aborted(offset, found, limit)}


class Answer(NamedTuple):
    """One fetch of a reader of what is committed."""

    at: int
    behind: int
    aborted: set[tuple[int, int]]
    records: list[Record]


def read_committed(log: Log, at: int, limit: int, size: int = 1 << 20) -> Iterator[Answer]:
    """Fetch after fetch of so many bytes, up to a limit, as our own consumer understands them."""
    while (found := log.read(at, size, limit, min_one=True)) is not None:
        rows = log.aborted(at, found, limit)
        told = [
            AbortedTransaction(producer_id=row.producer_id, first_offset=row.first_offset)
            for row in rows
        ]
        view = found.file.read(found.position, found.size)
        fetched = Fetched(("t", Partition(0)), Offset(at), view, told)
        records = list(fetched.records())
        said = {(row.producer_id, row.first_offset) for row in rows}
        yield Answer(at, fetched.position, said, records)
        at = fetched.position


def known_of(producers: Producers) -> dict[int, tuple[object, ...]]:
    """Everything that is known of each producer but when it was seen."""
    return {
        producer_id: (
            one.epoch,
            one.next_sequence,
            [batch[:4] for batch in one.batches],
            one.coordinator_epoch,
            one.txn_start,
            one.marker,
        )
        for producer_id, one in producers.items()
    }


def stable_offsets(log: Log, high_watermarks: Iterable[int]) -> list[int]:
    """The last stable offset as the high watermark rises."""
    return [log.last_stable_offset(at) for at in high_watermarks]
