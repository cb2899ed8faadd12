"""One broker's log with a drawn life, and the two ways to read it: by fetches, and from
its files, of which it gives copies on a real disk.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, append_marker, compact
from harness.logs.verified import write_files
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, Partition
from tidelog.node.log.settings import LogSettings
from tidelog.spark.arrow import ALL
from tidelog.spark.segments import SegmentReader, Span
from tidelog.wire.codecs import Codec
from tidelog.wire.messages.k01_fetch import AbortedTransaction
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    place_batch,
)

PARTITION = ("t", Partition(0))
SETTINGS = LogSettings(segment_bytes=1_500, index_interval_bytes=200, file_delete_delay_ms=0)
COMPACTED = msgspec.structs.replace(SETTINGS, compact=True, delete=False, delete_retention_ms=0)
BROKER = 0
PRODUCERS = (7, 8, 9)
KEYS = [b"k%d" % number for number in range(6)]

ROWS_MAX = 6
VALUE_SIZES = (None, 0, 5, 60, 400)


class LogInFiles:
    """It is written, rolled, cut at its beginning, compacted; its broker is stopped and started."""

    def __init__(self, rng: Random, *, compacted: bool) -> None:
        self.rng = rng
        self.settings = COMPACTED if compacted else SETTINGS
        self.disk = MemoryDisk()
        self.high_watermark = 0
        self.open_since: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        self.logs = open_logs(self.disk.directory(), settings=self.settings)
        self.log = self.logs.create("t", 0, TOPIC_ID, self.settings)

    def live(self) -> None:
        """A few steps more, of which most are batches; what was never written has no files."""
        self.write()
        more: list[Callable[[], None]] = [self.roll, self.delete_records, self.note, self.restart]
        more += [self.compact] if self.settings.compact else []
        for _ in range(self.rng.randint(1, 12)):
            self.rng.choice([self.write] * 8 + [self.end] * 4 + more)()
        self.commit()

    # -- steps

    def write(self) -> None:
        producer = self.rng.choice((-1, *PRODUCERS))
        origin = Origin() if producer < 0 else Origin(producer, 0, 0, TRANSACTIONAL_BIT)
        codec = self.rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
        header = append(self.log, self._rows(), origin=origin, codec=codec)
        if producer >= 0:
            self.open_since.setdefault(producer, header.base_offset)

    def _rows(self) -> list[tuple[bytes, bytes | None]]:
        sizes = [self.rng.choice(VALUE_SIZES) for _ in range(self.rng.randint(1, ROWS_MAX))]
        values = [None if size is None else b"v" * size for size in sizes]
        return [(self.rng.choice(KEYS), value) for value in values]

    def end(self) -> None:
        """A transaction, if one is open."""
        if not self.open_since:
            return
        producer = self.rng.choice(sorted(self.open_since))
        del self.open_since[producer]
        append_marker(self.log, producer, commit=self.rng.random() < 0.5)

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def delete_records(self) -> None:
        """Up to somewhere in the middle of a batch, perhaps."""
        upto = self.rng.randint(self.log.start, max(self._stable, self.log.start))
        self.log.advance_start(upto)
        self.note()
        self.log.purge()

    def compact(self) -> None:
        """All but the active segment."""
        self.log.roll(NOW_MS)
        flush(self.log)
        compact(self.logs, self.log, high_watermark=self._stable)
        self.log.purge(NOW_MS)

    def note(self) -> None:
        """A broker writes down how far its logs count, now and then."""
        self.commit()
        made = self.logs.checkpoint({PARTITION: self.high_watermark})
        made.write()
        self.logs.checkpointed(made)

    def stop(self) -> None:
        self.logs.close_clean({PARTITION: self.high_watermark})

    def restart(self) -> None:
        """After a stop in order, or a kill; neither loses anything."""
        if self.rng.random() < 0.5:
            self.commit()
            self.stop()
        self.disk.kill()
        self._open()

    def commit(self) -> None:
        """The high watermark rises; what is above it may never be anybody's."""
        low = max(self.high_watermark, self.log.start)
        anywhere = self.rng.randint(low, self.log.end)
        chosen = self.rng.choice((low, self.log.end, anywhere, anywhere))
        self.high_watermark = self._at_a_batch(chosen)

    def _at_a_batch(self, offset: int) -> int:
        """The end of the batch that holds the offset: a high watermark lies between batches."""
        found = self.log.read(offset, 1, self.log.end, min_one=True) if offset else None
        if found is None:
            return offset
        position = found.position + found.size
        segment = next(one for one in self.log.segments if one.name == found.file.name)
        return segment.header_at(position).base_offset if position < segment.size else segment.end

    @property
    def _stable(self) -> int:
        return min([self.high_watermark, *self.open_since.values()])

    def files(self, folder: Path) -> None:
        """What there is while the broker is in the middle of writing a batch."""
        write_files(self.disk.root, folder)
        view = build_batch([Record(at, NOW_MS, b"k", b"not yet") for at in range(3)])
        place_batch(view, 0, base_offset=self.log.end, leader_epoch=0)
        part = view[: self.rng.randint(0, len(view))]
        for active in sorted(folder.glob("*/t-0/*.log"))[-1:]:
            with active.open("ab") as file:
                file.write(part)

    # -- reading

    def limit(self, isolation: Isolation) -> int:
        """How far a leader lets its readers come."""
        if isolation is Isolation.READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    def span(self, isolation: Isolation) -> Span:
        """Any part of what can be read."""
        low, high = self.log.start, max(self.limit(isolation), self.log.start)
        first = self.rng.choice((low, self.rng.randint(low, high)))
        end = self.rng.choice((high, self.rng.randint(first, high)))
        return Span(PARTITION, first, end, isolation, leader=BROKER, topic_id=TOPIC_ID)

    def fetched(self, span: Span, size: int = 700) -> list[Record]:
        """What a consumer makes of a broker's answers, one after the other."""
        found: list[Record] = []
        log, at, limit = self.log, span.first, self.limit(span.isolation)
        while (piece := log.read(at, size, limit, min_one=True)) is not None:
            told = []
            if span.isolation is Isolation.READ_COMMITTED:
                told = [
                    AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in log.aborted(at, piece, limit)
                ]
            view = piece.file.read(piece.position, piece.size)
            answer = Fetched(PARTITION, Offset(at), view, told)
            found += answer.records()
            at = answer.position
        return [one for one in found if one.offset < span.end]


def in_files(folder: Path, span: Span, rows_per_batch: int = 3) -> list[Record]:
    """The same by whoever sees the files alone."""
    reader = SegmentReader([folder], span, ALL, rows_per_batch=rows_per_batch)
    return [_record(row) for batch in reader.batches() for row in batch.to_pylist()]


def _record(row: dict[str, Any]) -> Record:
    stamp = round(row["timestamp"].timestamp() * 1000)
    return Record(row["offset"], stamp, row["key"], row["value"], ())
