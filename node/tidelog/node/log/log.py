"""The log of one partition: append, read, roll, flush, truncate.

Invariant: start <= end, recovery_point <= end, and the bytes below `end` are whole batches in
order. A batch is in the log once its one write has returned; nothing is kept in memory that a
killed process would lose.
"""

from contextlib import suppress

from msgspec.structs import replace

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, Held, Syncable
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.kernel.instant import Instant
from tidelog.node.log.aborted import aborted_in, are_whole, index_of
from tidelog.node.log.contracts import Appended, FileSlice, LogKeeper, LogName
from tidelog.node.log.dirty import Dirty
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.flush_policy import OS
from tidelog.node.log.lookup import LogRange, Search, first_at_or_after, largest, slice_of
from tidelog.node.log.marks import ClosedLog
from tidelog.node.log.producers import Producers
from tidelog.node.log.recovery import Loaded, load_closed, load_producers
from tidelog.node.log.rolling import FAR_GAP, RollLimits
from tidelog.node.log.segment import Segment
from tidelog.node.log.segments import SegmentList, make_segment, remove_segment
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.shortages import is_full, is_shortage
from tidelog.node.log.snapshots import remove_snapshots, write_snapshot
from tidelog.node.log.swapping import Swap
from tidelog.node.log.unflushed import Unflushed
from tidelog.node.log.validation import NO_TIMESTAMP, as_repeated, check_replicated
from tidelog.wire.checkpoints import PARTITION_METADATA, encode_partition_metadata
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.log_files import Aborted
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    BatchHeader,
    iterate_batches,
    place_batch,
)


class Log:
    """One partition's log. Its files come into being at the first append."""

    def __init__(
        self, directory: Directory, name: LogName, settings: LogSettings, keeper: LogKeeper
    ) -> None:
        self.name = name
        self.settings = settings
        self.start = 0
        self.end = 0
        self.recovery_point = 0
        """All below was flushed."""
        self.missing_from: int | None = None
        """Where it should begin: a power loss took first segments that nobody had deleted."""
        self.offline: CorruptError | None = None
        """Why the log can no longer be used."""
        self._directory = directory
        self._keeper = keeper
        self._closed: ClosedLog | None = None
        self._segments: SegmentList | None = None
        self._active: Segment | None = None
        self._epochs = EpochCache()
        self._producers = Producers()
        self._deleted = False
        self._now_ms = self._segment_made_ms = 0
        self._limits: RollLimits | None = None
        self._epochs_unwritten = False
        self.dirty = Dirty(lambda when: keeper.flush_wanted(self, when))
        """What no flush has begun with yet."""
        self._unflushed = Unflushed(directory)

    # -- what it is

    @property
    def has_files(self) -> bool:
        return self._segments is not None or self._closed is not None

    @property
    def size_bytes(self) -> int:
        if self._closed is not None:
            return self._closed.size_bytes
        return 0 if self._segments is None else self._segments.size_bytes

    @property
    def sealed_end(self) -> int:
        """Where the active segment begins: all below it will not change any more."""
        return self.end if self._active is None else self._active.base

    @property
    def epochs(self) -> EpochCache:
        if self._closed is not None:
            self._load()
        return self._epochs

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; a log that was not used yet need not be read for it."""
        return self._epochs.latest if self._closed is None else self._closed.epoch

    @property
    def producers(self) -> Producers:
        if self._closed is not None:
            self._load()
        return self._producers

    def take_topic_id(self, topic_id: Uuid) -> None:
        """Learn whose log it is, where the files did not say."""
        if topic_id == self.name.topic_id:
            return
        self.name = self.name._replace(topic_id=topic_id)
        if self.has_files:
            self._write_topic_id()

    # -- coming into being

    def adopt(self, loaded: Loaded, recovery_point: int, now_ms: int) -> None:
        """Take the state recovery found."""
        assert self._segments is None
        self.start, self.end, self.missing_from = loaded.start, loaded.end, loaded.missing_from
        self.recovery_point = min(recovery_point, loaded.end)
        self._epochs, self._producers = loaded.epochs, loaded.producers
        self._segments, self._active = loaded.segments, loaded.segments.active
        self._now_ms = self._segment_made_ms = now_ms
        self._unflushed.maybe_durable = loaded.end
        # Bytes found at open are not durable; neither are the names and the epochs.
        self._unflushed.note_epochs()
        if self.recovery_point < self._active.base:
            self._keeper.rolled(self.name)  # the process that sealed them did not come to flush
        if self._directory.read_all(EPOCHS_NAME) != self._epochs.encode():
            self._write_epochs()
        self._epochs_unwritten |= self._owes

    def adopt_closed(self, closed: ClosedLog, recovery_point: int, now_ms: int) -> None:
        """Answer from what a clean stop noted; the files are read at their first use."""
        assert self._segments is None
        self.start, self.end = closed.start, closed.end
        self.recovery_point = min(recovery_point, closed.end)
        self._closed = closed
        self._now_ms = now_ms

    def _load(self) -> SegmentList:
        closed = self._closed
        assert closed is not None
        if self.offline is not None:
            raise self.offline
        interval = self.settings.index_interval_bytes
        try:
            loaded = load_closed(self._directory, closed, interval, self._now_ms)
        except CorruptError as error:
            self.offline = error
            raise
        loaded.start = self.start
        self._closed = None
        self.adopt(loaded, self.recovery_point, self._now_ms)
        self.begin_epoch(max(closed.epoch, self._epochs.latest))
        return loaded.segments

    def _opened(self) -> SegmentList:
        """The segments; read, or made, if they were not yet."""
        if self._segments is not None:
            return self._segments
        if self.offline is not None:
            raise self.offline
        if self._deleted:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name.directory} is gone")
        return self._make_files(self.end) if self._closed is None else self._load()

    def _make_files(self, base: int) -> SegmentList:
        self._keeper.files_wanted(self.name)
        self._directory.make()
        self._write_topic_id()
        if len(self._epochs):
            self._write_epochs()
        self._segments = SegmentList(self._directory, [make_segment(self._directory, base)])
        self._active = self._segments.active
        self._segment_made_ms = self._now_ms
        self._unflushed.names = True
        self._keeper.touched(self.name)
        return self._segments

    def _write_topic_id(self) -> None:
        if self.name.topic_id != ZERO_UUID:
            content = encode_partition_metadata(self.name.topic_id)
            self._directory.replace(PARTITION_METADATA, content, durable=False)
            self._unflushed.names = True

    # -- append

    def append_as_leader(
        self, now: Instant, now_ms: int, view: memoryview, header: BatchHeader, leader_epoch: int
    ) -> Appended:
        """Append one validated batch: its offsets and epoch are set in place, then one write.

        Rejected where its producer's sequence forbids it; a repeated batch is not appended again.
        """
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.producers.check(header)
            if repeated is not None:
                return as_repeated(repeated, header, self.start)
        first = self.end
        active = self._active_for(header, first, len(view), now_ms)
        if leader_epoch != self._epochs.latest or self._epochs_unwritten:
            self.begin_epoch(leader_epoch)
            self._write_owed()
        place_batch(view, 0, base_offset=first, leader_epoch=leader_epoch)
        active.append(view, header, first, self.settings.index_interval_bytes)
        self.end = end = active.end
        if producer_id >= 0:
            self._producers.note(header, end - 1, now_ms)
        self.dirty.grew(now, len(view), end, self.settings.flush)
        self._keeper.grew(self)
        stamp = header.max_timestamp if header.attributes & APPEND_TIME_BIT else NO_TIMESTAMP
        return Appended(first, end - 1, stamp, self.start)

    def append_as_follower(
        self, now: Instant, now_ms: int, view: memoryview, high_watermark: int = 0
    ) -> Appended:
        """Append batches as the leader wrote them; CorruptError where they do not fit."""
        first = self.end
        try:
            self._append_replicated(now, now_ms, view, high_watermark)
        except OSError:
            with suppress(OSError):  # what failed first is told
                self._undo_far_roll()
            raise
        return Appended(first, self.end - 1, NO_TIMESTAMP, self.start)

    def _append_replicated(
        self, now: Instant, now_ms: int, view: memoryview, high_watermark: int
    ) -> None:
        for header, batch in iterate_batches(view):
            check_replicated(batch, header, self.end, self.name.directory)
            active = self._active_for(header, header.base_offset, len(batch), now_ms)
            if header.partition_leader_epoch > self._epochs.latest or self._epochs_unwritten:
                self._assign_epoch(header.partition_leader_epoch, header.base_offset)
                self._write_owed()
            active.append(batch, header, header.base_offset, self.settings.index_interval_bytes)
            self.end = active.end
            if header.attributes & CONTROL_BIT:
                self._note_control(active, header, batch, now_ms, high_watermark)
            elif header.producer_id >= 0:
                self._producers.note(header, header.last_offset, now_ms)
            self.dirty.grew(now, len(batch), active.end, self.settings.flush)
            self._keeper.grew(self)

    def _note_control(
        self, active: Segment, header: BatchHeader, batch: memoryview, now_ms: int, settled: int
    ) -> None:
        aborted = self._producers.take_control(header, batch, now_ms, settled)
        if aborted is not None:
            index_of(self._directory, self._opened(), active).append(aborted)
            self._unflushed.names = True  # its file may be a new one

    def begin_epoch(self, epoch: int) -> None:
        """From the log's end on, this epoch writes; known to the disk before its first batch.

        Not earlier: an epoch that wrote nothing parts no histories, so a kill may forget it, and
        who becomes leader of a thousand partitions writes no thousand files, nor reads them.
        """
        assert epoch >= self.latest_epoch, "a leader never goes back"
        if self._closed is not None:
            self._closed = replace(self._closed, epoch=epoch)
        else:
            self._assign_epoch(epoch, self.end)

    def _assign_epoch(self, epoch: int, start: int) -> None:
        if self._epochs.assign(epoch, start):
            self._epochs_unwritten = True

    def _write_owed(self) -> None:
        """What must be on the disk before the next batch."""
        self._keeper.forget_committed(self.name, self.end)
        self._unflushed.force_last_cut()
        self._write_epochs()

    @property
    def _owes(self) -> bool:
        """Whether the next append must still come by `_write_owed`, whatever its epoch."""
        return self._unflushed.owes_cut or self._keeper.committed_beyond(self.name, self.end)

    def _write_epochs(self) -> None:
        self._epochs_unwritten = True  # also where the disk is full
        self._directory.replace(EPOCHS_NAME, self._epochs.encode(), durable=False)
        self._epochs_unwritten = self._owes
        self._unflushed.note_epochs()

    # -- roll

    def _active_for(self, header: BatchHeader, first: int, size: int, now_ms: int) -> Segment:
        """The segment a batch goes to; a new one where the old one is full or too old."""
        self._now_ms = now_ms
        active = self._active or self._opened().active
        limits = self._limits_of(active)
        last = first + header.last_offset_delta
        if limits.forbid(last, size, header.max_timestamp, now_ms - self._segment_made_ms):
            active = self.roll(now_ms)
        if first > self.end and self._limits_of(active).cannot_index(last):
            return self._roll_far(now_ms, first)
        return active

    def _roll_far(self, now_ms: int, first: int) -> Segment:
        """Begin a segment so far behind the end of the log that no index could span the gap.

        Everything before the gap is forced to disk first, and so is the name of the new segment. If
        a power loss could take either, a start would take what is missing for a part of the gap.
        """
        self._force_all()
        segment = self._begin_segment(now_ms, first)
        self._directory.sync()
        return segment

    def _undo_far_roll(self) -> None:
        """Go on with the segment before the gap if there was no room for the batch behind it: the
        next one may be another batch, which begins before the gap."""
        segments = self._segments
        if segments is None or segments.active.base <= self.end:
            return
        base = segments.active.base
        self._epochs.cut_from(self.end + 1)
        self._active = segments.undo_roll()
        # The name of the far segment is durable. If it came back after a power loss, the log would
        # seem to end behind the gap.
        self._unflushed.owe_cut(self._active)
        self._epochs_unwritten = True  # if this fails now, the next append does it
        remove_segment(self._directory, base)
        remove_snapshots(self._directory, above=self.end)
        self._unflushed.force_last_cut()

    def _force_all(self) -> None:
        """Force all of the log's bytes and names to disk. This blocks."""
        for segment in self._opened().from_offset(self.recovery_point):
            segment.file.sync()
        self._directory.sync()
        self._directory.parent.sync()

    def _limits_of(self, active: Segment) -> RollLimits:
        limits = self._limits
        if limits is None or limits.segment is not active or limits.settings is not self.settings:
            limits = RollLimits(active, self.settings, self.name.directory)
            self._limits = limits
        return limits

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment that is too old by the clock though nothing is appended any more."""
        self._now_ms = now_ms
        active = self._active
        if active is None or not active.size:
            return False
        if not self._limits_of(active).is_aged(now_ms, now_ms - self._segment_made_ms):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin a new one at the log's end, also where the next batch
        lies behind a gap: a start tells from adjoining segments that none is missing."""
        active = self._opened().active
        self._now_ms = now_ms
        if not active.size:
            return active
        if self.end - active.base > FAR_GAP:
            # If a power loss left this segment empty, a start would take it for a far gap.
            self._force_all()
        return self._begin_segment(now_ms, self.end)

    def _begin_segment(self, now_ms: int, base: int) -> Segment:
        segments = self._opened()
        self._producers.expire(now_ms - self.settings.producer_expiration_ms)
        self._active = segments.roll(base)
        self._segment_made_ms = now_ms
        self._unflushed.names = True  # all this first: there may be no room for what follows
        self._keeper.rolled(self.name)
        write_snapshot(self._directory, base, self._producers)
        return self._active

    # -- read

    def read(self, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, up to `limit`, in one segment.

        None where there is nothing to send; at least one batch where `min_one`, however large.
        """
        if not self.start <= offset <= self.end:
            raise Rejected(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {self.start}..{self.end}"
            )
        limit = min(limit, self.end)
        if offset >= limit:
            return None
        segments = self._opened()
        segment: Segment | None = segments.holding(offset)
        while segment is not None and segment.base < limit:
            start = segment.locate(offset)
            stop = segment.locate(limit)
            if stop > start:
                return slice_of(segment, start, stop, max_bytes, self._epochs, min_one=min_one)
            segment = segments.after(segment)  # compaction left nothing behind that offset
        return None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and stays so; a reader of what is committed goes
        no further."""
        if self._closed is not None:
            if not self._closed.unstable:
                return high_watermark
            self._load()
        unstable = self._producers.unstable
        if not unstable.open and not unstable.ended:
            return high_watermark  # as nearly always
        first = unstable.first(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return min(max(first, self.start), high_watermark)

    def aborted(self, offset: int, found: FileSlice, limit: int) -> list[Aborted]:
        """What was aborted of the bytes that `read` found for an offset, below a limit."""
        return aborted_in(self._directory, self._opened(), offset, found, limit)

    def offset_for_timestamp(self, timestamp: int, limit: int) -> Search:
        """Search the first record of that time or later below `limit`."""
        return first_at_or_after(self._range, timestamp, limit)

    def offset_of_max_timestamp(self, limit: int) -> Search:
        """Search the first record with the largest timestamp below `limit`."""
        return largest(self._range, limit)

    def _range(self) -> LogRange:
        return LogRange(self._opened(), self.start)

    # -- retention and compaction

    @property
    def segments(self) -> list[Segment]:
        """All of them, the active one last; none of a log without files."""
        return list(self._opened()) if self.has_files else []

    @property
    def directory(self) -> Directory:
        return self._directory

    @property
    def closed(self) -> ClosedLog | None:
        """What is known of a log that was not used since a clean stop."""
        return self._closed

    @property
    def has_sealed(self) -> bool:
        """Whether there is a segment beside the active one."""
        if self._closed is not None:
            return self._closed.size_bytes > self._closed.active_bytes
        return self._segments is not None and len(self._segments) > 1

    @property
    def cuts(self) -> int:
        """How often records were cut off its end since it was opened."""
        return 0 if self._segments is None else self._segments.cuts

    def expire_producers(self, now_ms: int) -> None:
        """Forget who wrote nothing for too long, also where no segment is rolled."""
        if self._closed is None:
            self._producers.expire(now_ms - self.settings.producer_expiration_ms)

    def has_told_aborted(self) -> bool:
        """Whether the files say all that was aborted, for whoever knows nothing else of it."""
        return are_whole(self._directory, self._opened())

    def begin_swap(self, bases: list[int], size: int, cuts: int) -> Swap | None:
        """Begin to put a compacted segment, still called `.cleaned`, in the place of these.

        None where they are not what they were when the log's end had been cut off so often.
        """
        if self._segments is None or self._segments.cuts != cuts:
            return None
        return self._segments.begin_swap(bases, size)

    def settle_swap(self) -> None:
        """End what a pass left that could not put its segment in force. Not while one does."""
        if self._segments is not None:
            self._segments.settle_swap()

    # -- flush

    @property
    def owes_flush(self) -> bool:
        """Whether its policy bounds what may be unflushed, and something is."""
        is_used = self._closed is None and self.has_files
        return is_used and self.settings.flush is not OS and self.recovery_point < self.end

    def look_for_flush(self, now: Instant) -> None:
        """After a round with it: ask for the next one if need be."""
        self.dirty.look(now, self.end, self.settings.flush)

    def dirty_files(self, upto: int) -> list[Syncable]:
        """What must be synced, in any thread, before `flushed(upto)` may be called."""
        if self._closed is not None and self.recovery_point < upto:
            self._load()
        if upto >= self.end:
            self.dirty.begins(upto)
        if self._segments is None:
            return []
        return self._unflushed.files(self._segments, self.recovery_point, upto)

    def hold_dirty(self) -> Held | None:
        """As `dirty_files` of all there is, where that is one open file; None where it is not."""
        active = self._active
        held = None if active is None else self._unflushed.held(active, self.recovery_point)
        if held is not None:
            self.dirty.begins(self.end)
        return held

    def flushed(self, upto: int) -> None:
        """The files `dirty_files` named are on stable storage."""
        upto = self._unflushed.reached(upto)
        assert upto <= self.end, (upto, self.end)
        self._unflushed.maybe_durable = self.end
        self.recovery_point = max(self.recovery_point, upto)
        self._keeper.touched(self.name)

    # -- truncate

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds `offset` and all behind it; the new end, where the last batch
        ends that is left. Epochs that begin there go too, also where they wrote nothing.

        In a gap that compaction left, the end lies below `offset`: the leader may have records
        between the two, what was there may have been replaced by a record that goes now, and a
        start would find no other end.

        Blocks for a sync where the old bytes may have been durable: were they to come back after
        a power loss, under newer ones, no epoch would tell them from the leader's.
        """
        if offset >= self.end:
            self._epochs_unwritten |= self.epochs.cut_from(self.end)
            self._unflushed.force_last_cut()
            return self.end
        segments = self._opened()
        segments.settle_swap()
        if offset <= segments.first.base:
            self.truncate_fully_and_start_at(offset)
            return self.end
        segment = segments.holding(offset)
        index_of(self._directory, segments, segment)
        position = segment.locate(offset)
        end = segment.end_before(position)
        self._lower_recovery_point(end)
        if segments.active is not segment:  # their names may be durable where their batches are not
            self._unflushed.owe_cut(segment)
        segments.drop_behind(segment)
        segment.truncate(position, end, self.settings.index_interval_bytes)
        self._active, self.end = segment, end
        self._after_cut(segments)
        return end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log goes on at `offset`. Without room for that nothing changes."""
        segments = self._opened()
        segments.settle_swap()
        prepared = segments.prepare(offset)
        self._lower_recovery_point(min(segments.first.base, offset))
        later = offset > self.start
        self._active = segments.restart(prepared)
        self.start = self.end = offset
        if self.missing_from is not None and offset <= self.missing_from:
            self.missing_from = None
        remove_snapshots(self._directory, below=self.end + 1)
        self._after_cut(segments)
        if later:  # else a kill would make records that nobody has into missing ones
            self._keeper.checkpoint_first()
        if self.settings.flush is not OS:
            self.dirty.ask(Instant(0))  # nobody vouches for the new start before it is flushed

    def _lower_recovery_point(self, end: int) -> None:
        """Before the files shrink: else a start would miss what was flushed once."""
        self._unflushed.note_cut(end)
        if end < max(self.recovery_point, self.start):
            before = self.recovery_point, self.start
            self.recovery_point, self.start = min(before[0], end), min(before[1], end)
            self._keeper.touched(self.name)
            try:
                self._keeper.checkpoint_first()
            except OSError:  # nothing is cut then; whoever tries again must come by here again
                self.recovery_point, self.start = before
                self._keeper.touched(self.name)
                raise

    def _after_cut(self, segments: SegmentList) -> None:
        self._keeper.touched(self.name)
        remove_snapshots(self._directory, above=self.end)
        self._producers = load_producers(self._directory, list(segments), self.end, self._now_ms)
        self._unflushed.names = True  # all this first: there may be no room for what follows
        try:
            if self._epochs.cut_from(self.end):
                self._write_epochs()
        finally:
            self._epochs_unwritten |= self._owes
            self._force_cut(segments.active)

    def _force_cut(self, active: Segment) -> None:
        try:
            self._unflushed.force_cut(active, self.end)
        except OSError:  # no descriptor may be left for it
            self._epochs_unwritten = True  # so the next append makes up for it by `_write_owed`
            raise

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are deleted; segments wholly below go."""
        if offset > self.end:
            raise Rejected(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {self.start}..{self.end}"
            )
        if offset <= self.start:
            return
        self.start, self.missing_from = offset, None
        self._keeper.touched(self.name)
        segments = self._opened()
        if segments.drop_below(offset):
            remove_snapshots(self._directory, below=segments.first.base)
        if self._epochs.cut_below(offset):
            try:
                self._write_epochs()
            except OSError as error:
                # Without room the file has epochs from below the start until the next batch comes.
                if not is_full(error) and not is_shortage(error):
                    raise

    def accept_start(self) -> None:
        """The leader has no records before this start either: none are missing any more. The next
        life knows this only after `keep_start`."""
        if self.missing_from is not None:
            self.missing_from = None
            self._keeper.touched(self.name)

    def keep_start(self) -> None:
        """Make the start durable, so that no later life of this log begins earlier. If the disk
        lost what is before it, the checkpoint must go on telling where the log should begin."""
        if self.missing_from is None:
            self._keeper.keep_start(self.name, self.start)

    @property
    def has_retired(self) -> bool:
        """Whether segments left the log whose files are still there."""
        return self._segments is not None and self._segments.has_retired

    @property
    def has_aside(self) -> bool:
        """Whether files wait for their removal."""
        return self._segments is not None and self._segments.has_aside

    def put_aside(self, start: int, now_ms: int) -> None:
        """Name segments that left the log, and lie below `start`, as what is on its way out."""
        if self._segments is not None:
            self._segments.put_aside(start, now_ms + self.settings.file_delete_delay_ms)

    def purge(self, now_ms: int | None = None) -> None:
        """Remove files put aside long enough ago; without a time, all that left the log."""
        if self._segments is not None:
            if now_ms is None:
                self._segments.put_aside(self.start, 0)
            self._segments.purge(now_ms)

    # -- the end

    def close_clean(self) -> ClosedLog | None:
        """Write what a quick start needs; None of a log without files, and of one that could not be
        read: the next start reads it, and finds out what is wrong."""
        if self.offline is not None:
            self.abandon()
            return None
        if self._segments is None:
            return self._closed and replace(self._closed, topic_id=self.name.topic_id)
        if self.missing_from is not None:
            self.abandon()
            return None  # the next start reads it, and sees what is missing
        active = self._segments.active
        self._segments.drop_below(self.start)  # as who reads it next does, and counts what is left
        self.settle()
        self._closed = ClosedLog(
            start=self.start,
            end=self.end,
            size_bytes=self._segments.size_bytes,
            active_base=active.base,
            active_bytes=active.size,
            active_timestamp=active.max_timestamp,
            epoch=self._epochs.latest,
            topic_id=self.name.topic_id,
            unstable=not self._producers.unstable.is_empty,
        )
        self.abandon()
        return self._closed

    def settle(self) -> list[Syncable]:
        """Write what a clean stop writes, before the flush that is to cover it; its files."""
        return self._unflushed.settle(self._active, self.end, self._producers, self._closed)

    def abandon(self) -> None:
        """Close the files as they are."""
        if self._segments is not None:
            self._segments.close()
            self._segments = self._active = None

    def fail(self, reason: CorruptError) -> None:
        """Close the files, and raise this to whoever still wants them."""
        self.offline = reason
        with suppress(OSError):
            self.abandon()
        self._segments = self._active = self._closed = None

    def delete(self) -> None:
        """Close the files, and make none again for whoever still holds this object."""
        self._deleted = True
        self.dirty.forget()
        self.abandon()
        self._closed = None


def is_only_the_start(log: Log, high_watermark: int) -> bool:
    """Whether this high watermark of the log tells nothing of what was committed.

    No high watermark lies below its log's start. If a power loss took the front of the log, it may
    stand at the start for this reason alone, above all that was ever committed.
    """
    return log.missing_from is not None and high_watermark <= log.start
