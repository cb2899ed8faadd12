"""Which partition each row goes to, as Java's client decides by the key, and the rows of each."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.clients.producer.partitioner import murmur2
from tidelog.spark.packing import Array, edges_of, sizes_of
from tidelog.spark.varints import Bytes, Numbers

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFF_FFFF)
_LONG_BYTES: Final = 256
"""Longer keys are hashed alone: side by side each of their words costs a step of all rows."""

NO_KEY: Final = -1

Hashes = NDArray[np.uint32]


def partitions_of(keys: Array, count: int) -> NDArray[np.int32]:
    """Of each row; `NO_KEY` where it has none, and may go anywhere."""
    assert count > 0, count
    column = keys.cast(pa.binary())
    found = ((_murmur2(column) & _POSITIVE) % np.uint32(count)).astype(np.int32)
    found[sizes_of(column) < 0] = NO_KEY
    return found


def split_by_partition(rows: Any, partitions: NDArray[np.int32]) -> dict[int, Any]:  # noqa: ANN401 -- RecordBatches
    """The rows of each partition, in their order."""
    assert len(rows) == len(partitions), (len(rows), len(partitions))
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    if len(numbers) == 1:
        return {int(numbers[0]): rows}
    sorted_rows = rows.take(pa.array(order))
    stops = [*starts[1:].tolist(), len(rows)]
    return {
        number: sorted_rows.slice(start, stop - start)
        for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops, strict=True)
    }


def _murmur2(keys: Array) -> Hashes:
    """Word by word, each time of all keys that have one more."""
    edges = edges_of(keys).astype(np.int64)
    starts, sizes = edges[:-1], np.diff(edges)
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None and buffer.size else b"\0", dtype=np.uint8)
    hashes = _SEED ^ sizes.astype(np.uint32)
    short = np.flatnonzero(sizes <= _LONG_BYTES)
    rows = short[sizes[short] >= 4]
    word = 0
    while rows.size:
        mixed = _words(data, starts[rows] + 4 * word) * _MULTIPLIER
        mixed = (mixed ^ mixed >> np.uint32(24)) * _MULTIPLIER
        hashes[rows] = hashes[rows] * _MULTIPLIER ^ mixed
        word += 1
        rows = rows[sizes[rows] >= 4 * word + 4]
    _mix_rest(hashes, data, starts, sizes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(sizes > _LONG_BYTES).tolist():
        hashes[row] = murmur2(data[starts[row] : starts[row] + sizes[row]].tobytes())
    return hashes


def _words(data: Bytes, at: Numbers) -> Hashes:
    """Four bytes from each position on, the lowest first."""
    words = data.take(at).astype(np.uint32)
    for byte in range(1, 4):
        words |= data.take(at + byte).astype(np.uint32) << np.uint32(8 * byte)
    return words


def _mix_rest(hashes: Hashes, data: Bytes, starts: Numbers, sizes: Numbers) -> None:
    """The one to three bytes behind the last whole word."""
    whole = starts + (sizes & ~3)
    for byte in range(3):
        rows = np.flatnonzero((sizes & 3) > byte)
        hashes[rows] ^= data.take(whole[rows] + byte).astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(sizes & 3)
    hashes[rows] *= _MULTIPLIER
