"""Varints by the column: one of each row at a time, all rows at once.

A lie never raises here. A varint that is none moves its row's position to `FAR`, behind all data,
and positions only grow: whoever finds a row's position where its record must end, knows that
everything before it was read from where it is.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

FAR: Final = 1 << 40
"""Added a few times it still is no overflow, and it is behind all that a buffer can hold."""

_SMALL: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(256)], dtype=np.int64)
_BITS_MAX: Final = 70
_LAST_SHIFT: Final = 63
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag varint at each position, and the position behind it."""
    first = data.take(at, mode="clip")
    values = _SMALL.take(first)
    behind = at + 1
    if first.size and first.max() > 127:
        rows = np.flatnonzero(first > 127)
        values[rows], behind[rows] = _longer(data, behind[rows], first[rows])
    return values, behind


def read_sizes(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """As `read_varints` where a varint says how many bytes follow it, -1 for none; and where they
    end. A size below -1 ends `FAR` away.
    """
    sizes, behind = read_varints(data, at)
    if not sizes.size:
        return sizes, behind, behind
    if sizes.min() < 0:
        ends = behind + np.clip(sizes, 0, FAR)
        ends[sizes < -1] = FAR
    else:
        ends = behind + np.minimum(sizes, FAR)
    return sizes, behind, ends


def _longer(data: Bytes, at: Numbers, first: Bytes) -> tuple[Numbers, Numbers]:
    """The rest of varints whose first byte says that more follow."""
    raw = (first & 127).astype(np.uint64)
    behind = at.copy()
    rows = np.arange(len(at))
    for shift in range(7, _BITS_MAX, 7):
        byte = data.take(behind[rows], mode="clip")
        behind[rows] += 1
        raw[rows] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        if shift == _LAST_SHIFT:
            behind[rows[byte > 1]] = FAR  # more than 64 bits
            break
        rows = rows[byte > 127]
        if not rows.size:
            break
    return ((raw >> _ONE) ^ (_ZERO - (raw & _ONE))).view(np.int64), behind
