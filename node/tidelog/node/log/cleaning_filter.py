"""What of one batch outlives compaction: all, some of its records, its header only, or nothing.

A batch whose records nobody can read stays byte for byte, and so does every tombstone behind it:
its keys are unknown, and one of them may have been deleted by such a tombstone.
(docs/decisions/0003-compaction.md)
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, repeat
from operator import ge
from typing import Final, NamedTuple

from tidelog.kernel.files import Bytes
from tidelog.kernel.limits import REQUEST_BYTES_MAX, SEGMENT_BYTES_MAX
from tidelog.node.log.cleaning_records import (
    Columns,
    is_tombstone,
    largest_stamp,
    moved,
    take_apart,
)
from tidelog.node.log.cleaning_transactions import Transactions
from tidelog.wire.codecs import Codec
from tidelog.wire.codecs import compress as compressed
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    TRANSACTIONAL_BIT,
    BatchHeader,
    records_of,
    seal,
)

_EMPTY_KEEPS: Final = APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_TIMESTAMP_MAX: Final = 2**63 - 1
_NO_KIND: Final = b""
"""Stands for the key of a control batch that cannot be read."""


class Kept(NamedTuple):
    """A batch of the new segment."""

    batch: Bytes
    header: BatchHeader


class Rules(NamedTuple):
    """What one pass knows besides the batches."""

    now_ms: int
    horizon_ms: int
    """The delete horizon of tombstones and empty markers that have none yet."""
    producers: Mapping[int, tuple[int, int]]
    round_end: int
    log_start: int


class Filter:
    """Decides batch by batch, in order of offset, for one pass."""

    def __init__(
        self,
        last_offset_of: Callable[[bytes | None, int], int],
        transactions: Transactions,
        rules: Rules,
    ) -> None:
        self._last_offset_of = last_offset_of
        self._transactions = transactions
        self._rules = rules
        self.unreadable = 0
        """How many batches without readable records this pass has met so far."""
        self._room = 0
        """By how many bytes the segment that is written may still outgrow its sources."""

    def begin_segment(self, source_bytes: int) -> None:
        """A new segment is written from sources of that size."""
        self._room = SEGMENT_BYTES_MAX - source_bytes

    def keep(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """What stays of a batch; None where nothing does."""
        kept = self._keep(header, batch)
        self._room += len(batch) - (0 if kept is None else len(kept.batch))
        return kept

    def _keep(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        if header.is_control:
            return self._keep_marker(header, batch)
        if self._transactions.discards_data(header) or not header.record_count:
            return self._empty(header)
        columns = columns_of(header, batch)
        if columns is None:
            return self._keep_unreadable(header, batch)
        last = map(self._last_offset_of, columns.keys, repeat(-1))
        mask = [*map(ge, columns.offsets(header.base_offset), last)]
        if columns.any_tombstone and True in mask:
            return self._keep_some_with_tombstones(header, batch, columns, mask)
        return self._keep_some(header, batch, columns, mask)

    def _keep_some(
        self, header: BatchHeader, batch: memoryview, columns: Columns, mask: Sequence[bool]
    ) -> Kept | None:
        if False not in mask:
            return Kept(batch, header)
        if True not in mask:
            return self._empty(header)
        return self._fitting(header, batch, rebuilt(header, [*compress(columns.pieces(), mask)]))

    def _keep_unreadable(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        if header.next_offset <= self._rules.log_start:
            return self._empty(header)  # its records were deleted
        self.unreadable += 1
        return Kept(batch, header)

    def pass_by(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch that stays as it is, but belongs to its transaction."""
        if header.is_control:
            self._transactions.discards_marker(header, marker_key(header, batch))
        else:
            self._transactions.discards_data(header)

    def _keep_some_with_tombstones(
        self, header: BatchHeader, batch: memoryview, columns: Columns, mask: Sequence[bool]
    ) -> Kept | None:
        pieces = [*compress(columns.pieces(), mask)]
        if not self.unreadable and any(map(is_tombstone, pieces)):
            if not header.attributes & DELETE_HORIZON_BIT:
                stamped = self._with_horizon(header, pieces)
                return stamped or self._rest(header, batch, pieces)
            if self._rules.now_ms >= header.base_timestamp:
                pieces = [piece for piece in pieces if not is_tombstone(piece)]
        return self._rest(header, batch, pieces)

    def _rest(self, header: BatchHeader, batch: memoryview, pieces: Sequence[bytes]) -> Kept | None:
        """The batch with the pieces that are left of it."""
        if len(pieces) == header.record_count:
            return Kept(batch, header)
        if not pieces:
            return self._empty(header)
        return self._fitting(header, batch, rebuilt(header, pieces))

    def _with_horizon(self, header: BatchHeader, pieces: Sequence[bytes]) -> Kept | None:
        """None if it cannot be given one: then its tombstones stay, in the batch as it is."""
        return with_horizon(header, pieces, self._rules.horizon_ms, header.size_bytes + self._room)

    def _fitting(self, header: BatchHeader, batch: memoryview, made: Kept) -> Kept:
        """What was made of a batch, unless it outgrew the segment by other compression."""
        fits = len(made.batch) <= min(len(batch) + self._room, REQUEST_BYTES_MAX)
        return made if fits else Kept(batch, header)

    def _keep_marker(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        if not self._transactions.discards_marker(header, marker_key(header, batch)):
            return Kept(batch, header)
        if not header.record_count:
            return self._empty(header)
        if not header.attributes & DELETE_HORIZON_BIT:
            pieces = take_apart(records_of(header, batch), header.record_count).pieces()
            return self._with_horizon(header, pieces) or Kept(batch, header)
        if self._rules.now_ms < header.base_timestamp:
            return Kept(batch, header)
        return self._empty(header)

    def _empty(self, header: BatchHeader) -> Kept | None:
        """The header alone, where it must stay: for its producer, or for the end of the round."""
        if self._is_last_of_producer(header) or header.next_offset == self._rules.round_end:
            return emptied(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether it carries the last sequence of a producer that is still known, or its epoch."""
        known = self._rules.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch


def rebuilt(header: BatchHeader, pieces: Sequence[bytes]) -> Kept:
    """The batch with these of its records."""
    return _made(header._replace(max_timestamp=_largest_stamp(header, pieces)), pieces)


def with_horizon(
    header: BatchHeader, pieces: Sequence[bytes], horizon_ms: int, bytes_max: int
) -> Kept | None:
    """As `rebuilt`, with a delete horizon; None if a number or the size would be too large.

    The horizon takes the place of the base timestamp, so the records' own are moved.
    """
    if horizon_ms > _TIMESTAMP_MAX:
        return None
    shifted = moved(pieces, horizon_ms - header.base_timestamp)
    if shifted is None:
        return None
    stamped = header._replace(
        attributes=header.attributes | DELETE_HORIZON_BIT,
        base_timestamp=horizon_ms,
        max_timestamp=_largest_stamp(header, pieces),
    )
    made = _made(stamped, shifted)
    return made if len(made.batch) <= min(bytes_max, REQUEST_BYTES_MAX) else None


def _largest_stamp(header: BatchHeader, pieces: Sequence[bytes]) -> int:
    if header.is_append_time or len(pieces) == header.record_count:
        return header.max_timestamp
    return largest_stamp(pieces, header.base_timestamp, header.max_timestamp)


def _made(header: BatchHeader, pieces: Sequence[bytes]) -> Kept:
    body: Bytes = b"".join(pieces)
    codec = header.attributes & CODEC_MASK
    if codec:
        body = compressed(Codec(codec), body)
    length = BATCH_LENGTH_MIN + len(body)
    return _sealed(header._replace(batch_length=length, record_count=len(pieces)), body)


def emptied(header: BatchHeader) -> Kept:
    """The header of a batch without records: offsets, producer, epoch and sequence stay."""
    bare = header._replace(
        batch_length=BATCH_LENGTH_MIN,
        attributes=header.attributes & _EMPTY_KEEPS,
        base_timestamp=header.max_timestamp,
        record_count=0,
    )
    return _sealed(bare, b"")


def _sealed(header: BatchHeader, body: Bytes) -> Kept:
    batch = bytearray(HEADER.pack(*header))
    batch += body
    return Kept(batch, header._replace(crc=seal(batch)))


def columns_of(header: BatchHeader, batch: memoryview) -> Columns | None:
    """The records of a batch; None if they cannot be read, or claim offsets outside of it.

    Topics that are not compacted take batches without a look at their records, so there may be
    anything in them.
    """
    try:
        columns = take_apart(records_of(header, batch), header.record_count)
    except (WireError, Rejected):
        return None
    return columns if columns.lie_below(header.last_offset_delta + 1) else None


def marker_key(header: BatchHeader, batch: memoryview) -> bytes | None:
    """The key of a control batch's one record; None of an emptied one."""
    if header.record_count <= 0:
        return None
    columns = columns_of(header, batch)
    return _NO_KIND if columns is None else columns.keys[0]
