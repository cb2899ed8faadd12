"""What keeps the last stable offset of a log back: transactions that may not be read yet. No I/O.

As in Kafka: from its first record on, until its marker lies below the high watermark. The last
stable offset is the smallest of these first offsets, and never above the high watermark.
"""

from collections import deque


class Unstable:
    """Transactions that are open, and those whose markers may not be on every in-sync replica.

    Invariant: `open` is in the order of the first offsets. `ended` rises by marker and by first
    offset: who begins no earlier than one that ended later keeps nothing back that the other would
    not, and stands there no more. So each of its ends is found at once.
    """

    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open: dict[int, None] = {}
        """First offsets."""
        self.ended: deque[tuple[int, int]] = deque()
        """Markers and first offsets."""

    def begin(self, first: int) -> None:
        """A transaction has written its first record there, the last one of the log."""
        self.open[first] = None

    def end(self, first: int, marker: int) -> int:
        """A transaction ends with the marker there, the log's last batch. The last stable offset
        then, were all of the log below the high watermark: its place in the index has it."""
        del self.open[first]
        self.note_ended(first, marker)
        return next(iter(self.open), marker + 1)

    def note_ended(self, first: int, marker: int) -> None:
        """A marker behind all known ones."""
        ended = self.ended
        while ended and ended[-1][1] >= first:
            ended.pop()
        ended.append((marker, first))

    def settle(self, high_watermark: int) -> None:
        """Markers below it will stay."""
        ended = self.ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()

    def first(self, high_watermark: int) -> int | None:
        """Where the first of them begins; None where all that was begun can be read."""
        self.settle(high_watermark)
        first = next(iter(self.open), None)
        if not self.ended:
            return first
        ended = self.ended[0][1]
        return ended if first is None else min(first, ended)

    @property
    def is_empty(self) -> bool:
        return not self.open and not self.ended
