"""Rows out of nothing: numbered values and drawn keys, all rows of a batch at a time.

A value begins with its number in sixteen hexadecimal digits, so that whoever reads it knows which
row it is; what follows is drawn. Equal seeds give equal rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.kernel.limits import MIB
from tidelog.spark.partitions import partitions_of

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

NUMBER_DIGITS: Final = 16
PRODUCER_SHIFT: Final = 40
"""A row's number: who wrote it, and above 2**40 rows of one nobody counts."""
BATCH_BYTES: Final = 4 * MIB
ROWS_MAX: Final = 1 << 16
KEYS_MAX: Final = 10_000_000
_KEY_DIGITS: Final = 8
_ALPHABET: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .", dtype=np.uint8
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows look like."""

    size: int
    keys: int = 0
    """How many there are; none where 0."""
    skew: float = 0.0
    """The key of rank r is drawn in proportion to r ** -skew."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """One batch, and the numbers of its rows."""

    batch: Any
    numbers: Numbers


class Generator:
    """One task's rows."""

    def __init__(self, shape: Shape, producer: int, partitions: int) -> None:
        self._shape = shape
        self._random = np.random.default_rng([shape.seed, producer])
        self._base = producer << PRODUCER_SHIFT
        self._pool = self._filler(BATCH_BYTES + shape.size)
        self._keys = Keys(shape, partitions) if shape.keys else None

    def rows(self, count: int, at_once: int = ROWS_MAX) -> Iterator[Rows]:
        """So many, in batches of a size that suits encoders, or fewer rows where that is asked."""
        step = max(1, min(at_once, ROWS_MAX, BATCH_BYTES // self._shape.size))
        for start in range(0, count, step):
            numbers = self._base + np.arange(start, min(count, start + step), dtype=np.int64)
            yield Rows(self._batch(numbers), numbers)

    def _batch(self, numbers: Numbers) -> Any:  # noqa: ANN401 -- a RecordBatch
        columns = {"value": self._values(numbers)}
        if self._keys is not None:
            drawn = self._keys.draw(self._random, len(numbers))
            columns["key"] = self._keys.texts(drawn)
            columns["partition"] = pa.array(self._keys.partitions[drawn])
        return pa.RecordBatch.from_pydict(columns)

    def _values(self, numbers: Numbers) -> Any:  # noqa: ANN401 -- a pyarrow.Array
        rows, size = len(numbers), self._shape.size
        start = int(self._random.integers(0, len(self._pool) - rows * size + 1))
        values = self._pool[start : start + rows * size].reshape(rows, size).copy()
        shown = min(size, NUMBER_DIGITS)
        values[:, :shown] = hexadecimal(numbers)[:, NUMBER_DIGITS - shown :]
        return fixed(values)

    def _filler(self, count: int) -> Bytes:
        return _ALPHABET[self._random.integers(0, len(_ALPHABET), count, dtype=np.uint8)]


class Keys:
    """The keys `00000000` and on, each with its partition."""

    def __init__(self, shape: Shape, partitions: int) -> None:
        self._count = shape.keys
        ranks = np.arange(1, shape.keys + 1, dtype=np.float64)
        # In float64 the last one may come out below 1: a draw beyond it is the last key's.
        shares = ranks**-shape.skew if shape.skew else None
        self._edges = None if shares is None else np.cumsum(shares) / shares.sum()
        self.partitions = partitions_of(
            self.texts(np.arange(shape.keys, dtype=np.int64)), partitions
        )

    def draw(self, random: np.random.Generator, rows: int) -> Numbers:
        """Which key each row has."""
        if self._edges is None:
            return random.integers(0, self._count, rows)
        found = np.searchsorted(self._edges, random.random(rows))
        return np.minimum(found, self._count - 1)

    def texts(self, drawn: Numbers) -> Any:  # noqa: ANN401 -- a pyarrow.Array
        return fixed(np.ascontiguousarray(hexadecimal(drawn)[:, NUMBER_DIGITS - _KEY_DIGITS :]))


def _quads() -> npt.NDArray[np.uint32]:
    """Four digits of each number of sixteen bits, as they lie in memory."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    numbers = np.arange(1 << 16)
    texts = np.stack([digits[numbers >> shift & 15] for shift in (12, 8, 4, 0)], axis=1)
    return np.ascontiguousarray(texts).view(np.uint32)[:, 0]


_QUADS: Final = _quads()


def hexadecimal(numbers: Numbers) -> Bytes:
    """
    >>> bytes(hexadecimal(np.array([255]))[0])
    b'00000000000000ff'
    """
    quads = np.stack([_QUADS[numbers >> shift & 0xFFFF] for shift in (48, 32, 16, 0)], axis=1)
    return quads.view(np.uint8)


def fixed(rows: Bytes) -> Any:  # noqa: ANN401 -- a pyarrow.Array
    """Rows of one length as a binary array."""
    count, size = rows.shape
    edges = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(rows)]
    )
