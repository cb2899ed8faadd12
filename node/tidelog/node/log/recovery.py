"""Bring a log back from its files: after a kill, after a power loss, or from a clean stop.

What lies below the recovery point was flushed and checked once; it is trusted. From the segment
that holds it on, each batch is read, checked, and taken into new indexes and the producer state.

Offsets may jump forward inside a segment. Compaction leaves such gaps, and a replica receives them
from its leader without having compacted anything itself; recovery knows neither the topic's
settings nor what other replicas did. Damage still differs from a gap:

- A gap lies between two batches that adjoin in the file. Lost or torn bytes make a batch whose
  checksum or header is wrong, and the walk stops there.
- Offsets and leader epochs lie outside the checksum, but they only rise. A batch whose offset or
  epoch became larger makes the next one look too small: either may be the wrong one, and where the
  page cache lived neither is cut. Only the last batch of a log has no next one.
- An offset that does not fit its segment's index is wrong.
- A segment begins where the last batch before it ended when it was made (`Log.roll`). So where a
  segment ends before the next one begins, its end or a whole segment is missing. Two exceptions:
  logs that were compacted here, which is noted durably before the first pass, and gaps that no
  index could span (`rolling.is_far_gap`), before which everything was forced to disk. Before each
  pass the recovery point is noted durably, too: above it a power loss makes such gaps.
- The log must reach the recovery point, however many gaps it has below it.
"""

from collections.abc import Iterator

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import NO_EPOCH
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.epochs import EpochCache, decode_epochs
from tidelog.node.log.marks import ClosedLog, LastStop
from tidelog.node.log.producers import Producers
from tidelog.node.log.rolling import is_far_gap
from tidelog.node.log.scan import Scan
from tidelog.node.log.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.node.log.segments import (
    BEGUN_SUFFIX,
    DELETED_SUFFIX,
    SegmentList,
    make_segment,
    remove_segment,
)
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.snapshots import newest_snapshot, remove_snapshots, write_snapshot
from tidelog.node.log.swap import finish_swaps
from tidelog.node.log.torn import is_damage
from tidelog.wire.log_files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Aborted,
    file_name,
    offsets_with_suffix,
)
from tidelog.wire.records import BatchHeader

LEFT_BEHIND = (BEGUN_SUFFIX, DELETED_SUFFIX)
"""Suffixes of files that were about to become something, or to go."""


class Cut(Struct, frozen=True):
    """A torn tail that was removed."""

    offset: int
    position: int
    bytes_cut: int
    reason: str


class Loaded(Struct):
    """A log's state, read from its files."""

    segments: SegmentList
    epochs: EpochCache
    producers: Producers
    start: int
    end: int
    cut: Cut | None = None
    bytes_scanned: int = 0
    missing_from: int | None = None
    """It begins behind this start of it: a power loss took segments that nobody had deleted."""


class Expected(Struct, frozen=True):
    """What is known of a log besides its files."""

    last_stop: LastStop
    recovery_point: int
    start: int
    now_ms: int
    high_watermark: int = 0
    """As it was known last: markers below it are on every in-sync replica."""
    compacted: bool = False
    """Whether it was ever compacted here: a segment may end before the next one begins."""


def recover(directory: Directory, expected: Expected, settings: LogSettings) -> Loaded:
    """Read a log that was not closed; CorruptError where what was flushed is damaged."""
    recovery = _Recovery(directory, expected, settings)
    try:
        return recovery.run()
    except BaseException:
        recovery.close()
        raise


class _Recovery:
    """One log's recovery; used once."""

    def __init__(self, directory: Directory, expected: Expected, settings: LogSettings) -> None:
        self._directory = directory
        self._expected = expected
        self._settings = settings
        self._segments: list[Segment] = []
        self._epochs = EpochCache()
        self._producers = Producers()
        self._cut: Cut | None = None
        self._bytes_scanned = 0

    def run(self) -> Loaded:
        bases = self._drop_deleted(segment_bases(self._directory))
        if not bases:
            # Killed between making the directory and the first file: nothing was written.
            made = make_segment(self._directory, self._expected.start)
            made.close()  # it is opened anew, as all others
            bases = [made.base]
        first = self._first_doubted(bases)
        trusted, doubted = bases[:first], bases[first:]
        if self._expected.last_stop is LastStop.POWER_LOSS:
            # It may have brought back what an earlier start removed: of another history, but whole.
            remove_snapshots(self._directory, above=doubted[0])
        self._segments = trusted_segments(self._directory, trusted, end=doubted[0])
        ahead = self._load_history(doubted[0])
        self._scan_all(doubted)
        return self._finish(ahead)

    def close(self) -> None:
        """Nobody will use what was found so far."""
        for segment in self._segments:
            segment.close()

    def _first_doubted(self, bases: list[int]) -> int:
        """Where to begin: with the segment that holds the recovery point.

        After a power loss, where it only ends there: sealed later than it was flushed, its indexes
        may be older than its batches, and what is old in an index looks whole.
        """
        point = self._expected.recovery_point
        if self._expected.last_stop is LastStop.POWER_LOSS:
            point -= 1
        return max(sum(base <= point for base in bases) - 1, 0)

    def _drop_deleted(self, bases: list[int]) -> list[int]:
        """Without what lies wholly below the log's start: a power loss may bring it back."""
        start = self._expected.start
        gone = sum(end <= start for end in bases[1:])
        self._remove(bases[:gone])
        return bases[gone:]

    def _load_history(self, offset: int) -> list[tuple[int, int]]:
        """Epochs and producers as they were at `offset`; the epochs the file has from there on."""
        self._epochs = load_epochs(self._directory, self._segments)
        ahead = [entry for entry in self._epochs.entries() if entry[1] >= offset]
        self._epochs.cut_from(offset)
        self._producers = load_producers(
            self._directory, self._segments, offset, self._expected.now_ms
        )
        return ahead

    def _scan_all(self, bases: list[int]) -> None:
        """Segment after segment, up to the end or to the first thing that is wrong."""
        for at, base in enumerate(bases):
            if self._segments and not self._may_follow(self._segments[-1], base):
                self._stop_at_gap(self._segments[-1].end, bases[at:])
                return
            segment = self._begin_segment(base)
            scan = self._scan(segment)
            if scan.reason is not None:
                self._stop_at(segment, scan, bases[at + 1 :])
                return
            if base != bases[-1]:
                segment.write_indexes(final=True)
                segment.unload()

    def _may_follow(self, before: Segment, base: int) -> bool:
        gap = base - before.end
        return gap == 0 or (
            gap > 0 and (self._may_be_compacted(base) or is_far_gap(before.size, gap))
        )

    def _may_be_compacted(self, base: int) -> bool:
        """Whether compaction may have taken what stood before that segment. A recovery point of 0
        is none: its checkpoint was damaged."""
        expected = self._expected
        is_flushed = base <= expected.recovery_point or not expected.recovery_point
        return expected.compacted and (is_flushed or self._cache_lived)

    def _begin_segment(self, base: int) -> Segment:
        if self._segments:
            # Retention may leave this segment the first one, and the file there may be bad:
            # then nothing else would know what its producers wrote before.
            write_snapshot(self._directory, base, self._producers)
        segment = Segment(self._directory, base, end=base, size=0)
        self._segments.append(segment)
        return segment

    def _scan(self, segment: Segment) -> Scan:
        """Check each batch of a segment and take it into the log's state."""
        scan = Scan(segment.file, position=0, end=segment.file.size, next_offset=segment.base)
        scan.offset_max = segment.base + RELATIVE_OFFSET_MAX
        scan.epoch = epoch = self._epochs.latest
        interval = self._settings.index_interval_bytes
        for position, size, header in scan:
            segment.note(position, size, header, header.base_offset, interval)
            if header.partition_leader_epoch > epoch:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                epoch = self._epochs.latest
            if header.producer_id >= 0:
                self._note_producer(segment, scan, size, header)
        segment.aborted.settle()
        self._bytes_scanned += scan.position
        return scan

    def _note_producer(self, segment: Segment, scan: Scan, size: int, header: BatchHeader) -> None:
        expected = self._expected
        if not header.is_control:
            self._producers.note(header, header.last_offset, expected.now_ms)
            return
        aborted = self._producers.take_control(
            header, scan.content(size), expected.now_ms, expected.high_watermark
        )
        if aborted is not None:
            segment.aborted.note(aborted)

    def _stop_at(self, segment: Segment, scan: Scan, later: list[int]) -> None:
        """Cut a torn tail; refuse where the bad spot is damage instead."""
        place, offset, reason = segment.place, scan.doubted_from, scan.reason or ""
        size = segment.file.size
        self._refuse_below_recovery_point(place, scan.position, offset, reason)
        if self._cache_lived and (
            any(self._directory.size(file_name(base, LOG_SUFFIX)) for base in later)
            or is_damage(segment.file, position=scan.position, end=size, offset=offset)
        ):
            raise CorruptError(
                file=place, position=scan.position, reason=f"{reason}, and good batches follow"
            )
        self._remove(later)
        segment.file.truncate(scan.position)
        self._cut = Cut(segment.end, scan.position, size - scan.position, reason)

    def _stop_at_gap(self, offset: int, later: list[int]) -> None:
        """A segment does not begin where the one before it ends."""
        place = f"{self._directory.path}/{file_name(later[0], LOG_SUFFIX)}"
        reason = f"the segment before it ends at offset {offset}"
        self._refuse_below_recovery_point(place, 0, offset, reason)
        if self._cache_lived:
            raise CorruptError(file=place, position=0, reason=reason)
        self._cut = Cut(offset, 0, self._remove(later), reason)
        # It was let go of as one of many that are sealed; now it is the one to be written to.
        self._segments[-1].resume(self._settings.index_interval_bytes)

    @property
    def _cache_lived(self) -> bool:
        """Only one write can be torn then; else any page above the recovery point may be lost."""
        return self._expected.last_stop in {LastStop.KILLED, LastStop.CLEAN}

    def _refuse_below_recovery_point(
        self, place: str, position: int, offset: int, reason: str
    ) -> None:
        point = self._expected.recovery_point
        # Where all that was flushed is deleted, nothing that is left was promised.
        if offset < point and self._expected.start < point:
            raise CorruptError(
                file=place,
                position=position,
                reason=f"{reason}; offset {offset} was flushed, as all below {point}",
            )

    def _remove(self, bases: list[int]) -> int:
        """Remove whole segments, the newest first; how many bytes that were."""
        removed = 0
        for base in reversed(bases):
            removed += self._directory.size(file_name(base, LOG_SUFFIX)) or 0
            remove_segment(self._directory, base)
        return removed

    def _finish(self, ahead: list[tuple[int, int]]) -> Loaded:
        end = self._segments[-1].end
        place = self._segments[-1].place
        self._refuse_below_recovery_point(
            place, self._segments[-1].size, end, "the log is too short"
        )
        # Who became leader and wrote nothing yet stands at the end, in that file only.
        for epoch, start in ahead:
            if start == end:
                self._epochs.assign(epoch, start)
        remove_snapshots(self._directory, above=end)
        self._epochs.reach_back(max(self._expected.start, self._segments[0].base))
        segments = SegmentList(self._directory, self._segments)
        start = max(self._expected.start, segments.first.base)
        if start > end:
            end = self._start_over(segments, start)
        if self._cut is not None or end != self._segments[-1].end:
            # Were the old bytes to come back after the next power loss, they would lie among newer
            # ones. A start may block for this.
            segments.active.file.sync()
            self._directory.sync()
        loaded = Loaded(segments, self._epochs, self._producers, start, end)
        if segments.first.base > self._expected.start:
            loaded.missing_from = self._expected.start
        loaded.cut, loaded.bytes_scanned = self._cut, self._bytes_scanned
        return loaded

    def _start_over(self, segments: SegmentList, start: int) -> int:
        """Records up to `start` were deleted, and the cut took all that was behind it."""
        if self._cache_lived:
            raise CorruptError(
                file=self._directory.path,
                position=0,
                reason=f"the log starts at {start} and ends at {segments.active.end}",
            )
        segments.restart(segments.prepare(start))
        self._epochs = EpochCache()
        self._producers = Producers()
        remove_snapshots(self._directory, below=start + 1)
        return start


def load_closed(directory: Directory, closed: ClosedLog, interval: int, now_ms: int) -> Loaded:
    """Read a log that was closed cleanly: no batch is checked, but that all files are there."""
    # What compaction had ready takes old segments' place now, and is smaller than they were.
    smaller = any(name.endswith(SWAP_SUFFIX) for name in directory.names())
    bases = segment_bases(directory)
    if not is_as_closed(directory, closed) or bases[-1:] != [closed.active_base]:
        raise _changed(directory)
    segments = trusted_segments(directory, bases[:-1], end=closed.active_base)
    active = Segment(directory, closed.active_base, end=closed.end, size=closed.active_bytes)
    active.resume(interval)
    segments.append(active)
    epochs = load_epochs(directory, segments)
    if closed.epoch != NO_EPOCH and epochs.latest > closed.epoch:
        epochs = epochs_of_batches(segments)  # no such epoch had begun when it was closed
        if epochs.latest > closed.epoch:
            reason = f"a batch of epoch {epochs.latest}, but it was closed in epoch {closed.epoch}"
            raise CorruptError(file=directory.path, position=0, reason=reason)
    producers = load_producers(directory, segments, closed.end, now_ms)
    kept = SegmentList(directory, segments)
    kept.drop_below(closed.start)
    if kept.size_bytes != closed.size_bytes and not smaller:
        raise _changed(directory)
    return Loaded(kept, epochs, producers, closed.start, closed.end)


def _changed(directory: Directory) -> CorruptError:
    reason = "its files changed since it was closed"
    return CorruptError(file=directory.path, position=0, reason=reason)


def is_as_closed(directory: Directory, closed: ClosedLog) -> bool:
    return directory.size(file_name(closed.active_base, LOG_SUFFIX)) == closed.active_bytes


def segment_bases(directory: Directory) -> list[int]:
    """The base offsets of the segments in a directory, after what was begun is ended or undone."""
    names = directory.names()
    if any(name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) for name in names):
        finish_swaps(directory)
        names = directory.names()
    for name in names:
        if name.endswith(LEFT_BEHIND):
            directory.unlink(name)
    bases = sorted(offsets_with_suffix(names, LOG_SUFFIX))
    _remove_orphans(directory, names, set(bases))
    return bases


def _remove_orphans(directory: Directory, names: list[str], bases: set[int]) -> None:
    """Indexes whose log is gone: a power loss may bring back a part of what was removed."""
    for suffix in SEGMENT_SUFFIXES:
        for base in offsets_with_suffix(names, suffix):
            if base not in bases:
                directory.unlink(file_name(base, suffix))


def trusted_segments(directory: Directory, bases: list[int], *, end: int) -> list[Segment]:
    """Segments nobody needs to check, each up to where the next begins."""
    return [
        Segment(directory, base, end=after, size=directory.size(file_name(base, LOG_SUFFIX)) or 0)
        for base, after in zip(bases, [*bases[1:], end], strict=False)
    ]


def load_epochs(directory: Directory, segments: list[Segment]) -> EpochCache:
    """The epochs from their file; where that is no good, from the headers of these segments."""
    content = directory.read_all(EPOCHS_NAME)
    if content is not None:
        try:
            return decode_epochs(content, place=f"{directory.path}/{EPOCHS_NAME}")
        except CorruptError:
            pass  # the batches know it too
    return epochs_of_batches(segments)


def epochs_of_batches(segments: list[Segment]) -> EpochCache:
    """The epochs as the headers of these segments have them."""
    epochs = EpochCache()
    for segment in segments:
        scan = Scan(segment.file, position=0, end=segment.size, next_offset=segment.base)
        for _, _, header in scan.headers_only():
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


def load_producers(
    directory: Directory, segments: list[Segment], end: int, now_ms: int
) -> Producers:
    """The producers as of offset `end`: the newest snapshot below, and what was written since."""
    offset, producers = newest_snapshot(directory, end) or (0, Producers())
    for segment in segments:
        if offset < segment.end and segment.base < end:
            for _ in follow(producers, segment, max(offset, segment.base), end, now_ms):
                pass  # the indexes have it
    return producers


def follow(
    producers: Producers, segment: Segment, start: int, end: int, now_ms: int
) -> Iterator[Aborted]:
    """Take a segment's batches from `start` up to `end` into the producers' state; what markers
    among them aborted."""
    for position, header in segment.headers_from(segment.locate(start)):
        if header.base_offset >= end:
            return
        if header.producer_id < 0:
            continue
        if not header.is_control:
            producers.note(header, header.last_offset, now_ms)
            continue
        batch = segment.batch_at(position, header)
        aborted = producers.take_control(header, batch, now_ms)
        if aborted is not None:
            yield aborted
