"""What of one log may not be on stable storage, as far as its recovery point does not say it."""

from tidelog.kernel.files import Directory, Held, Syncable
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.marks import ClosedLog
from tidelog.node.log.producers import Producers
from tidelog.node.log.segment import Segment
from tidelog.node.log.segments import SegmentList
from tidelog.node.log.snapshots import snapshot_offsets, write_snapshot
from tidelog.wire.checkpoints import PARTITION_METADATA
from tidelog.wire.log_files import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, file_name


class Unflushed:
    """Invariant: a name or a small file that changed since `files` was asked last is noted here."""

    __slots__ = ("_cut", "_directory", "_floor", "_settled", "epochs", "maybe_durable", "names")

    def __init__(self, directory: Directory) -> None:
        self.names = False
        """Files came into being, or got another name."""
        self.epochs = False
        """The file of leader epochs was written."""
        self.maybe_durable = 0
        """Below it old bytes may be on the platter, and would come back if a cut were lost."""
        self._settled: int | None = None
        """The log's end when all that a stop writes was written."""
        self._directory = directory
        self._floor: int | None = None
        self._cut: Segment | None = None
        """It was cut, and the old bytes may still come back, for their sync failed."""

    @property
    def owes_cut(self) -> bool:
        """Whether the last cut is not known to be durable, for its sync failed."""
        return self._cut is not None

    def note_epochs(self) -> None:
        self.epochs = self.names = True

    def note_cut(self, end: int) -> None:
        """What is being flushed counts up to here only: behind it there may be other bytes now."""
        self._floor = end if self._floor is None else min(self._floor, end)

    def force_cut(self, active: Segment, end: int) -> None:
        """The log was cut to there: see to it that what was behind does not come back."""
        if end < self.maybe_durable:
            self._cut, self.maybe_durable = active, end
        self.force_last_cut()

    def owe_cut(self, active: Segment) -> None:
        """Something behind this segment's end goes, and may come back until that is forced out."""
        self._cut = active

    def force_last_cut(self) -> None:
        """Before anything is appended: force out the last cut if that failed when it was made."""
        if self._cut is not None:
            self._directory.syncable(self._cut.name).sync()  # it may be gone by now
            self._directory.sync()
            self._cut = None

    def reached(self, upto: int) -> int:
        """Up to where the log is flushed, after a flush that was to bring it there."""
        return upto if self._floor is None else min(upto, self._floor)

    def held(self, active: Segment, point: int) -> Held | None:
        """The file of the active segment, where a flush must force out nothing else, as it nearly
        always is for whom each record is flushed."""
        if self.names or self.epochs or point < active.base or active.aborted.is_unsynced:
            return None
        held = active.held()
        if held is not None:
            self._floor = None
        return held

    def files(self, segments: SegmentList, point: int, upto: int) -> list[Syncable]:
        """What a flush from the recovery point up to `upto` must force out."""
        doubted = segments.from_offset(point)
        # A start after a kill writes that one anew with which the point's segment begins.
        # First of all, for there may be no descriptor to list the directory with.
        named = self._named_since(min(point, doubted[0].base)) if self.names else []
        found = segments.take_unsynced()
        self._floor = None
        for segment in doubted:
            if segment.base < upto and segment.end > point:
                found += segment.syncables(sealed=segment is not segments.active)
        if self.epochs:
            found.append(self._directory.syncable(EPOCHS_NAME))
        found += named
        self.epochs = self.names = False
        return found

    def settle(
        self, active: Segment | None, end: int, producers: Producers, closed: ClosedLog | None
    ) -> list[Syncable]:
        """Write what a clean stop writes, where the one before has not; its files, none of which
        anybody reads against the batches."""
        if active is not None:
            base = active.base
            active.write_indexes(final=True)
            if self._settled != end:
                write_snapshot(self._directory, end, producers)
                self._settled = end
        elif closed is not None:
            base = closed.active_base
        else:
            return []
        names = [file_name(base, suffix) for suffix in SEGMENT_SUFFIXES]
        found = [self._directory.syncable(file_name(end, SNAPSHOT_SUFFIX))]
        found += map(self._directory.syncable, names)
        found.append(self._directory)
        return found

    def _named_since(self, point: int) -> list[Syncable]:
        """Small files, then the directories: a name counts only when its directory is synced."""
        found = [
            self._directory.syncable(file_name(offset, SNAPSHOT_SUFFIX))
            for offset in snapshot_offsets(self._directory.names())
            if offset >= point
        ]
        found.append(self._directory.syncable(PARTITION_METADATA))
        found.append(self._directory)
        found.append(self._directory.parent)
        return found
