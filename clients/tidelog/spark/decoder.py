"""From fetched record batches to Arrow, many of them at a time.

Python looks at each batch's header and its CRC; what is in the batches it sees by the column only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tidelog.clients.consumer.reading import Hidden
from tidelog.clients.failures import ClientError
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.limits import DECOMPRESSED_BATCH_BYTES_MAX
from tidelog.spark.columns import Column, Columns
from tidelog.spark.fields import Fields, read_fields
from tidelog.spark.gather import Array, gather, gather_headers, timestamps
from tidelog.spark.varints import Bytes, Numbers
from tidelog.spark.walk import RECORD_BYTES_MIN, Chains, walk
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.messages.k01_fetch import AbortedTransaction
from tidelog.wire.records import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    NO_TIMESTAMP_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    iterate_batches,
    iterate_records,
    read_header,
    records_of,
)

ROWS_PER_BATCH: Final = 10_000
_KINDS: Final = ("i8", "i4", "i4", "i1", "u4", "i2", "i4", "i8", "i8", "i8", "i2", "i4", "i4")
_HEADER: Final = np.dtype(list(zip(BatchHeader._fields, map(">{}".format, _KINDS), strict=True)))
"""As `HEADER` reads it."""
assert _HEADER.itemsize == HEADER.size
_ROWS_AT_ONCE: Final = 1 << 16
"""Enough batches at a time that the cost of each numpy call is spread, few enough for the cache."""
_BYTES_AT_ONCE: Final = DECOMPRESSED_BATCH_BYTES_MAX
_OF_TRANSACTIONS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_OUT_OF_ORDER: Final = "its offsets are out of order"
_BYTES_IN_PLACE_MAX: Final = 1 << 30
"""Arrow's offsets have 32 bits; what lies between batches that are seen may be more than those."""
MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
"""Spark counts microseconds in 64 bits; what a record can say is a thousand times more."""


class BadBatchError(ClientError):
    """A batch that lies; `offset` is its first, from where on nothing of its partition was read."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(
            f"topic {partition[0]!r} partition {partition[1]}: the batch at offset {offset} "
            f"cannot be read: {reason}"
        )
        self.partition = partition
        self.offset = offset
        self.reason = reason


@dataclass(slots=True)
class _Group:
    """Whole batches that are decoded together, in order. Nothing is kept of one but numbers, unless
    it was compressed: small batches are many, and each object of theirs would be counted."""

    view: memoryview
    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    unpacked: dict[int, bytes] = field(default_factory=dict)
    """The records of those that were compressed, by their number in the group."""
    rows: int = 0
    size_bytes: int = 0

    def add(self, count: int, position: int, size: int, body: bytes | None) -> None:
        if body is not None:
            self.unpacked[len(self.positions)] = body
            self.size_bytes += len(body)
        self.positions.append(position)
        self.sizes.append(size)
        self.rows += count
        self.size_bytes += size

    @property
    def is_full(self) -> bool:
        return self.rows >= _ROWS_AT_ONCE or self.size_bytes >= _BYTES_AT_ONCE

    def batch(self, number: int) -> memoryview:
        at = self.positions[number]
        return self.view[at : at + self.sizes[number]]

    def headers(self) -> "_Headers":
        heads = sliding_window_view(np.frombuffer(self.view, dtype=np.uint8), HEADER_BYTES)
        return _Headers(heads[self.positions].view(_HEADER)[:, 0])

    def records(self) -> tuple[Bytes, Numbers, Numbers]:
        """The data that holds all records, and where each batch's begin and end in it."""
        sizes = np.array(self.sizes, dtype=np.int64)
        low, high = self.positions[0], self.positions[-1] + self.sizes[-1]
        if not self.unpacked and high - low <= _BYTES_IN_PLACE_MAX:
            starts = np.array(self.positions, dtype=np.int64) - low
            data = np.frombuffer(self.view[low:high], dtype=np.uint8)
            return data, starts + HEADER_BYTES, starts + sizes
        bodies = [
            self.unpacked.get(number, self.batch(number)[HEADER_BYTES:])
            for number in range(len(sizes))
        ]
        stops = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        data = np.frombuffer(b"".join(bodies), dtype=np.uint8)
        return data, np.append(0, stops[:-1]), stops


@dataclass(frozen=True, slots=True)
class _Headers:
    """The headers of a group's batches, by the column."""

    rows: NDArray[np.void]

    def column(self, name: str) -> Numbers:
        return self.rows[name].astype(np.int64)

    @property
    def is_append_time(self) -> Numbers:
        return (self.column("attributes") & APPEND_TIME_BIT) // APPEND_TIME_BIT

    @property
    def timestamp_types(self) -> Numbers:
        """0: the producer's time, 1: the broker's, -1: none, as in message format 0."""
        has_none = (self.column("attributes") & NO_TIMESTAMP_BIT).astype(np.bool_)
        return np.where(has_none, -1, self.is_append_time)


class Decoder:
    """One partition's records from one offset to another, fed as they are fetched.

    Invariant: every record below `next_offset` and none from there on was given, apart from those
    that a reader does not see: control batches, and what was aborted under read_committed.
    """

    def __init__(
        self,
        partition: TopicPartition,
        columns: Columns,
        *,
        first: int,
        end: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        rows_per_batch: int = ROWS_PER_BATCH,
    ) -> None:
        assert rows_per_batch > 0, rows_per_batch
        self.partition = partition
        self.next_offset = first
        """Where to fetch on."""
        self._seen = first
        self.whole_bytes = 0
        """How much of what was fed last were whole batches: what follows must be fed again."""
        self._columns = columns
        self._end = end
        self._isolation = isolation
        self._rows_per_batch = rows_per_batch
        self._schema = columns.schema()
        self._constants: dict[Column, Array] = {}

    @property
    def finished(self) -> bool:
        return self.next_offset >= self._end

    def feed(
        self, data: bytes | bytearray | memoryview, aborted: Sequence[tuple[int, int]] = ()
    ) -> list[Any]:
        """The rows of all whole batches, as Arrow's RecordBatch; none of them refers to `data`.

        `aborted` are the (producer id, first offset) that the fetch answer gives beside the data.
        """
        return list(self.decode(data, aborted))

    def decode(
        self, data: bytes | bytearray | memoryview, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Any]:
        """As `feed`, not all of them at once: `next_offset` follows what was given."""
        view = memoryview(data)
        group = _Group(view)
        first = self._seen = self.next_offset
        for header, batch in self._visible(view, aborted):
            count, size = header.record_count, len(batch)
            body = self._unpacked(header, batch) if header.attributes & CODEC_MASK else None
            room = size - HEADER_BYTES if body is None else len(body)
            if not 0 <= count * RECORD_BYTES_MIN <= room:
                reason = f"{room} bytes do not hold {count} records"
                raise self._bad(header.base_offset, reason)
            group.add(count, self.whole_bytes - size, size, body)
            if group.is_full:
                yield from self._rows(group, first)
                self.next_offset = header.next_offset
                group = _Group(view)
        if group.positions:
            yield from self._rows(group, first)
        self.next_offset = self._seen

    def _visible(
        self, view: memoryview, aborted: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Batches whose records a reader sees, in whole or in part."""
        hidden = self._hidden(aborted)
        try:
            for header, batch in self._in_order(view):
                behind = header.base_offset + header.last_offset_delta + 1
                if behind <= self._seen:
                    hidden.pass_by(header, batch)
                    continue
                if not check_crc(batch):
                    raise self._bad(header.base_offset, "its CRC is wrong")
                # What was aborted hides only batches of transactions: the others need no look.
                if not header.attributes & _OF_TRANSACTIONS or hidden.shows(header, batch):
                    yield header, batch
                self._seen = behind
        except (WireError, Rejected) as failure:
            raise self._bad(self._seen, str(failure)) from None

    def _hidden(self, aborted: Sequence[tuple[int, int]]) -> Hidden:
        if self._isolation is Isolation.READ_UNCOMMITTED:
            return Hidden(())
        return Hidden([AbortedTransaction(producer_id=who, first_offset=at) for who, at in aborted])

    def _in_order(self, view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches up to the end that is wanted, each behind the one before."""
        behind = self.whole_bytes = 0
        for header, batch in iterate_batches(view):
            self.whole_bytes += len(batch)
            if header.base_offset < behind or header.last_offset_delta < 0:
                raise self._bad(header.base_offset, _OUT_OF_ORDER)
            behind = header.base_offset + header.last_offset_delta + 1
            if header.base_offset >= self._end:
                self._seen = max(self._seen, self._end)
                return
            yield header, batch

    def _unpacked(self, header: BatchHeader, batch: memoryview) -> bytes:
        try:
            return records_of(header, batch)
        except (WireError, Rejected) as failure:
            raise self._bad(header.base_offset, str(failure)) from None

    def _bad(self, offset: int, reason: str) -> BadBatchError:
        return BadBatchError(self.partition, offset, reason)

    def _rows(self, group: _Group, first: int) -> Iterator[Any]:
        """The records of a group, from the first offset that is wanted to the last."""
        headers = group.headers()
        data, starts, stops = group.records()
        counts = headers.column("record_count")
        walked = walk(data, Chains(starts, stops, counts))
        if walked.broken.size:
            raise self._liar(group, int(walked.broken[0]))
        if not group.rows:
            return
        behind = np.append(walked.starts[1:], 0)
        has_rows = counts > 0
        behind[np.cumsum(counts)[has_rows] - 1] = stops[has_rows]
        fields = read_fields(data, walked.starts, behind)
        offsets = self._offsets(group, headers, fields)
        table = self._table(data, headers, fields, offsets)
        low = int(np.searchsorted(offsets, first))
        high = int(np.searchsorted(offsets, self._end))
        for at in range(low, high, self._rows_per_batch):
            yield table.slice(at, min(self._rows_per_batch, high - at))

    def _offsets(self, group: _Group, headers: _Headers, fields: Fields) -> Numbers:
        """Each record's offset: they grow, and stay within their batch."""
        deltas, counts = fields.offset_deltas, headers.column("record_count")
        lasts = np.repeat(headers.column("last_offset_delta"), counts)
        offsets = np.repeat(headers.column("base_offset"), counts) + deltas
        broken = fields.broken | (deltas < 0) | (deltas > lasts)
        broken[1:] |= offsets[1:] <= offsets[:-1]
        if broken.any():
            row = int(broken.argmax())
            chain = int(np.searchsorted(np.cumsum(counts), row, side="right"))
            raise self._liar(group, chain)
        return offsets

    def _liar(self, group: _Group, chain: int) -> BadBatchError:
        """What is wrong with it: the plain reader knows the place."""
        header = read_header(group.batch(chain))
        try:
            for _ in iterate_records(group.batch(chain)):
                pass
        except (WireError, Rejected) as failure:
            return self._bad(header.base_offset, str(failure))
        return self._bad(header.base_offset, _OUT_OF_ORDER)

    def _table(self, data: Bytes, headers: _Headers, fields: Fields, offsets: Numbers) -> Any:  # noqa: ANN401 -- a RecordBatch
        arrays = []
        for column in self._columns.wanted:
            match column:
                case Column.KEY:
                    arrays.append(gather(data, fields.keys))
                case Column.VALUE:
                    arrays.append(gather(data, fields.values))
                case Column.OFFSET:
                    arrays.append(pa.array(offsets))
                case Column.TIMESTAMP:
                    arrays.append(self._timestamps(headers, fields))
                case Column.TIMESTAMP_TYPE:
                    types = headers.timestamp_types.astype(np.int32)
                    arrays.append(pa.array(np.repeat(types, headers.column("record_count"))))
                case Column.HEADERS:
                    arrays.append(gather_headers(data, fields.headers))
                case Column.TOPIC | Column.PARTITION:
                    arrays.append(self._constant(column, len(offsets)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _timestamps(self, headers: _Headers, fields: Fields) -> Array:
        counts = headers.column("record_count")
        is_append_time = headers.is_append_time.astype(np.bool_)
        latest, first = headers.column("max_timestamp"), headers.column("base_timestamp")
        deltas = np.where(np.repeat(is_append_time, counts), 0, fields.timestamp_deltas)
        bases = np.where(is_append_time, latest, first)
        stamps = np.repeat(bases, counts) + deltas
        # A sum of two that do not fit could come out small.
        if _exceed(stamps) or _exceed(deltas):
            first_offset = int(headers.column("base_offset")[0])
            raise self._bad(first_offset, "a timestamp is no microsecond of Spark's")
        return timestamps(stamps)

    def _constant(self, column: Column, rows: int) -> Array:
        """The same in each row: made once as long as it ever was, and given in part."""
        made = self._constants.get(column)
        if made is None or len(made) < rows:
            topic, partition = self.partition
            value = pa.scalar(topic) if column is Column.TOPIC else pa.scalar(partition, pa.int32())
            made = self._constants[column] = pa.repeat(value, rows)
        return made.slice(0, rows)


def _exceed(milliseconds: Numbers) -> bool:
    return bool(milliseconds.max() > MILLISECONDS_MAX or milliseconds.min() < -MILLISECONDS_MAX)
