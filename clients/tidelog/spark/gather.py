"""From places in the data to Arrow's arrays: the bytes of each row, one row after the other.

An Arrow array of bytes is a buffer and where each entry ends, which is where the next begins. So
the data itself is such an array, whose entries are in turn what is wanted and what lies between;
taking every other one copies what is wanted, and no row is touched by Python.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.spark.fields import Headers, Places
from tidelog.spark.varints import Bytes, Numbers
from tidelog.wire.java_text import java_text

Array = Any
"""A pyarrow.Array: that package has no types."""


def gather(data: Bytes, places: Places) -> Array:
    """A binary array of what lies there. Places grow from row to row and end within the data."""
    rows = len(places.starts)
    if places.missing is not None and places.missing.all():
        return pa.nulls(rows, pa.binary())
    edges = np.empty(2 * rows + 1, dtype=np.int32)
    edges[0:-1:2] = places.starts
    edges[1::2] = places.ends
    edges[-1] = len(data)
    assert edges[0] >= 0, edges[0]
    entries = pa.Array.from_buffers(
        pa.binary(), 2 * rows, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    wanted = pa.array(np.arange(0, 2 * rows, 2))
    found = pc.take(entries, wanted, boundscheck=False)
    return found if places.missing is None else _with_nulls(found, places.missing)


def gather_headers(data: Bytes, headers: Headers) -> Array:
    """A list of names and values for each row."""
    names = _texts(gather(data, headers.names))
    values = gather(data, headers.values)
    pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
    edges = np.zeros(len(headers.counts) + 1, dtype=np.int32)
    np.cumsum(headers.counts, out=edges[1:])
    return pa.ListArray.from_arrays(pa.array(edges), pairs)


def _texts(names: Array) -> Array:
    """Names as text. Only if one is not UTF-8, Python looks at each of them."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([java_text(name) for name in names.to_pylist()], pa.string())


def timestamps(milliseconds: Numbers) -> Array:
    """As Spark wants them; `MILLISECONDS_MAX` says what fits."""
    return pa.array(milliseconds * 1000).cast(pa.timestamp("us", "UTC"))


def _with_nulls(found: Array, missing: NDArray[np.bool_]) -> Array:
    bits = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    _, edges, text = found.buffers()
    return pa.Array.from_buffers(pa.binary(), len(missing), [bits, edges, text])
