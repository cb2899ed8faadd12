"""A fingerprint of rows, which depends neither on their order nor on their Arrow batches.

A micro-batch that is done again may have its rows in another order, after a shuffle, and in other
Arrow batches. So each row gets a hash of 64 bits, and the fingerprint is the sum of the hashes. A
cell that is null adds nothing to its row: a column that is missing counts as one of nulls, as it
does where rows are written.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.kernel.limits import KIB, MIB
from tidelog.spark.packing import edges_of
from tidelog.spark.tasks import Total

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

_WORD: Final = 8
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MODULUS: Final = 1 << 64
_TAILS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD)], dtype=np.uint64)
"""Keeps the first bytes of a word that is read beyond the end of its cell."""
_CHUNK_ROWS: Final = 1 << 13
_CHUNK_BYTES: Final = MIB
"""Of rows that are hashed at once: what they need stays in a processor's cache."""
_LONG_BYTES: Final = 2 * KIB
"""Longer cells are hashed one by one: there are few of them in a chunk."""


class Fingerprint:
    """Of all rows that were added. With `topic`, which the option of this name says, all of them
    are written there, whatever the column says."""

    def __init__(self, topic: str | None = None) -> None:
        self._topic = None if topic is None else pa.array([topic], pa.string())
        self._rows = 0
        self._sum = 0

    def add(self, rows: Any) -> None:  # noqa: ANN401 -- a RecordBatch
        """Columns as `written_columns` gives them."""
        count = rows.num_rows
        step = max(1, min(_CHUNK_ROWS, count * _CHUNK_BYTES // max(rows.nbytes, 1)))
        for at in range(0, count, step):
            hashes = _row_hashes(rows.slice(at, step), self._topic)
            self._sum += int(hashes.sum(dtype=np.uint64))
        self._sum %= _MODULUS
        self._rows += count

    @property
    def total(self) -> Total:
        return Total(self._rows, self._sum)


def _row_hashes(rows: Any, topic: Any) -> Hashes:  # noqa: ANN401 -- a RecordBatch, an array of one
    found = np.zeros(rows.num_rows, dtype=np.uint64)
    for number, (name, hashes_of) in enumerate(_COLUMNS.items(), start=1):
        if name == "topic" and topic is not None:
            found += _salted(hashes_of(topic), number)
        elif name in rows.schema.names:
            found += _salted(hashes_of(rows.column(name)), number)
    return _mixed(found + _ODD)


def _salted(cells: Hashes, number: int) -> Hashes:
    """Of one column; 0, which stands for null, stays 0."""
    return np.where(cells == 0, np.uint64(0), _mixed(cells ^ np.uint64(number)))


def _mixed(hashes: Hashes) -> Hashes:
    """Each bit of the input changes each bit of the result with even odds (splitmix64)."""
    found = hashes ^ (hashes >> np.uint64(30))
    found *= _FIRST
    found ^= found >> np.uint64(27)
    found *= _SECOND
    found ^= found >> np.uint64(31)
    return found


def _number_hashes(column: Any) -> Hashes:  # noqa: ANN401 -- a pyarrow.Array
    """Of numbers and times."""
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return _of_valid(column, _mixed(numbers.view(np.uint64) + _ODD) | np.uint64(1))


def _byte_hashes(column: Any) -> Hashes:  # noqa: ANN401 -- a pyarrow.Array
    """Of binary cells and texts."""
    edges = edges_of(column).astype(np.int64)
    starts, sizes = edges[:-1], np.diff(edges)
    data = column.buffers()[2]
    text = np.zeros(int(edges[-1] - edges[0]) + _WORD, dtype=np.uint8)
    if data is not None and len(text) > _WORD:
        text[:-_WORD] = np.frombuffer(data, dtype=np.uint8)[edges[0] : edges[-1]]
    hashes = _cell_hashes(text, starts - edges[0], sizes)
    return _of_valid(column, hashes | np.uint64(1))


def _of_valid(column: Any, hashes: Hashes) -> Hashes:  # noqa: ANN401 -- a pyarrow.Array
    """0 where the cell is null."""
    if not column.null_count:
        return hashes
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, hashes, np.uint64(0))


def _cell_hashes(text: NDArray[np.uint8], starts: Places, sizes: Places) -> Hashes:
    """Of the bytes at these places; behind the last one there are eight more."""
    hashes = _mixed(sizes.view(np.uint64) + _ODD)
    words = np.ndarray((len(text) - _WORD + 1,), np.dtype("<u8"), text.data, strides=(1,))
    is_long = sizes > _LONG_BYTES
    for row in np.flatnonzero(is_long).tolist():
        cell = text[starts[row] : starts[row] + sizes[row]].data
        hashes[row] ^= np.uint64(int.from_bytes(blake2b(cell, digest_size=_WORD).digest()))
    order = np.argsort(sizes, kind="stable")[::-1]
    order = order[np.count_nonzero(is_long) :]
    _take_words(words, starts, sizes, order, hashes)
    return hashes


def _take_words(
    words: Hashes, starts: Places, sizes: Places, order: Places, hashes: Hashes
) -> None:
    """All cells at once, word after word; `order` has the longest cell first."""
    starts, sizes, found = starts[order], sizes[order], hashes[order]
    full = sizes // _WORD
    falling = -full
    for number in range(int(full[0]) if len(full) else 0):
        count = int(np.searchsorted(falling, -number, side="left"))
        _take(found[:count], words[starts[:count] + number * _WORD])
    _take(found, words[starts + full * _WORD] & _TAILS[sizes % _WORD])
    hashes[order] = found


def _take(hashes: Hashes, words: Hashes) -> None:
    hashes ^= words
    hashes *= _ODD
    hashes ^= hashes >> np.uint64(29)


def _header_hashes(column: Any) -> Hashes:  # noqa: ANN401 -- a pyarrow.Array
    """Of lists of names and values, in their order; 0 where there are none."""
    lengths = np.asarray(column.value_lengths().fill_null(0)).astype(np.int64)
    names, values = column.flatten().flatten()
    if not len(names):
        return np.zeros(len(lengths), dtype=np.uint64)
    pairs = _mixed(_byte_hashes(names.cast(pa.binary())) ^ _FIRST)
    pairs += _mixed(_byte_hashes(values.cast(pa.binary())) ^ _SECOND)
    ends = np.cumsum(lengths)
    firsts = np.repeat(ends - lengths, lengths)
    places = (np.arange(len(pairs)) - firsts + 1).view(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(pairs + places * _ODD))])
    rows: Hashes = sums[ends] - sums[ends - lengths]
    return np.where(lengths == 0, np.uint64(0), _mixed(rows) | np.uint64(1))


_COLUMNS: Final[Mapping[str, Callable[[Any], Hashes]]] = {
    "key": _byte_hashes,
    "value": _byte_hashes,
    "topic": _byte_hashes,
    "partition": _number_hashes,
    "headers": _header_hashes,
    "timestamp": _number_hashes,
}
"""The columns that are written, each with its own salt by its place in this order."""
