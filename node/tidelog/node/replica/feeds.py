"""What the leader's end of a stream knows: the stream to a follower broker, and what it carries."""

from collections import deque
from typing import TYPE_CHECKING

from tidelog.kernel.ids import BrokerId, Epoch, Offset
from tidelog.kernel.instant import Instant
from tidelog.node.replica.outbox import Address
from tidelog.node.replica.replicas import Replica

if TYPE_CHECKING:
    from tidelog.wire.replication import Attach


class Feed:
    """One follower of one partition, on its channel. Invariant: acked <= sent <= the log's end."""

    __slots__ = (
        "acked",
        "channel",
        "epoch",
        "live",
        "outgoing",
        "replica",
        "sent",
        "told",
        "told_at",
        "unacked",
    )

    def __init__(
        self, outgoing: "Outgoing", channel: int, replica: Replica, epoch: Epoch, start: Offset
    ) -> None:
        self.outgoing = outgoing
        self.channel = channel
        self.replica = replica
        self.epoch = epoch
        self.sent = self.acked = start
        self.live = False
        self.told = Offset(-1)
        """The high watermark that it was sent last, and when it was."""
        self.told_at = Instant(0)
        self.unacked: deque[tuple[Offset, int]] = deque()
        """Bytes under way on credit: where they end in the log, how many they are."""


class Outgoing:
    """The stream to one follower broker."""

    __slots__ = (
        "address",
        "behind",
        "broker_epoch",
        "counted_on",
        "feeds",
        "held",
        "joined",
        "leaving",
        "leaving_since",
        "parked",
        "unacked",
    )

    def __init__(self, address: Address, broker_epoch: Offset) -> None:
        self.address = address
        self.broker_epoch = broker_epoch
        self.counted_on = False
        """Whether our metadata has said of this life that it is in the cluster."""
        self.feeds: dict[int, Feed] = {}
        self.behind: dict[Feed, None] = {}
        """Those that catch up; the first is the next to get something."""
        self.held: dict[Feed, None] = {}
        """Those of them that a throttle holds, until the next tick."""
        self.parked: dict[int, Attach] = {}
        """Their leader epoch is not known here yet."""
        self.joined = 0
        """The ring it reads."""
        self.leaving = 0
        """The ring it was asked to leave, and since when."""
        self.leaving_since = Instant(0)
        self.unacked = 0
        """Bytes under way on credit: all but live batches in the ring."""

    @property
    def peer(self) -> BrokerId:
        return self.address.peer
