"""Rows of a partition straight from its segment files, where they lie on this machine.

No broker is asked, and a stopped cluster can be read. Whatever is not beyond doubt raises
`DoubtError`, with the offset from which on the caller should fetch instead. Files are read, not
mapped: a file that is cut while it is mapped would end the process.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.clients.failures import ClientError
from tidelog.clients.settings import Isolation
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import TopicPartition, Uuid
from tidelog.kernel.limits import MIB, REQUEST_BYTES_MAX
from tidelog.spark.columns import Columns
from tidelog.spark.decoder import ROWS_PER_BATCH, BadBatchError, Decoder
from tidelog.spark.markers import Stretch, headers, missing_end
from tidelog.spark.replicas import Replica, replicas_of, same_topic
from tidelog.wire.errors import WireError
from tidelog.wire.log_files import (
    LOG_SUFFIX,
    OFFSET_ENTRY_BYTES,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    Aborted,
    decode_aborted,
    file_name,
    offsets_with_suffix,
    read_offset_entries,
)
from tidelog.wire.records import HEADER_BYTES, MAGIC, read_header

_PIECE_BYTES: Final = 8 * MIB
_TRIES: Final = 5
"""Compaction and retention may change a folder while it is looked at; not each time."""


_END_OF_ALL: Final = 2**63 - 1


class DoubtError(ClientError):
    """The files are not beyond doubt from `next_offset` on: fetch from there."""

    def __init__(self, partition: TopicPartition, next_offset: int, reason: str) -> None:
        super().__init__(
            f"topic {partition[0]!r} partition {partition[1]}: its files are of no use from offset "
            f"{next_offset} on: {reason}"
        )
        self.partition = partition
        self.next_offset = next_offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Span:
    """What is wanted. `end` is no more than the leader, or `bounds`, called readable."""

    partition: TopicPartition
    first: int
    end: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    leader: int | None = None
    """The broker that named `end`: it has all up to there in its files."""
    topic_id: Uuid | None = None


@dataclass(frozen=True, slots=True)
class _Segment:
    base: int
    descriptor: int


@dataclass(frozen=True, slots=True)
class _Opened:
    """Segments that were there together: what is opened stays readable when it is deleted."""

    segments: tuple[_Segment, ...]
    aborted: tuple[Aborted, ...]
    position: int
    """In the first segment: a batch begins there, and none before it is wanted."""


class SegmentReader:
    """One span of one partition; all rows below `next_offset` were given."""

    def __init__(
        self,
        places: Sequence[Path],
        span: Span,
        columns: Columns,
        *,
        rows_per_batch: int = ROWS_PER_BATCH,
    ) -> None:
        self._places = places
        self._span = span
        self._decoder = Decoder(
            span.partition,
            columns,
            first=span.first,
            end=span.end,
            isolation=span.isolation,
            rows_per_batch=rows_per_batch,
        )

    @property
    def next_offset(self) -> int:
        return self._decoder.next_offset

    def batches(self) -> Iterator[Any]:
        """Arrow's RecordBatches up to the span's end, or DoubtError: what came before it counts."""
        if self._decoder.finished:
            return
        with ExitStack() as closing:
            replica, opened = self._open(closing)
            try:
                for segment, behind in _with_next(opened.segments):
                    at = opened.position if segment is opened.segments[0] else 0
                    yield from self._segment(segment, at, opened.aborted)
                    self._look_for_a_hole(replica, min(behind, self._span.end))
            except (BadBatchError, OSError) as failure:
                raise self._doubt(str(failure)) from failure

    def _open(self, closing: ExitStack) -> tuple[Replica, _Opened]:
        """The first replica that is beyond doubt; the leader's is asked first."""
        span = self._span
        known = [
            one
            for one in replicas_of(self._places, span.partition)
            if same_topic(one, span.topic_id)
            and (one.committed >= span.end or one.broker == span.leader)
        ]
        doubt = self._doubt(f"no replica here is known to hold what is committed up to {span.end}")
        for replica in sorted(known, key=lambda one: (one.broker != span.leader, -one.committed)):
            try:
                return replica, self._open_replica(replica, closing)
            except DoubtError as failure:
                doubt = failure
        raise doubt

    def _open_replica(self, replica: Replica, closing: ExitStack) -> _Opened:
        for _ in range(_TRIES):
            with ExitStack() as trying:
                try:
                    opened = self._open_files(replica, trying)
                except (FileNotFoundError, CorruptError):
                    continue
                if opened is not None:
                    closing.push(trying.pop_all())
                    return opened
        raise self._doubt(f"{replica.folder} changes all the time")

    def _open_files(self, replica: Replica, trying: ExitStack) -> _Opened | None:
        """None where the folder was another when all were opened than when it was listed."""
        folder, span = replica.folder, self._span
        bases = self._bases(replica)
        wanted = [base for base in bases if base < span.end]
        segments = []
        for base in wanted:
            descriptor = os.open(folder / file_name(base, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
            trying.callback(os.close, descriptor)
            segments.append(_Segment(base, descriptor))
        position = _position(folder, segments[0], span.first)
        aborted: tuple[Aborted, ...] = ()
        if span.isolation is Isolation.READ_COMMITTED:
            aborted = self._aborted(Stretch(folder, bases, position, span.first, span.end))
        if [base for base in self._bases(replica) if base < span.end] != wanted:
            return None
        if not all(_is_same(folder, segment) for segment in segments):
            return None
        return _Opened(tuple(segments), aborted, position)

    def _aborted(self, stretch: Stretch) -> tuple[Aborted, ...]:
        """By the segments of their markers, for those may be far behind."""
        found = tuple(one for base in stretch.bases for one in _aborted(stretch.folder, base))
        try:
            reason = missing_end(stretch, found)
        except WireError as failure:
            reason = str(failure)
        if reason is not None:
            raise self._doubt(f"{stretch.folder}: {reason}")
        return found

    def _bases(self, replica: Replica) -> list[int]:
        """Of the segment that holds the first offset, and of all behind it."""
        names = [path.name for path in replica.folder.iterdir()]
        if any(name.endswith(SWAP_SUFFIX) for name in names):
            raise self._doubt("a compaction is about to put a segment in others' place")
        bases = sorted(offsets_with_suffix(names, LOG_SUFFIX))
        at = bisect_right(bases, self._span.first)
        if at == 0:
            raise self._doubt(f"{replica.folder} begins at {bases[0] if bases else 'no offset'}")
        return bases[at - 1 :]

    def _segment(
        self, segment: _Segment, position: int, aborted: Sequence[Aborted]
    ) -> Iterator[Any]:
        """Piece by piece; of the aborted transactions those that a fetch would be told of."""
        decoder, size = self._decoder, _PIECE_BYTES
        while not decoder.finished:
            piece = os.pread(segment.descriptor, size, position)
            hidden = [
                (one.producer_id, one.first_offset)
                for one in aborted
                if one.last_offset >= decoder.next_offset
            ]
            yield from decoder.decode(piece, hidden)
            position += decoder.whole_bytes
            if decoder.whole_bytes:
                continue
            if len(piece) < size or size > REQUEST_BYTES_MAX:
                return
            size *= 2  # one batch is larger

    def _look_for_a_hole(self, replica: Replica, behind: int) -> None:
        """A segment ends where the next one begins, unless compaction took what stood between."""
        decoder = self._decoder
        if decoder.next_offset >= behind:
            return
        if not replica.may_have_holes:
            raise self._doubt(f"{replica.folder} has nothing from there up to {behind}")
        if behind == self._span.end:
            decoder.next_offset = behind

    def _doubt(self, reason: str) -> DoubtError:
        return DoubtError(self._span.partition, self._decoder.next_offset, reason)


def _with_next(segments: Sequence[_Segment]) -> Iterator[tuple[_Segment, int]]:
    """Each with where the next one begins."""
    bases = [*(one.base for one in segments[1:]), _END_OF_ALL]
    yield from zip(segments, bases, strict=True)


def _is_same(folder: Path, segment: _Segment) -> bool:
    """Whether the name still is that of the file that was opened."""
    found = (folder / file_name(segment.base, LOG_SUFFIX)).stat()
    opened = os.fstat(segment.descriptor)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _position(folder: Path, segment: _Segment, first: int) -> int:
    """Where to begin to look for an offset; 0 where the index does not know, or is not right."""
    try:
        content = (folder / file_name(segment.base, OFFSET_INDEX_SUFFIX)).read_bytes()
    except FileNotFoundError:
        return 0  # that of the segment that is being written is in its broker's memory
    whole = len(content) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
    lasts, positions = read_offset_entries(content[:whole])
    at = bisect_right(lasts, first - segment.base) - 1
    if at < 0 or lasts[at] > first - segment.base:
        return 0
    head = os.pread(segment.descriptor, HEADER_BYTES, positions[at])
    if len(head) < HEADER_BYTES:
        return 0
    header = read_header(head)
    is_there = header.magic == MAGIC and header.last_offset == segment.base + lasts[at]
    return positions[at] if is_there else 0


def _aborted(folder: Path, base: int) -> list[Aborted]:
    """By the marker's segment; no file, nothing was aborted."""
    path = folder / file_name(base, TXN_INDEX_SUFFIX)
    return decode_aborted(path.read_bytes(), place=str(path)) if path.is_file() else []


def bounds(
    places: Sequence[Path],
    partition: TopicPartition,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> tuple[int, int]:
    """What can be read of a stopped cluster: from the first offset up to what its brokers last
    wrote down as committed. DoubtError where no replica is here, or its files cannot be read.
    """
    found = replicas_of(places, partition)
    if not found:
        raise DoubtError(partition, 0, "no folder of it is here")
    best = max(found, key=lambda one: one.committed)
    if isolation is Isolation.READ_UNCOMMITTED:
        return best.start, best.committed
    try:
        return best.start, _last_stable_offset(best)
    except (OSError, WireError) as failure:
        raise DoubtError(partition, best.start, str(failure)) from failure


def _last_stable_offset(replica: Replica) -> int:
    """Where the first transaction begins that is not decided below the high watermark; or the log
    itself, where what began it was deleted."""
    begun: dict[int, int] = {}
    names = [path.name for path in replica.folder.iterdir()]
    for base in sorted(offsets_with_suffix(names, LOG_SUFFIX)):
        with (replica.folder / file_name(base, LOG_SUFFIX)).open("rb", buffering=0) as file:
            for _, header in headers(file):
                if header.base_offset >= replica.committed:
                    break
                if header.is_control:
                    begun.pop(header.producer_id, None)
                elif header.is_transactional:
                    begun.setdefault(header.producer_id, header.base_offset)
    return max(replica.start, min(begun.values(), default=replica.committed))
