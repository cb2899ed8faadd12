"""The partitions this broker holds, and whether it leads them."""

import errno
from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.node.log.flush_policy import OS, FlushRules
from tidelog.node.log.log import Log, is_only_the_start
from tidelog.node.log.validation import BatchRules
from tidelog.node.replica.follower import Follower
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.throttle import Throttled
from tidelog.wire.errors import ErrorCode, Rejected

_ABOVE_MAX: Final = 1_000
"""Batches above the high watermark are counted one by one, up to so many; then together."""


class Replica(Struct, eq=False):
    """One partition on this broker."""

    topic: str
    partition: Partition
    topic_id: Uuid
    log: Log
    rules: BatchRules
    """What the topic's settings ask of a produced batch."""
    throttled: Throttled | None = None
    """Which followers the topic's settings hold to a rate; None: nobody."""
    leader: Leader | None = None
    """None while another broker leads, or nobody does."""
    follower: Follower | None = None
    """None while this broker leads, or nobody does."""
    kept: Offset = Offset(0)
    """The high watermark as far as it was known when it was last neither."""
    policy: FlushRules = OS
    """By which it vouches."""
    owed: Offset = Offset(0)
    """So much must be flushed before it vouches for anything: where its log ended when its role or
    its policy began."""
    above: deque[tuple[Offset, int]] = field(default_factory=deque)
    """What was appended above the high watermark: where it ends, how many bytes it is."""
    told: Offset = Offset(0)
    """The high watermark when it last moved."""
    seen: Offset = Offset(0)
    """The high watermark at the last tick."""
    vouched_in: Epoch = NO_EPOCH
    """The latest leader epoch in which it may have vouched for its log as a follower."""
    standstill: int = 0
    """For how many ticks it has stood though records wait; or that its next move is to be told."""

    @property
    def key(self) -> TopicPartition:
        return (self.topic, self.partition)

    @property
    def high_watermark(self) -> Offset:
        if self.leader is not None:
            return self.leader.high_watermark
        return self.kept if self.follower is None else self.follower.high_watermark

    @property
    def known_committed(self) -> Offset:
        """The high watermark, if it tells that all below was committed; NO_OFFSET if it does not,
        because it is only where a power loss left the log's start."""
        high_watermark = self.high_watermark
        return NO_OFFSET if is_only_the_start(self.log, high_watermark) else high_watermark

    @property
    def by_flush(self) -> bool:
        """It vouches for nothing that is not flushed."""
        return self.policy.commit

    @property
    def vouched(self) -> Offset:
        """Up to where it answers for its log, in its role; NO_OFFSET: for nothing yet."""
        log = self.log
        if not self.policy.commit:
            return Offset(log.end)
        flushed = log.recovery_point
        return Offset(flushed) if flushed >= min(self.owed, log.end) else NO_OFFSET

    def begin_vouching(self, now: Instant) -> None:
        """Its role begins, or its policy: under `commit` all there is must be flushed first. Bytes
        found in a file are not taken for flushed under any policy that flushes at all."""
        log = self.log
        self.owed = Offset(log.end)
        if log.settings.flush is not OS and log.recovery_point < log.end:
            log.dirty.ask(now)

    @property
    def epoch(self) -> Epoch | None:
        """The leader epoch it leads or follows in; None where it does neither."""
        if self.leader is not None:
            return self.leader.epoch
        return None if self.follower is None else self.follower.epoch

    def rest(self) -> None:
        """Neither leader nor follower: keep what is known."""
        self.kept = Offset(min(self.high_watermark, self.log.end))
        self.leader = self.follower = None
        self.above.clear()

    def grew(self, size: int) -> None:
        """So many bytes were appended that are not below the high watermark yet."""
        above = self.above
        if len(above) >= _ABOVE_MAX:
            size += above.pop()[1]
        above.append((Offset(self.log.end), size))

    def passed(self, high_watermark: Offset) -> int:
        """How many bytes the high watermark rose over."""
        above, size = self.above, 0
        while above and above[0][0] <= high_watermark:
            size += above.popleft()[1]
        return size


class Replicas:
    """All partitions here, by name and number."""

    def __init__(self) -> None:
        self._by_key: dict[TopicPartition, Replica] = {}
        self._offline: set[TopicPartition] = set()
        self.damaged: dict[TopicPartition, bool] = {}
        """Whose files are not what was written to them, and whether they can be used all the same:
        most of them can be read, and what is new is written behind them."""
        self._vouched_in: dict[TopicPartition, Epoch] = {}
        """Of replicas that are offline; else the replica has it."""
        self.retiring = False
        """This broker is about to leave: it takes no more records, so that others have them all."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_key.values())

    def add(self, replica: Replica) -> None:
        assert replica.key not in self._by_key, replica.key
        replica.vouched_in = self._vouched_in.pop(replica.key, NO_EPOCH)
        self._offline.discard(replica.key)
        self.damaged.pop(replica.key, None)
        self._by_key[replica.key] = replica

    def remove(self, key: TopicPartition) -> Replica | None:
        self._offline.discard(key)
        self.damaged.pop(key, None)
        self._vouched_in.pop(key, None)
        return self._by_key.pop(key, None)

    def take_offline(self, key: TopicPartition) -> Replica | None:
        """It should be here, but its files cannot be used."""
        vouched_in = self.vouched_in(key)
        replica = self.remove(key)
        self._offline.add(key)
        self._vouched_in[key] = vouched_in
        return replica

    def vouched_in(self, key: TopicPartition) -> Epoch:
        """The latest leader epoch in which this broker may have vouched for that log as a follower,
        in this life; NO_EPOCH if it never did."""
        replica = self._by_key.get(key)
        return self._vouched_in.get(key, NO_EPOCH) if replica is None else replica.vouched_in

    def failed(self, key: TopicPartition, failure: Exception) -> None:
        """Something could not be done with a replica's files: see what they are worth now."""
        replica = self._by_key.get(key)
        if replica is None:
            return
        if replica.log.offline is not None:
            self.damaged[key] = False
        elif isinstance(failure, CorruptError) or (
            isinstance(failure, OSError) and failure.errno == errno.EIO
        ):
            self.damaged.setdefault(key, True)

    def get(self, key: TopicPartition) -> Replica | None:
        return self._by_key.get(key)

    def find(self, topic: str, partition: int) -> Replica | None:
        return self._by_key.get((topic, Partition(partition)))

    def leading(self) -> int:
        return sum(1 for replica in self._by_key.values() if replica.leader is not None)

    def led(self, topic: str, partition: int, *, epoch: int = -1) -> tuple[Replica, Leader]:
        """The replica and its leader's knowledge; refused where we do not lead it.

        `epoch` is what the client believes the leader epoch to be, -1 where it does not say.
        """
        replica = self._here(topic, partition)
        leader = replica.leader
        current = replica.epoch
        if epoch != NO_EPOCH and current is not None:
            _check_epoch(asked=epoch, current=current)
        if leader is None:
            raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica, leader

    def readable(self, topic: str, partition: int, *, epoch: int = -1) -> Replica:
        """A replica that clients may read: of the leader, or of a follower that knows its leader.

        `epoch` as of `led`.
        """
        replica = self._here(topic, partition)
        current = replica.epoch
        if current is None:
            raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if epoch != NO_EPOCH:
            _check_epoch(asked=epoch, current=current)
        return replica

    def _here(self, topic: str, partition: int) -> Replica:
        replica = self._by_key.get((topic, Partition(partition)))
        if replica is None:
            raise Rejected(
                ErrorCode.KAFKA_STORAGE_ERROR
                if (topic, partition) in self._offline
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return replica


def _check_epoch(*, asked: int, current: Epoch) -> None:
    """Of client and broker, who knows the younger epoch must wait for the other."""
    if asked < current:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH)
    if asked > current:
        raise Rejected(ErrorCode.UNKNOWN_LEADER_EPOCH)
