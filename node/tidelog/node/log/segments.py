"""The segments of one log, oldest first; the last one is written to."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress

from tidelog.kernel.files import Directory, Syncable
from tidelog.node.log.segment import Segment
from tidelog.node.log.swapping import Swap
from tidelog.wire.log_files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    file_name,
)

SEGMENTS_KEPT_LOADED = 4
DELETED_SUFFIX = ".deleted"
BEGUN_SUFFIX = ".tmp"


class SegmentList:
    """Invariant: never empty; each segment ends where the next begins or, compacted, before it."""

    __slots__ = (
        "_aside",
        "_bases",
        "_directory",
        "_loaded",
        "_retired",
        "_sealed_unsynced",
        "_segments",
        "_swap",
        "active",
        "cuts",
    )

    def __init__(self, directory: Directory, segments: Iterable[Segment]) -> None:
        self._directory = directory
        self._segments = list(segments)
        self._bases = [segment.base for segment in self._segments]
        self.active = self._segments[-1]
        self._loaded: list[Segment] = []
        self._retired: list[Segment] = []
        """Out of the log; they keep their names until the log's start vouches for that."""
        self._sealed_unsynced = self._segments[-2:-1]
        """Their indexes are not known to be on stable storage, though their batches may be."""
        self.cuts = 0
        """How often records were cut off the end."""
        self._swap: Swap | None = None
        """The last compacted segment that was put in force, or is being."""
        self._aside: list[tuple[int, Segment]] = []
        """Named `.deleted`, to be removed at that time: until then readers may go on."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def holding(self, offset: int) -> Segment:
        """The segment in whose range the offset lies; the first one for what lies before it."""
        active = self.active
        if offset >= active.base:
            return active
        segment = self._segments[max(bisect_right(self._bases, offset) - 1, 0)]
        self.note_use(segment)
        return segment

    def after(self, segment: Segment) -> Segment | None:
        at = bisect_right(self._bases, segment.base)
        return self._segments[at] if at < len(self._segments) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """All segments that hold the offset or anything above it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def note_use(self, segment: Segment) -> None:
        """Of sealed segments only those read last keep their indexes in memory."""
        if segment in self._loaded:
            return
        self._loaded.append(segment)
        if len(self._loaded) > SEGMENTS_KEPT_LOADED:
            self._loaded.pop(0).unload()

    def roll(self, base: int) -> Segment:
        """A new, empty segment to write to; the old one is sealed, unless there is no room."""
        old = self.active
        old.write_indexes(final=True)
        new = make_segment(self._directory, base)
        self.note_use(old)
        self._sealed_unsynced.append(old)
        return self._add(new)

    def undo_roll(self) -> Segment:
        """Go on with the segment before the active one, which is empty; its files stay."""
        assert not self.active.size, self.active.size
        self.active.close()
        del self._segments[-1], self._bases[-1]
        self.active = old = self._segments[-1]
        if old in self._loaded:
            self._loaded.remove(old)
        return old

    def take_unsynced(self) -> list[Syncable]:
        """Files of segments that were sealed since this was last asked."""
        sealed, self._sealed_unsynced = self._sealed_unsynced, []
        return [file for segment in sealed for file in segment.syncables(sealed=True)]

    def prepare(self, base: int) -> Segment:
        """What `restart` shall put in the place of all others, under a name that a start removes:
        where there is no room for it, nothing has changed."""
        return make_segment(self._directory, base, suffix=BEGUN_SUFFIX)

    def restart(self, prepared: Segment) -> Segment:
        """Nothing but this empty segment; all others go, the newest first."""
        self.cuts += 1
        self.put_aside(self.first.base, 0)  # a retired one may have that very name
        self.purge()
        while self._segments:
            self._drop_last()
        prepared.rename("")
        return self._add(prepared)

    def _add(self, segment: Segment) -> Segment:
        self._segments.append(segment)
        self._bases.append(segment.base)
        self.active = segment
        return segment

    def drop_behind(self, segment: Segment) -> None:
        """Remove the segments behind this one, the newest first: what is left never has a hole."""
        self.cuts += 1
        while self._segments[-1] is not segment:
            self._drop_last()
        if segment in self._loaded:
            self._loaded.remove(segment)
        self.active = segment

    def _drop_last(self) -> None:
        segment = self._segments.pop()
        self._bases.pop()
        if segment in self._loaded:
            self._loaded.remove(segment)
        segment.close()
        remove_segment(self._directory, segment.base)

    def drop_below(self, start: int) -> int:
        """Retire segments that lie wholly below the log's start; how many. The active one stays."""
        count = 0
        while len(self._segments) > 1 and self._bases[1] <= start:
            segment = self._segments.pop(0)
            self._bases.pop(0)
            if segment in self._loaded:
                self._loaded.remove(segment)
            self._retired.append(segment)
            count += 1
        return count

    @property
    def has_retired(self) -> bool:
        return bool(self._retired)

    @property
    def has_aside(self) -> bool:
        return bool(self._aside)

    def put_aside(self, start: int, remove_at_ms: int) -> None:
        """Give retired segments below `start` the names of files on their way out."""
        while self._retired and self._retired[0].end <= start:
            self._put_aside(self._retired.pop(0), remove_at_ms)

    def _put_aside(self, segment: Segment, remove_at_ms: int) -> None:
        segment.rename(suffix_aside(self._directory, segment.base))
        self._aside.append((remove_at_ms, segment))

    def purge(self, now_ms: int | None = None) -> None:
        """Remove what was put aside long enough ago and nobody reads, or all of it."""
        due = [
            one for at, one in self._aside if now_ms is None or (at <= now_ms and not one.is_read)
        ]
        self._aside = [entry for entry in self._aside if entry[1] not in due]
        for segment in due:
            segment.remove()

    def begin_swap(self, bases: list[int], size: int) -> Swap | None:
        """Begin to put a compacted segment in the place of those with these bases; None if they
        are not there any more."""
        cleaned = file_name(bases[0], LOG_SUFFIX) + CLEANED_SUFFIX
        if not self._are_sealed(bases) or not self._directory.exists(cleaned):
            return None
        self._swap = Swap(self._directory, self, bases)
        self._swap.begin(size)
        return self._swap

    def settle_swap(self) -> None:
        """Before anything is cut off."""
        if self._swap is not None:
            self._swap.settle()
            self._swap = None

    def _are_sealed(self, bases: list[int]) -> bool:
        at = bisect_left(self._bases, bases[0])
        until = at + len(bases)
        return self._bases[at:until] == bases and self.active.base not in bases

    def replace(self, bases: list[int], size: int, remove_at_ms: int) -> Segment | None:
        """Put a compacted segment in the place of those with these bases; None if they are not
        there any more.

        Its files get their own names later, when the old ones' removal is durable.
        """
        if not self._are_sealed(bases):
            return None
        at = bisect_left(self._bases, bases[0])
        until = at + len(bases)
        old = self._segments[at:until]
        end = self._bases[until]
        new = Segment(self._directory, bases[0], end=end, size=size, suffix=SWAP_SUFFIX)
        with suppress(OSError):  # for lack of room or descriptors: without it the index is believed
            new.aborted.seal_as_it_is()
        for segment in old:
            if segment in self._loaded:
                self._loaded.remove(segment)
            segment.unload()
            self._put_aside(segment, remove_at_ms)
        self._segments[at:until] = [new]
        self._bases[at:until] = [new.base]
        for base in bases[1:]:  # nobody looks for a segment that begins there any more
            self._directory.unlink(file_name(base, SNAPSHOT_SUFFIX))
        return new

    def close(self) -> None:
        """Retired segments stay: the next start finds them below the log's start."""
        if self._swap is not None:
            self._swap.leave()
        aside = [segment for _, segment in self._aside]
        for segment in [*aside, *self._retired, *self._segments]:
            segment.close()


def make_segment(directory: Directory, base: int, suffix: str = "") -> Segment:
    """An empty segment with an empty log file: its name alone says where the log ends."""
    segment = Segment(directory, base, end=base, size=0, suffix=suffix)
    if segment.file.size:
        segment.file.truncate(0)
    return segment


def remove_segment(directory: Directory, base: int) -> None:
    # The log file goes last: without it the others would be taken for rubbish, not the reverse.
    for suffix in reversed(SEGMENT_SUFFIXES):
        directory.unlink(file_name(base, suffix))


def suffix_aside(directory: Directory, base: int) -> str:
    """Kafka's suffix of files on their way out; another one while some file is called that.

    Two segments of one base may be on their way out at one time, and both be read from.
    """
    name, number = file_name(base, LOG_SUFFIX), 0
    suffix = DELETED_SUFFIX
    while directory.exists(name + suffix):
        number += 1
        suffix = f".{number}{DELETED_SUFFIX}"
    return suffix
