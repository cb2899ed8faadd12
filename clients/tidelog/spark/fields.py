"""What is in each record, by the column: one field of all records after the other."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidelog.spark.varints import FAR, Bytes, Numbers, read_sizes, read_varints

_HEADER_BYTES_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class Places:
    """Where a field of each record lies in the data; one that is missing begins where it ends."""

    starts: Numbers
    ends: Numbers
    missing: NDArray[np.bool_] | None
    """None where none is missing."""


@dataclass(frozen=True, slots=True)
class Headers:
    """All records' headers, one after the other, and how many each record has."""

    counts: Numbers
    names: Places
    values: Places


@dataclass(frozen=True, slots=True)
class Fields:
    """Of every record; where `broken` says so they mean nothing."""

    timestamp_deltas: Numbers
    offset_deltas: Numbers
    keys: Places
    values: Places
    headers: Headers
    broken: NDArray[np.bool_]


def read_fields(data: Bytes, starts: Numbers, stops: Numbers) -> Fields:
    """Records fill the data from start to stop, or are broken: every position but the last is
    smaller than the next, so one that ends right has no field outside of itself.
    """
    _, at = read_varints(data, starts)
    timestamps, at = read_varints(data, at + 1)
    offsets, at = read_varints(data, at)
    keys, at = _places(data, at)
    values, at = _places(data, at)
    counts, at = read_varints(data, at)
    headers, at = _read_headers(data, counts, at, stops)
    return Fields(timestamps, offsets, keys, values, headers, at != stops)


def _places(data: Bytes, at: Numbers) -> tuple[Places, Numbers]:
    sizes, starts, ends = read_sizes(data, at)
    missing = sizes < 0
    return Places(starts, ends, missing if missing.any() else None), ends


def _read_headers(
    data: Bytes, counts: Numbers, at: Numbers, stops: Numbers
) -> tuple[Headers, Numbers]:
    """Header by header, each time of all records that have one more."""
    rows = np.flatnonzero(counts)
    if not rows.size:
        return Headers(counts, _nowhere(0), _nowhere(0)), at
    fits = (counts[rows] > 0) & (counts[rows] <= (stops[rows] - at[rows]) // _HEADER_BYTES_MIN)
    at = at.copy()
    at[rows[~fits]] = FAR
    rows = rows[fits]
    told = np.zeros_like(counts)
    told[rows] = counts[rows]
    first = np.cumsum(told) - told
    names, values = _nowhere(int(told.sum())), _nowhere(int(told.sum()))
    number = 0
    while rows.size:
        sizes, starts, ends = read_sizes(data, at[rows])
        ends[sizes < 0] = FAR  # a header has a name
        place = first[rows] + number
        names.starts[place], names.ends[place] = starts, ends
        sizes, starts, ends = read_sizes(data, ends)
        values.starts[place], values.ends[place] = starts, ends
        if values.missing is not None:
            values.missing[place] = sizes < 0
        at[rows] = ends
        number += 1
        rows = rows[told[rows] > number]
    return Headers(told, names, values), at


def _nowhere(count: int) -> Places:
    return Places(
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
    )
