"""Varints and sized fields of all rows at once, as Arrow arrays of bytes that are then joined."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.spark.varints import Numbers

Array = Any
"""A pyarrow.Array: that package has no types."""

Raw = NDArray[np.uint64]
_MORE: Final = np.uint8(128)
_BITS_MAX: Final = 64


def zigzag(values: Numbers) -> Raw:
    found: Raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return found


def varint_sizes(raw: Raw) -> Numbers:
    """How many bytes each takes."""
    sizes = np.ones(len(raw), dtype=np.int64)
    for bits in range(7, _BITS_MAX, 7):
        over = raw >= np.uint64(1 << bits)
        if not over.any():
            break
        sizes += over
    return sizes


def pack_varints(columns: Sequence[Numbers]) -> Array:
    """A row's zigzag varints, one column's behind the other's."""
    raws = [zigzag(values) for values in columns]
    sizes = [varint_sizes(raw) for raw in raws]
    totals = np.sum(sizes, axis=0)
    edges = np.zeros(len(totals) + 1, dtype=np.int32)
    np.cumsum(totals, out=edges[1:])
    out = np.empty(int(edges[-1]), dtype=np.uint8)
    at = edges[:-1].astype(np.int64)
    for raw, size in zip(raws, sizes, strict=True):
        out[at] = (raw & np.uint64(127)).astype(np.uint8)
        rows = np.flatnonzero(size > 1)
        shift = 0
        while rows.size:
            out[at[rows] + shift] |= _MORE
            shift += 1
            left = raw[rows] >> np.uint64(7 * shift)
            out[at[rows] + shift] = (left & np.uint64(127)).astype(np.uint8)
            rows = rows[size[rows] > shift + 1]
        at += size
    return binary(edges, out)


def binary(edges: NDArray[np.int32], data: Any) -> Array:  # noqa: ANN401 -- anything with a buffer
    """Arrow's array of what lies between the edges."""
    return pa.Array.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )


def edges_of(array: Array) -> NDArray[np.int32]:
    """Where a binary array's entries begin and end in its buffer."""
    found = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return found[array.offset : array.offset + len(array) + 1]


def sizes_of(array: Array) -> Numbers:
    """Of each entry, -1 for none."""
    found: Numbers = pc.fill_null(pc.binary_length(array), -1).to_numpy().astype(np.int64)
    return found


def joined(*parts: Array) -> Array:
    """The parts of each row one behind the other, nothing where one is missing: the rows lie back
    to back in the result's buffer.
    """
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
