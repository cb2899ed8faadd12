"""The leader of one partition: who is in sync, and up to where a record is safe. No I/O."""

from collections.abc import Mapping

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Epoch, Offset


class AdvanceHighWatermark(Struct, frozen=True):
    """Records below `to` are on every in-sync replica: they may be read, and acks=all answered."""

    to: Offset


class Leader:
    """What the leader of one partition knows of its replicas.

    Invariant: high_watermark <= end of every in-sync replica; it never goes back.
    So a record below the high watermark is on every replica that may become leader.
    """

    __slots__ = ("_ends", "_me", "epoch", "epoch_start", "high_watermark", "min_in_sync")

    def __init__(
        self,
        *,
        me: BrokerId,
        epoch: Epoch,
        in_sync: Mapping[BrokerId, Offset],
        high_watermark: Offset,
        min_in_sync: int,
    ) -> None:
        assert me in in_sync, (me, in_sync)
        self._me = me
        self._ends = dict(in_sync)
        self.epoch = epoch
        self.epoch_start = in_sync[me]
        self.min_in_sync = min_in_sync
        self.high_watermark = min(high_watermark, in_sync[me])

    def appended(self, end: Offset) -> AdvanceHighWatermark | None:
        """The leader's own log now ends there."""
        assert end >= self._ends[self._me], (end, self._ends)
        self._ends[self._me] = end
        return self._advance()

    def started(self) -> AdvanceHighWatermark | None:
        """The leader has just taken over: alone in sync, all it holds is safe at once."""
        return self._advance()

    def enough_in_sync(self) -> bool:
        """Whether acks=all may be taken at all."""
        return len(self._ends) >= self.min_in_sync

    def _advance(self) -> AdvanceHighWatermark | None:
        if not self.enough_in_sync():
            return None
        replicated = min(self._ends.values())
        if replicated <= self.high_watermark:
            return None
        self.high_watermark = replicated
        return AdvanceHighWatermark(to=replicated)
