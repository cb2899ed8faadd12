"""A follower of one partition: where its log parts from the leader's, and what it takes. No I/O
but through the log.
"""

from msgspec import Struct

from tidelog.kernel.ids import NO_EPOCH, BrokerId, Epoch, Offset
from tidelog.node.log.log import Log


class Follower(Struct, eq=False):
    """Follows one leader in one leader epoch."""

    leader: BrokerId
    epoch: Epoch
    high_watermark: Offset
    """The leader's as far as it was told, within the own log."""
    attached: bool = False

    def cut(self, log: Log, end: Offset) -> None:
        """Give up what the leader does not have."""
        try:
            log.truncate_to(end)
        finally:
            self._stay_within(log)

    def start_anew(self, log: Log, start: Offset) -> None:
        """The leader has nothing of what this log holds, nor of what comes next in it."""
        try:
            log.truncate_fully_and_start_at(start)
        finally:
            self._stay_within(log)

    def _stay_within(self, log: Log) -> None:
        """Also where the disk failed when all was cut already: else what comes next would pass for
        committed as soon as it is here."""
        self.high_watermark = Offset(max(log.start, min(self.high_watermark, log.end)))

    def learn(self, log: Log, high_watermark: Offset) -> bool:
        """Take the leader's high watermark; whether the own one rose (it never falls)."""
        reached = min(high_watermark, log.end)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = Offset(reached)
        return True


def cut_to(log: Log, epoch: Epoch, end: Offset) -> Offset:
    """Where to cut after the leader said that `epoch`, its largest not above ours, ends at `end`.

    Rule 1 of a follower (KIP-101, KIP-279): where the leader never had our latest epoch, our own
    end of the epoch it names counts too.
    """
    if epoch == NO_EPOCH or not len(log.epochs):
        return Offset(min(end, log.end))
    _, ours = log.epochs.end_of(epoch, log.end)
    return Offset(min(end, ours, log.end))
