"""Checks one partition's directory: every batch, and every file that is made from the batches."""

from enum import Enum
from functools import partial

from msgspec import Struct

from tidelog.kernel.files import Directory, File
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.marks import ClosedLog
from tidelog.node.log.rolling import is_far_gap
from tidelog.node.log.torn import is_damage
from tidelog.tools.log_files.epoch_check import Span, check_epochs
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.index_watch import INTERVAL_USUAL, IndexWatch
from tidelog.tools.log_files.kinds import FileKind, base_of, belongs_in_partition, kind_of
from tidelog.tools.log_files.snapshot_check import SnapshotCheck
from tidelog.tools.log_files.txn_index import TxnIndexCheck
from tidelog.tools.log_files.walk import Seen, Walk
from tidelog.wire.checkpoints import (
    PARTITION_METADATA,
    decode_partition_metadata,
    encode_partition_metadata,
)
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_with_suffix,
)
from tidelog.wire.records import BatchHeader, read_marker


class Life(Enum):
    """How a log directory was left: it says which files must be as they should."""

    CLOSED = "closed"
    """By a clean stop: every file is up to date."""
    OPEN = "open"
    """A process has it: what is written at rolls and at a stop lags behind."""
    KILLED = "killed"
    """As open; and the next start cuts a torn batch at the end."""
    POWER_LOST = "power lost"
    """Above the recovery point anything may be wrong."""
    ALONE = "alone"
    """A copy, or a directory of which nothing else is known."""


class Known(Struct, frozen=True):
    """What is known of a log besides its own files."""

    life: Life = Life.ALONE
    start: int = 0
    recovery_point: int = 0
    closed: ClosedLog | None = None
    """As the clean stop noted it."""
    compacted: bool = False
    topic_id: bytes | None = None
    index_interval: int = INTERVAL_USUAL
    metadata: bool = False
    """It is the metadata log, which has snapshots of its own."""


class Ended(Struct, frozen=True):
    """Where the log ends, as its batches say."""

    first: int
    end: int
    size_bytes: int
    active_base: int
    active_bytes: int
    whole: bool
    """Unless batches could not be read."""


def verify_log(directory: Directory, known: Known, report: Report) -> Ended | None:
    """None where there is no segment."""
    names = directory.names()
    bases = _kept(sorted(offsets_with_suffix(names, LOG_SUFFIX)), known)
    _check_names(directory, names, bases, known, report)
    # Small files are made anew from the batches where a power loss took what was not forced out.
    of_small_files = Report() if known.life is Life.POWER_LOST else report
    _check_topic_id(directory, known, of_small_files)
    report.looked.partitions += 1
    ended = _LogCheck(directory, known, (report, of_small_files), bases).run() if bases else None
    if of_small_files is not report:
        for finding in of_small_files.findings:
            report.remark(finding.file, finding.reason, finding.position)
    return ended


def _kept(bases: list[int], known: Known) -> list[int]:
    """Without what lies wholly below the log's start: some of it may be gone already."""
    start = known.start if known.closed is None else known.closed.start
    return bases[sum(end <= start for end in bases[1:]) :]


def _check_names(
    directory: Directory, names: list[str], bases: list[int], known: Known, report: Report
) -> None:
    present = set(bases)
    for name in names:
        place = f"{directory.path}/{name}"
        if not belongs_in_partition(name, metadata=known.metadata):
            report.violation(place, "is not a file of a log")
            continue
        is_of_segment = (
            name.endswith(SEGMENT_SUFFIXES) and kind_of(name) is not FileKind.LEFT_BEHIND
        )
        if is_of_segment and base_of(name) not in present:
            # A power loss may bring it back; that its segment is gone shows elsewhere.
            report.remark(place, "belongs to a segment that is not there")


def _check_topic_id(directory: Directory, known: Known, report: Report) -> None:
    place = f"{directory.path}/{PARTITION_METADATA}"
    content = directory.read_all(PARTITION_METADATA)
    if content is None:
        if known.topic_id is not None and known.life is Life.CLOSED:
            report.violation(place, "is missing")
        return
    topic_id = decode_partition_metadata(content)
    if encode_partition_metadata(topic_id) != content:
        report.violation(place, "does not name a topic id")
    elif known.topic_id is not None and topic_id != known.topic_id:
        # The topic was deleted, and made again, while its broker was down.
        report.remark(place, "names another topic id than the cluster's metadata")


class _LogCheck:
    """One log's check; used once."""

    def __init__(
        self,
        directory: Directory,
        known: Known,
        reports: tuple[Report, Report],
        bases: list[int],
    ) -> None:
        self._directory = directory
        self._known = known
        self._report, self._of_small_files = reports
        self._bases = bases
        self._end = bases[0]
        self._epoch = -1
        self._epochs = EpochCache()
        self._lasts: dict[int, int] = {}
        self._snapshots = SnapshotCheck(
            directory,
            self._of_small_files,
            bases[0],
            compacted=known.compacted,
            closed_at=None if known.closed is None else known.closed.end,
        )
        self._aborted = TxnIndexCheck(
            directory, self._snapshots.unknown_below, compacted=known.compacted
        )
        if any(name.endswith(SWAP_SUFFIX) for name in directory.names()):
            self._lose_track()  # half of the batches may be under another name
        self._whole = True
        self._has_gaps = False
        self._size_bytes = 0
        self._active_bytes = 0

    def run(self) -> Ended:
        for base in self._bases:
            self._check_start(base)
            self._check_segment(base)
        self._check_small_files()
        return Ended(
            first=self._bases[0],
            end=self._end,
            size_bytes=self._size_bytes,
            active_base=self._bases[-1],
            active_bytes=self._active_bytes,
            whole=self._whole,
        )

    def _check_small_files(self) -> None:
        known, closed = self._known, self._known.closed
        self._snapshots.finish(self._end, whole=self._whole)
        if self._whole:
            start = max(closed.start if closed else known.start, self._bases[0])
            span = Span(
                first_segment=self._bases[0],
                start=start,
                end=self._end,
                start_is_exact=closed is not None,
                compacted=known.compacted or self._has_gaps,
                lasts=self._lasts,
            )
            check_epochs(self._directory, self._of_small_files, self._epochs, span)

    def _place(self, base: int, suffix: str = LOG_SUFFIX) -> str:
        return f"{self._directory.path}/{file_name(base, suffix)}"

    def _check_start(self, base: int) -> None:
        """A segment begins where the one before it ends; compaction may leave a gap."""
        gap = base - self._end
        may_be = self._known.compacted or is_far_gap(self._active_bytes, gap)
        fits = gap == 0 or (gap > 0 and may_be)
        if not fits:
            self._lose_track()
        if self._whole and not fits:
            reason = f"begins at offset {base}, the segment before it ends at {self._end}"
            self._tell(base, reason, 0, may_be_lost=self._may_be_lost(self._end))
            self._whole = False
        self._end = base

    def _check_segment(self, base: int) -> None:
        file = self._directory.open(file_name(base, LOG_SUFFIX))
        self._report.looked.segments += 1
        watch = self._watch(base, file.size)
        walk = Walk(file, next_offset=base, epoch=self._epoch)
        expected: int | None = base
        for seen in walk:
            self._report.read(seen.size)
            if seen.wrong is not None or seen.header is None:
                self._judge(base, file, walk, seen)
                watch = expected = None  # what is missing there is no gap
                continue
            if expected is not None and seen.header.base_offset > expected:
                self._remark_gap(base, seen, expected)
            expected = seen.header.next_offset
            self._note(file, seen.position, seen.header)
            if watch is not None:
                watch.note(seen.position, seen.size, seen.header)
        if watch is not None:
            watch.finish()
        self._epoch, self._end = walk.epoch, walk.next_offset
        self._size_bytes += file.size
        self._active_bytes = file.size
        file.close()
        self._aborted.look(
            base, walk.next_offset, self._of_small_files, made_anew=self._is_doubted(base)
        )

    def _remark_gap(self, base: int, seen: Seen, expected: int) -> None:
        """Unless the log was compacted here, its leader must have been."""
        if self._known.compacted:
            return
        self._has_gaps = True
        offset = expected if seen.header is None else seen.header.base_offset
        reason = f"offset {offset} follows {expected - 1}: compaction elsewhere left a gap"
        self._report.remark(self._place(base), reason, seen.position)

    def _is_doubted(self, base: int) -> bool:
        """Whether the next start reads the segment, for the process that wrote it was killed."""
        after = [one for one in self._bases if one > base]
        killed = self._known.life is Life.KILLED
        return killed and (not after or after[0] > self._known.recovery_point)

    def _note(self, file: File, position: int, header: BatchHeader) -> None:
        self._report.looked.batches += 1
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._lasts[header.partition_leader_epoch] = header.last_offset
        read = partial(file.read, position, header.size_bytes)
        aborted = self._snapshots.note(header, read)
        if header.is_control:
            self._aborted.note_marker(header.last_offset, read_marker(header, read()))
        if aborted is not None:
            self._aborted.note(aborted)

    def _lose_track(self) -> None:
        """A batch cannot be read, or is not there."""
        self._snapshots.lose_track()
        self._aborted.lose_track()

    def _judge(self, base: int, file: File, walk: Walk, seen: Seen) -> None:
        """A spot that is no good batch: damage, or what the next start is going to cut."""
        self._lose_track()
        offset, reason = walk.next_offset, seen.wrong or "no batch"
        at_the_end = base == self._bases[-1] and seen.position + seen.size == walk.end
        if (
            self._known.life is Life.KILLED
            and at_the_end
            and offset >= self._known.recovery_point
            and not is_damage(file, position=seen.position, end=walk.end, offset=walk.doubted_from)
        ):
            reason = f"{reason}: the next start cuts {seen.size} bytes"
            self._report.remark(self._place(base), reason, seen.position)
            return
        self._whole = False
        self._tell(
            base,
            f"{reason}, where offset {offset} should be",
            seen.position,
            may_be_lost=self._may_be_lost(offset),
        )

    def _may_be_lost(self, offset: int) -> bool:
        """Where all that was flushed is deleted, nothing that is left was promised."""
        known = self._known
        promised = offset < known.recovery_point and known.start < known.recovery_point
        return known.life is Life.POWER_LOST and not promised

    def _tell(self, base: int, reason: str, position: int, *, may_be_lost: bool) -> None:
        if may_be_lost:
            reason = f"{reason}: the next start cuts the log there"
            self._report.remark(self._place(base), reason, position)
        else:
            self._report.violation(self._place(base), reason, position)

    def _watch(self, base: int, size: int) -> IndexWatch | None:
        """Where the index files must be right: not of a segment that is, or was, being written."""
        life, is_last = self._known.life, base == self._bases[-1]
        if life is not Life.CLOSED and is_last:
            return None
        if life is Life.POWER_LOST and self._next_base(base) > self._known.recovery_point:
            return None
        if not size:
            self._check_empty(base)
            return None
        return IndexWatch(
            self._directory, base, size, self._known.index_interval, self._of_small_files
        )

    def _next_base(self, base: int) -> int:
        return self._bases[self._bases.index(base) + 1] if base != self._bases[-1] else base

    def _check_empty(self, base: int) -> None:
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if self._directory.size(file_name(base, suffix)):
                # Nobody reads them.
                self._report.remark(self._place(base, suffix), "has entries of an empty segment")
