"""The metadata log on disk: load it, append to it, put a snapshot beside it. (shell)

After loading, only one thread at a time uses a journal: the writer's. What `write` was given is on
stable storage when it returns; if it raises, nothing of it is in the log.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct, field

from tidelog.coordinator.controller.feed import Feed
from tidelog.coordinator.controller.front import Append, SaveSnapshot
from tidelog.coordinator.controller.settled import Settlements
from tidelog.coordinator.runtime.flushed import flushed_end, flushed_header
from tidelog.coordinator.runtime.settled import settled_by, settled_header
from tidelog.coordinator.runtime.snapshots import (
    SnapshotName,
    decode_batch,
    encode_batch,
    prune_snapshots,
    read_snapshot,
    snapshot_names,
    write_snapshot,
)
from tidelog.coordinator.runtime.tail import Tail
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import NO_OFFSET, ZERO_UUID, Incarnation, Offset, Partition
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import MIB
from tidelog.node.log.contracts import LogName, NoKeeper
from tidelog.node.log.log import Log
from tidelog.node.log.marks import MARK_NAME, ClosedLog, LastStop, Mark, decode_mark, encode_mark
from tidelog.node.log.recovery import Cut, Expected, recover
from tidelog.node.log.settings import LONG_MAX, LogSettings
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import WireError
from tidelog.wire.metadata_records import MetadataRecord
from tidelog.wire.records import BatchHeader, check_crc, iterate_batches, read_header

NAME: Final = LogName("__cluster_metadata", Partition(0), ZERO_UUID)
SETTINGS: Final = LogSettings(segment_bytes=16 * MIB, segment_ms=LONG_MAX)
_READ_BYTES: Final = 4 * MIB
_SETTLED_BEFORE: Final = 1_000
"""From so many records before a snapshot's end on it is known what calls were answered."""


class Life(Struct, frozen=True):
    """What a mark tells of the process that opened the directory."""

    boot_id: str
    disk_generation: int
    incarnation: Incarnation


class Loaded(Struct):
    """What the files say."""

    image: MetadataImage
    """For the controller."""
    feed: Feed
    """On an image of its own: the two part ways with the first decision."""
    settlements: Settlements
    followed: bool = False
    """A tail had it, and nothing but the end is read."""
    snapshot_offset: Offset = NO_OFFSET
    last_stop: LastStop = LastStop.NEVER_RAN
    cut: Cut | None = None
    damaged_snapshots: list[str] = field(default_factory=list)


class Journal:
    """One metadata log and its snapshots.

    Invariant: the log starts at or below the offset behind the oldest snapshot kept, so that a
    damaged snapshot costs time, not data.
    """

    def __init__(self, top: Directory, life: Life, settings: LogSettings = SETTINGS) -> None:
        self._top = top
        self._life = life
        self._settings = settings
        self._directory = top.directory(NAME.directory)
        self._log = Log(self._directory, NAME, settings, NoKeeper())

    @property
    def start(self) -> Offset:
        """The first offset still in the log."""
        return Offset(self._log.start)

    def tail(self) -> Tail:
        """For whoever only reads, and may have to write later."""
        return Tail(self._directory)

    def load(self, tail: Tail | None = None) -> Loaded:
        """Read everything; CannotStartError, with what to do, where what was promised is gone.

        What a tail has read need not be read again, as long as it is still there.
        """
        self._top.make()
        self._directory.make()
        mark = decode_mark(self._top.read_all(MARK_NAME))
        life = self._life
        last_stop = LastStop.NEVER_RAN
        if mark is not None:
            last_stop = mark.last_stop(boot_id=life.boot_id, disk_generation=life.disk_generation)
        loaded = Loaded(
            MetadataImage(), Feed(MetadataImage()), Settlements(Offset(0)), last_stop=last_stop
        )
        try:
            if tail is not None and tail.read_to_end():
                self._go_on(loaded, tail)
            else:
                self._load_snapshot(loaded)
                self._load_log(loaded)
            if mark is not None and last_stop is LastStop.CLEAN:
                self._check_end(mark)
        except (CorruptError, WireError) as error:
            raise CannotStartError(
                f"the metadata log is damaged: {error}; restore {self._directory.path} from a "
                "copy, or start with another --data"
            ) from error
        # Only now: a start that was refused must not make the next one believe.
        self._write_mark(clean=False)
        return loaded

    def _check_end(self, mark: Mark) -> None:
        closed = mark.logs.get(NAME.directory)
        if closed is not None and self._log.end < closed.end:
            raise CorruptError(
                file=self._directory.path,
                position=self._log.end,
                reason=f"the log ends at offset {self._log.end}; at the last stop, which was "
                f"clean, it ended at {closed.end}",
            )

    def write(self, batches: Sequence[Append], epoch: int) -> Offset:
        """Append the batches and force them to disk; the log's end then."""
        before = self._log.end
        try:
            for batch in batches:
                self._append(batch, epoch, flushed=before)
            self._flush()
        except OSError:
            self._forget(before)
            raise
        return Offset(self._log.end)

    def _append(self, batch: Append, epoch: int, *, flushed: int) -> None:
        assert batch.base == self._log.end, (batch.base, self._log.end)
        now, now_ms = Instant(time.monotonic_ns()), time.time_ns() // 1_000_000
        view = memoryview(
            encode_batch(
                batch.records,
                base=batch.base,
                epoch=epoch,
                now_ms=now_ms,
                headers=flushed_header(flushed) + settled_header(batch.settled),
            )
        )
        self._log.append_as_leader(now, now_ms, view, read_header(view), epoch)

    def _forget(self, end: int) -> None:
        """Nobody was told of what lies behind: the next life must not find it, for the disk may
        have lost what memory still shows."""
        with contextlib.suppress(OSError):
            self._log.truncate_to(end)

    def save(self, snapshot: SaveSnapshot) -> None:
        """Write a snapshot, then let go of what an older one already covers."""
        name = SnapshotName(snapshot.offset, snapshot.epoch)
        write_snapshot(self._directory, name, snapshot.records, time.time_ns() // 1_000_000)
        covered = prune_snapshots(self._directory)
        if covered is not None:
            self._log.advance_start(covered + 1)
            self._log.purge()

    def close(self) -> None:
        """A clean end: everything is flushed already."""
        self._write_mark(clean=True, closed=self._log.close_clean())

    def _flush(self) -> None:
        end = self._log.end
        for file in self._log.dirty_files(end):
            file.sync()
        self._log.flushed(end)

    def _write_mark(self, *, clean: bool, closed: ClosedLog | None = None) -> None:
        life = self._life
        mark = Mark(
            clean=clean,
            synced=False,
            boot_id=life.boot_id,
            disk_generation=life.disk_generation,
            incarnation=life.incarnation,
            logs={} if closed is None else {NAME.directory: closed},
        )
        # Not forced out: after a power loss any mark, or none, says that there was one.
        self._top.replace(MARK_NAME, encode_mark(mark), durable=False)

    def _load_snapshot(self, loaded: Loaded) -> None:
        """The newest one that is whole."""
        for name in snapshot_names(self._directory):
            try:
                records = read_snapshot(self._directory, name)
                for image in (loaded.image, loaded.feed.image):
                    _load(image, name.offset, records, place=name.file)
            except CorruptError as error:
                loaded.damaged_snapshots.append(str(error))
                loaded.image, loaded.feed = MetadataImage(), Feed(MetadataImage())
                continue
            loaded.snapshot_offset = name.offset
            return

    def _go_on(self, loaded: Loaded, tail: Tail) -> None:
        """From where a tail has come to: it checked each batch before that in this very process,
        so only the last segment is scanned."""
        loaded.image, loaded.feed, loaded.settlements = tail.image, tail.feed, tail.settlements
        loaded.followed = True
        newest = next(iter(snapshot_names(self._directory)), None)
        if newest is not None:
            loaded.snapshot_offset = min(newest.offset, loaded.image.offset)
        now_ms = time.time_ns() // 1_000_000
        expected = Expected(loaded.last_stop, tail.next, 0, now_ms)
        found = recover(self._directory, expected, self._settings)
        # What the last writer did not force out is for us to force out.
        self._log.adopt(found, loaded.snapshot_offset + 1, now_ms)
        loaded.cut = found.cut
        self._replay(loaded)

    def _load_log(self, loaded: Loaded) -> None:
        now_ms = time.time_ns() // 1_000_000
        # A snapshot is made of what was committed, so all it covers was flushed.
        point = loaded.snapshot_offset + 1
        flushed = point
        if loaded.last_stop in {LastStop.POWER_LOSS, LastStop.NEVER_RAN}:
            flushed = max(point, flushed_end(self._directory))
        found = recover(
            self._directory, Expected(loaded.last_stop, flushed, 0, now_ms), self._settings
        )
        self._log.adopt(found, point, now_ms)
        loaded.settlements.begins = Offset(max(self.start, point - _SETTLED_BEFORE))
        loaded.cut = found.cut
        if found.start > point:
            raise CorruptError(
                file=self._directory.path,
                position=0,
                reason=f"the log starts at offset {found.start}, and no whole snapshot reaches it",
            )
        self._replay(loaded)

    def _replay(self, loaded: Loaded) -> None:
        """What lies behind the images, up to the log's end."""
        place = self._directory.path
        for record in self._records(loaded, loaded.image.offset + 1, place):
            _replay(loaded.image, record, place=place)
            _replay(loaded.feed.image, record, place=place)

    def _records(self, loaded: Loaded, start: int, place: str) -> Iterator[MetadataRecord]:
        """From this offset to the log's end; what was settled is noted from further before."""
        settlements = loaded.settlements
        for header, batch in self._batches(start if loaded.followed else settlements.begins):
            if not check_crc(batch):
                raise CorruptError(file=place, position=header.base_offset, reason="wrong checksum")
            settled = settled_by(batch)
            if settled is not None:
                settlements.note(Offset(header.base_offset), settled)
            if header.next_offset > start:
                # The first batch may begin before: a read gives whole batches.
                records = decode_batch(batch, place=place)
                yield from islice(records, max(0, start - header.base_offset), None)

    def _batches(self, start: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        while start < self._log.end:
            part = self._log.read(start, _READ_BYTES, self._log.end, min_one=True)
            assert part is not None, start
            for header, batch in iterate_batches(part.file.read(part.position, part.size)):
                yield header, batch
                start = header.next_offset


def _load(
    image: MetadataImage, offset: Offset, records: Sequence[MetadataRecord], *, place: str
) -> None:
    try:
        image.load(offset, records)
    except (AssertionError, LookupError) as error:
        raise _senseless(place, offset, error) from error


def _replay(image: MetadataImage, record: MetadataRecord, *, place: str) -> None:
    try:
        image.replay(record)
    except (AssertionError, LookupError) as error:
        raise _senseless(place, image.offset, error) from error


def _senseless(place: str, offset: int, error: Exception) -> CorruptError:
    """Whole by its checksum, yet it contradicts what came before."""
    reason = f"the record at offset {offset} makes no sense: {error!r}"
    return CorruptError(file=place, position=offset, reason=reason)
