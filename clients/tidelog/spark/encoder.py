"""From Arrow's columns to record batches, all rows of a call at a time."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.kernel.limits import KIB, MIB
from tidelog.spark.columns import Column
from tidelog.spark.packing import (
    Array,
    binary,
    edges_of,
    joined,
    pack_varints,
    sizes_of,
    varint_sizes,
    zigzag,
)
from tidelog.spark.varints import Numbers
from tidelog.wire.codecs import Codec, compress
from tidelog.wire.records import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PLAIN,
    Origin,
    seal,
)

BATCH_BYTES: Final = 256 * KIB
SEQUENCES: Final = 1 << 31
"""Sequence numbers of producers go round."""

_ROWS_AT_ONCE: Final = 1 << 16
_BYTES_AT_ONCE: Final = 256 * MIB


class Encoded(NamedTuple):
    """One record batch, ready to be produced; the next of its producer begins at base + rows."""

    batch: bytearray
    rows: int


class _Rows(NamedTuple):
    """Columns as they are written."""

    keys: Array
    key_sizes: Numbers
    values: Array
    value_sizes: Numbers
    tails: Array
    """The number of headers, and the headers."""
    stamps: Numbers

    @property
    def sizes(self) -> Numbers:
        """Of each row's variable parts."""
        key, value = np.maximum(self.key_sizes, 0), np.maximum(self.value_sizes, 0)
        lengths = varint_sizes(zigzag(self.key_sizes)) + varint_sizes(zigzag(self.value_sizes))
        sizes: Numbers = key + value + lengths + np.diff(edges_of(self.tails))
        return sizes


class Encoder:
    """Rows of one partition to batches, in order."""

    def __init__(self, codec: Codec = Codec.NONE, *, batch_bytes: int = BATCH_BYTES) -> None:
        self._codec = codec
        self._body_bytes_max = batch_bytes - HEADER_BYTES

    def encode(self, rows: Any, *, now_ms: int, origin: Origin = PLAIN) -> list[Encoded]:  # noqa: ANN401 -- a RecordBatch
        """Columns `value`, and `key`, `headers` and `timestamp` where they are there; what has no
        time gets `now_ms`. No batch is larger than asked for before compression, unless one record
        is. `origin` is that of the first batch: sequences of the next ones follow.
        """
        found: list[Encoded] = []
        for part in _slices(rows):
            for one in self._encode(_rows_of(part, now_ms), origin):
                found.append(one)
                origin = _following(origin, one.rows)
        return found

    def _encode(self, rows: _Rows, origin: Origin) -> Iterator[Encoded]:
        sizes = rows.sizes
        starts = self._split(rows.stamps, sizes)
        counts = np.diff(np.append(starts, len(sizes)))
        bases = rows.stamps[starts]
        deltas = rows.stamps - np.repeat(bases, counts)
        offsets = np.arange(len(sizes)) - np.repeat(starts, counts)
        lengths = 1 + varint_sizes(zigzag(deltas)) + varint_sizes(zigzag(offsets)) + sizes
        attributes = np.zeros_like(lengths)
        heads = pack_varints([lengths, attributes, deltas, offsets, rows.key_sizes])
        middles = pack_varints([rows.value_sizes])
        records = joined(heads, rows.keys, middles, rows.values, rows.tails)
        edges, text = edges_of(records), memoryview(records.buffers()[2])
        latest = np.maximum.reduceat(rows.stamps, starts).tolist()
        for start, count, base, last in zip(
            starts.tolist(), counts.tolist(), bases.tolist(), latest, strict=True
        ):
            body = text[int(edges[start]) : int(edges[start + count])]
            yield self._batch(body, count, (base, last), origin)
            origin = _following(origin, count)

    def _split(self, stamps: Numbers, sizes: Numbers) -> Numbers:
        """Where batches begin, by what each record takes at most."""
        widest = np.array([int(stamps.max()) - int(stamps.min()), len(sizes)])
        bodies = sizes + 1 + int(varint_sizes(zigzag(widest)).sum())
        ends = np.cumsum(bodies + varint_sizes(zigzag(bodies)))
        starts = [0]
        while True:
            before = int(ends[starts[-1] - 1]) if starts[-1] else 0
            stop = int(np.searchsorted(ends, before + self._body_bytes_max, side="right"))
            stop = max(stop, starts[-1] + 1)
            if stop >= len(sizes):
                return np.array(starts)
            starts.append(stop)

    def _batch(
        self, body: memoryview, count: int, times: tuple[int, int], origin: Origin
    ) -> Encoded:
        packed = body if self._codec is Codec.NONE else compress(self._codec, body)
        batch = bytearray(
            HEADER.pack(
                0,
                BATCH_LENGTH_MIN + len(packed),
                origin.leader_epoch,
                MAGIC,
                0,
                self._codec | origin.flags,
                count - 1,
                *times,
                origin.producer_id,
                origin.producer_epoch,
                origin.base_sequence,
                count,
            )
        )
        batch += packed
        seal(batch)
        return Encoded(batch, count)


def _following(origin: Origin, rows: int) -> Origin:
    if origin.base_sequence < 0:
        return origin
    return origin._replace(base_sequence=(origin.base_sequence + rows) % SEQUENCES)


def _slices(rows: Any) -> Iterator[Any]:  # noqa: ANN401 -- a RecordBatch
    """Few enough rows that their bytes fit Arrow's 32-bit offsets, and numpy's work the cache."""
    count = len(rows)
    step = min(_ROWS_AT_ONCE, max(1, count * _BYTES_AT_ONCE // max(rows.nbytes, 1)))
    for at in range(0, count, step):
        yield rows.slice(at, step)


def _rows_of(rows: Any, now_ms: int) -> _Rows:  # noqa: ANN401 -- a RecordBatch
    values = _binary_column(rows, Column.VALUE)
    keys = _binary_column(rows, Column.KEY)
    return _Rows(
        keys=keys,
        key_sizes=sizes_of(keys),
        values=values,
        value_sizes=sizes_of(values),
        tails=_tails(rows),
        stamps=_stamps(rows, now_ms),
    )


def _binary_column(rows: Any, column: Column) -> Array:  # noqa: ANN401 -- a RecordBatch
    if column not in rows.schema.names:
        return pa.nulls(len(rows), pa.binary())
    return rows.column(column.value).cast(pa.binary())


def _stamps(rows: Any, now_ms: int) -> Numbers:  # noqa: ANN401 -- a RecordBatch
    """In milliseconds, as records have them."""
    if Column.TIMESTAMP not in rows.schema.names:
        return np.full(len(rows), now_ms, dtype=np.int64)
    column = rows.column(Column.TIMESTAMP.value)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    stamps: Numbers = pc.fill_null(micros, now_ms * 1000).to_numpy() // 1000
    return stamps


def _tails(rows: Any) -> Array:  # noqa: ANN401 -- a RecordBatch
    """How many headers, and for each the sized name and the sized value."""
    if Column.HEADERS not in rows.schema.names or rows.column(
        Column.HEADERS.value
    ).null_count == len(rows):
        return binary(np.arange(len(rows) + 1, dtype=np.int32), bytes(len(rows)))
    column = rows.column(Column.HEADERS.value)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    names, values = (part.cast(pa.binary()) for part in column.flatten().flatten())
    if names.null_count:
        raise ValueError("a header has no name: column headers must have a key in each entry")
    pairs = joined(pack_varints([sizes_of(names)]), names, pack_varints([sizes_of(values)]), values)
    edges = np.append(0, np.cumsum(counts))
    whole = binary(edges_of(pairs)[edges], pairs.buffers()[2] or b"")
    return joined(pack_varints([counts]), whole)
