"""What of one batch outlives compaction: all, some of its records, its header only, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, repeat
from operator import ge
from typing import Final, NamedTuple

from tidelog.kernel.files import Bytes
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


class Kept(NamedTuple):
    """A batch of the new segment."""

    batch: Bytes
    header: BatchHeader


class Filter:
    """Decides batch by batch, in order of offset, for one pass."""

    def __init__(
        self,
        last_offset_of: Callable[[bytes | None, int], int],
        transactions: Transactions,
        *,
        now_ms: int,
        horizon_ms: int,
        producers: Mapping[int, tuple[int, int]],
        round_end: int,
    ) -> None:
        self._last_offset_of = last_offset_of
        self._transactions = transactions
        self._now_ms = now_ms
        self._horizon_ms = horizon_ms
        """The delete horizon of tombstones and empty markers that have none yet."""
        self._producers = producers
        self._round_end = round_end

    def keep(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """What stays of a batch; None where nothing does."""
        if header.is_control:
            return self._keep_marker(header, batch)
        if self._transactions.discards_data(header) or not header.record_count:
            return self._empty(header)
        columns = take_apart(records_of(header, batch), header.record_count)
        last = map(self._last_offset_of, columns.keys, repeat(-1))
        mask = [*map(ge, columns.offsets(header.base_offset), last)]
        if False not in mask and not columns.any_tombstone:
            return Kept(batch, header)
        if True not in mask:
            return self._empty(header)
        if columns.any_tombstone:
            return self._keep_some_with_tombstones(header, batch, columns, mask)
        pieces = [*compress(columns.pieces(), mask)]
        return rebuilt(header, pieces, horizon_ms=-1)

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
        tombstones = [is_tombstone(piece) for piece in pieces]
        has_horizon = bool(header.attributes & DELETE_HORIZON_BIT)
        if True in tombstones and has_horizon and self._now_ms >= header.base_timestamp:
            pieces = [piece for piece, gone in zip(pieces, tombstones, strict=True) if not gone]
            return rebuilt(header, pieces, horizon_ms=-1) if pieces else self._empty(header)
        if True in tombstones and not has_horizon:
            return rebuilt(header, pieces, horizon_ms=self._horizon_ms)
        if len(pieces) == header.record_count:
            return Kept(batch, header)
        return rebuilt(header, pieces, horizon_ms=-1)

    def _keep_marker(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        if not self._transactions.discards_marker(header, marker_key(header, batch)):
            return Kept(batch, header)
        if not header.record_count:
            return self._empty(header)
        if not header.attributes & DELETE_HORIZON_BIT:
            pieces = take_apart(records_of(header, batch), header.record_count).pieces()
            return rebuilt(header, pieces, horizon_ms=self._horizon_ms)
        if self._now_ms < header.base_timestamp:
            return Kept(batch, header)
        return self._empty(header)

    def _empty(self, header: BatchHeader) -> Kept | None:
        """The header alone, where it must stay: for its producer, or for the end of the round."""
        if self._is_last_of_producer(header) or header.next_offset == self._round_end:
            return emptied(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether it carries the last sequence of a producer that is still known, or its epoch."""
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch


def rebuilt(header: BatchHeader, pieces: Sequence[bytes], *, horizon_ms: int) -> Kept:
    """The batch with these of its records; with a delete horizon where that is not negative.

    The horizon takes the place of the base timestamp, so the records' own are moved.
    """
    base, attributes = header.base_timestamp, header.attributes
    stamp = header.max_timestamp
    if not header.is_append_time and len(pieces) != header.record_count:
        stamp = largest_stamp(pieces, base, stamp)
    if horizon_ms >= 0:
        pieces = moved(pieces, horizon_ms - base)
        base, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
    body: Bytes = b"".join(pieces)
    codec = attributes & CODEC_MASK
    if codec:
        body = compressed(Codec(codec), body)
    return _sealed(
        header._replace(
            batch_length=BATCH_LENGTH_MIN + len(body),
            attributes=attributes,
            base_timestamp=base,
            max_timestamp=stamp,
            record_count=len(pieces),
        ),
        body,
    )


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


def marker_key(header: BatchHeader, batch: memoryview) -> bytes | None:
    """The key of a control batch's one record; None of an emptied one."""
    if header.record_count <= 0:
        return None
    return take_apart(records_of(header, batch), header.record_count).keys[0]
