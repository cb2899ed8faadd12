"""The leader-epoch cache of one log: which epoch wrote from which offset on.

Followers and consumers find with it where their history parts from the leader's (KIP-101, KIP-279).
"""

from bisect import bisect_left, bisect_right

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset
from tidelog.wire.checkpoints import counted_rows

FILE_NAME = "leader-epoch-checkpoint"


class EpochCache:
    """Epochs with their first offsets. Invariant: both rise strictly."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_EPOCH
        """The newest epoch; NO_EPOCH of an empty cache. Kept, for each append asks for it."""

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and self.entries() == other.entries()

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by value

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> bool:
        """From `start` on, `epoch` writes; whether that was news.

        An epoch that wrote nothing gives way to the next one at the same offset, as in Kafka.
        """
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1]):
            return False
        keep = bisect_left(self._starts, start)
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = Epoch(epoch)
        return True

    def end_of(self, epoch: int, log_end: int) -> tuple[Epoch, Offset]:
        """The largest known epoch not above the asked one, and the offset at which it ends.

        (NO_EPOCH, NO_OFFSET) where the asked epoch is newer than all; the asked epoch with the
        first known start where it is older than all.
        """
        if not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return Epoch(epoch), Offset(self._starts[0])
        end = self._starts[after] if after < len(self._starts) else log_end
        return Epoch(self._epochs[after - 1]), Offset(end)

    def epoch_at(self, offset: int) -> Epoch:
        """Who wrote that offset; NO_EPOCH where nobody remembers."""
        after = bisect_right(self._starts, offset)
        return Epoch(self._epochs[after - 1]) if after else NO_EPOCH

    def cut_from(self, end: int) -> bool:
        """Forget epochs that begin at or above the new end; whether any did."""
        keep = bisect_left(self._starts, end)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        self.latest = Epoch(self._epochs[-1]) if self._epochs else NO_EPOCH
        return changed

    def cut_below(self, start: int) -> bool:
        """Forget what lies wholly below the new start; whether anything changed.

        The epoch that covers it is kept, and begins there now.
        """
        covering = bisect_right(self._starts, start) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start):
            return False
        del self._epochs[:covering], self._starts[:covering]
        self._starts[0] = start
        return True

    def reach_back(self, start: int) -> None:
        """Let the first epoch begin no later than the log, whose start a power loss set back.

        Whoever asks for an older epoch is then told the log's start: it cuts too much, not too
        little.
        """
        if self._starts and start < self._starts[0]:
            self._starts[0] = start

    def encode(self) -> bytes:
        lines = "".join(f"{epoch} {start}\n" for epoch, start in self.entries())
        return f"0\n{len(self)}\n{lines}".encode("ascii")


def decode_epochs(content: bytes, *, place: str) -> EpochCache:
    """Read a leader-epoch-checkpoint; CorruptError where it is not one."""
    try:
        rows = [tuple(map(int, row.split(" "))) for row in counted_rows(content)]
        return _cache_of(rows)
    except ValueError as error:
        raise CorruptError(file=place, position=0, reason=f"no epoch list: {error}") from error


def _cache_of(rows: list[tuple[int, ...]]) -> EpochCache:
    cache = EpochCache()
    end = -1
    for epoch, start in rows:
        if start <= end or not cache.assign(epoch, start):
            raise ValueError("epochs and offsets do not rise")
        end = start
    return cache
