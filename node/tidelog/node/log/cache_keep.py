"""Which bytes of logs leave the page cache, and which are given to the disk. No I/O.

The bound of logs that share one is held by how far behind each log's end bytes stay: as far for one
as for the other, so that what nobody has cached of one is there for the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

PAGE_BYTES: Final = 4096
"""The smallest there is: what is rounded down to it is whole pages on machines with larger ones
but for the last one, which the kernel leaves alone."""
_SLACK: Final = 8
"""Once the bound is passed a part of this much more goes, so that not each append brings a drop."""


class Pages(NamedTuple):
    """Of one segment's file."""

    name: str
    size: int
    cached: int


class Drop(NamedTuple):
    """Of one segment's file, what lies below."""

    name: str
    upto: int


class Extent(NamedTuple):
    """One segment, as its log knows it."""

    base: int
    name: str
    size: int


class Push(NamedTuple):
    """Bytes that are given to the disk."""

    name: str
    start: int
    size: int


def held(segments: Iterable[Pages]) -> int:
    return sum(one.cached for one in segments)


def reach(cached: Sequence[int], bound: int) -> int | None:
    """How far behind its end each log keeps what it has; None where all of it may stay."""
    if sum(cached) <= bound:
        return None
    left = bound - bound // _SLACK
    for waiting, most in zip(range(len(cached), 0, -1), sorted(cached), strict=True):
        if most * waiting > left:
            return left // waiting
        left -= most
    raise AssertionError("they fit after all")


def drops(segments: Sequence[Pages], kept: int) -> list[Drop]:
    """Of one log, its oldest segment first, what lies farther behind the end than is kept."""
    found, behind = [], 0
    for at in range(len(segments) - 1, -1, -1):
        one = segments[at]
        upto = one.size - min(max(kept - behind, 0), one.size)
        behind += one.size
        if at == len(segments) - 1 or upto < one.size:
            upto -= upto % PAGE_BYTES  # of a page that is written to, or kept, nothing goes
        if upto and one.cached:
            found.append(Drop(one.name, upto))
    found.reverse()
    return found


def plan(logs: Mapping[str, Sequence[Pages]], bound: int) -> dict[str, list[Drop]]:
    """Of logs that share a bound, those of which something goes."""
    kept = reach([held(segments) for segments in logs.values()], bound)
    if kept is None:
        return {}
    found = {name: drops(segments, kept) for name, segments in logs.items()}
    return {name: gone for name, gone in found.items() if gone}


class Writeback:
    """Up to where one log was given to the disk.

    Invariant: whole pages only, but of sealed segments: an append into a page that is on its way to
    the disk might have to wait for it.
    """

    __slots__ = ("_base", "_upto")

    def __init__(self) -> None:
        self._base = -1
        self._upto = 0

    def due(self, segments: Sequence[Extent], step: int) -> list[Push]:
        """What is to go now; the last segment is the active one."""
        found = []
        for one in segments[:-1]:
            start = self._start(one)
            if one.base >= self._base >= 0 and start < one.size:
                found.append(Push(one.name, start, one.size - start))
        active = segments[-1]
        start = self._start(active)
        upto = active.size - active.size % PAGE_BYTES
        if upto - start >= step:
            found.append(Push(active.name, start, upto - start))
            start = upto
        self._base, self._upto = active.base, start
        return found

    def _start(self, one: Extent) -> int:
        """Behind a cut all is new."""
        return min(self._upto, one.size - one.size % PAGE_BYTES) if one.base == self._base else 0
