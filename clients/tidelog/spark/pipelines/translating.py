"""Committed offsets of a group, in a copy of its topics.

Offsets differ: what commits a transaction takes an offset too. The distance from the end in records
does not: whoever has so many left to read here has as many left to read there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidelog.clients.admin.group_offsets import commit_offsets, committed_offsets
from tidelog.clients.client import Client
from tidelog.kernel.ids import TopicPartition
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines.counting import Offsets, visible_offsets
from tidelog.spark.pipelines.output import note
from tidelog.spark.pipelines.topics import connect, settled_ends, starts
from tidelog.wire.errors import ErrorCode, Rejected

_WINDOW_MIN = 64


@dataclass(frozen=True, slots=True)
class Copy:
    """Topics here, and their copies there, whose names have a prefix. Nobody else writes to those,
    and the copying rests."""

    bootstrap: str
    to: str
    prefix: str
    progress: str
    """The group that says how far the copies are."""

    def tell(self, group: str) -> dict[str, Any]:
        """Translate what the group has committed, and commit it there."""
        offsets = self._translated(group)
        trouble = _commit(connect(self.to), group, offsets)
        if trouble:
            note(f"group {group}: {trouble}")
        named = {f"{topic}-{number}": at for (topic, number), at in sorted(offsets.items())}
        return {"offsets": named, "error": trouble}

    def _translated(self, group: str) -> Positions:
        source, copy = connect(self.bootstrap), connect(self.to)
        copied = source.run(committed_offsets(source.view, self.progress))
        committed = source.run(committed_offsets(source.view, group))
        there = {one: (self.prefix + one[0], one[1]) for one in committed if one in copied}
        stops = settled_ends(copy, there.values())
        begins = starts(copy, there.values())
        offsets: Positions = {}
        for one, place in there.items():
            at, stop = committed[one].offset, copied[one].offset
            left = len(visible_offsets(self.bootstrap, one, at, stop))
            last = tails(self.to, place, begins[place], stops[place], left)
            offsets[place] = translated(left, last, stops[place])
        return offsets


def _commit(copy: Client, group: str, offsets: Positions) -> str | None:
    """Why the group could not be told; None where it was."""
    if not offsets:
        return "it has committed no offset of these topics"
    try:
        codes = copy.run(commit_offsets(copy.view, group, offsets))
    except Rejected as error:
        return str(error)
    wrong = {code for code in codes.values() if code is not ErrorCode.NONE}
    return (
        f"{', '.join(sorted(code.name for code in wrong))}: is somebody in it?" if wrong else None
    )


def translated(left: int, copied: Iterator[Offsets], end: int) -> int:
    """The offset in the copy with so many records from there to its end. `copied` are its last
    visible offsets, more each time; the last of them is all there is."""
    if left <= 0:
        return end
    known: Offsets = np.empty(0, np.int64)
    for known in copied:
        if len(known) >= left:
            return int(known[len(known) - left])
    # Records that the copy has lost since: then from its first one on.
    return int(known[0]) if len(known) else end


def tails(
    bootstrap: str, place: TopicPartition, first: int, stop: int, left: int
) -> Iterator[Offsets]:
    """The last visible offsets of a log, of twice as many offsets each time."""
    window = max(_WINDOW_MIN, left + left // 8)
    while True:
        begin = max(first, stop - window)
        yield visible_offsets(bootstrap, place, begin, stop)
        if begin == first:
            return
        window *= 2
