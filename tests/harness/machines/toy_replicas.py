"""One partition on several brokers, as little of it as transactions need: logs, a leader, commits.

A leader appends to its own log, followers copy that log as it is, and what all in-sync replicas
have is committed. A broker that was leader and does not know that it is one no more appends to its
own log, too: nobody copies that, and it is cut when the broker follows again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidelog.kernel.ids import BrokerId, Epoch, TopicPartition
from tidelog.wire.errors import ErrorCode

Committed = Callable[[ErrorCode], None]
"""Told that what was appended is committed, or that its leader is one no more."""


@dataclass
class ToyPartition:
    key: TopicPartition
    replicas: tuple[BrokerId, ...]
    leader: BrokerId | None
    epoch: Epoch = Epoch(0)
    isr: tuple[BrokerId, ...] = ()
    high_watermark: int = 0
    """In entries; never goes back."""
    logs: dict[BrokerId, list[Any]] = field(default_factory=dict)
    have: dict[BrokerId, int] = field(default_factory=dict)
    """How much of the present leader's log each replica has copied in this leader's epoch."""
    waiting: list[tuple[BrokerId, Epoch, int, Committed]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.isr = self.isr or self.replicas
        self.logs = {one: [] for one in self.replicas}

    @property
    def committed(self) -> list[Any]:
        """What nobody can lose any more."""
        holder = self.leader if self.leader is not None else self.isr[0]
        return self.logs[holder][: self.high_watermark]

    def append(self, broker: BrokerId, entry: object) -> int:
        """To that broker's own log; its end."""
        log = self.logs[broker]
        log.append(entry)
        return len(log)

    def wait(self, broker: BrokerId, epoch: Epoch, end: int, done: Committed) -> None:
        """Until that much is committed under this leader."""
        self.waiting.append((broker, epoch, end, done))
        self.settle()

    def copy(self, follower: BrokerId) -> None:
        """Become what the leader's log is; what differs is cut."""
        if self.leader is None or follower == self.leader:
            return
        log = self.logs[self.leader]
        self.logs[follower] = list(log)
        self.have[follower] = len(log)
        self.settle()

    def elect(self, leader: BrokerId | None, isr: tuple[BrokerId, ...]) -> None:
        """Under the next epoch."""
        assert leader is None or leader in self.isr, (self.key, leader, self.isr)
        committed = self.committed
        assert leader is None or self.logs[leader][: len(committed)] == committed, self.key
        self.leader, self.isr = leader, isr
        self.epoch = Epoch(self.epoch + 1)
        self.have = {}

    def set_isr(self, isr: tuple[BrokerId, ...]) -> None:
        self.isr = isr
        self.settle()

    def settle(self) -> None:
        """Move the high watermark, and tell who waited for it."""
        if self.leader is not None and len(self.isr) >= min(2, len(self.replicas)):
            ends = [self.have.get(one, 0) for one in self.isr if one != self.leader]
            reached = min([*ends, len(self.logs[self.leader])])
            self.high_watermark = max(self.high_watermark, reached)
        due = [
            one
            for one in self.waiting
            if one[:2] == (self.leader, self.epoch) and one[2] <= self.high_watermark
        ]
        for one in due:
            self.waiting.remove(one)
            one[3](ErrorCode.NONE)

    def give_up(self) -> None:
        """It is deleted."""
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one[3](ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def depose(self, broker: BrokerId, epoch: Epoch | None) -> None:
        """The broker learns that it leads in this epoch, or not at all: what it appended in others
        may be lost."""
        over = [one for one in self.waiting if one[0] == broker and one[1] != epoch]
        for one in over:
            self.waiting.remove(one)
            one[3](ErrorCode.NOT_LEADER_OR_FOLLOWER)
