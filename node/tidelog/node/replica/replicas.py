"""The partitions this broker holds, and whether it leads them."""

from collections.abc import Iterator

from msgspec import Struct

from tidelog.kernel.ids import Epoch, Offset, Partition, TopicPartition, Uuid
from tidelog.node.log.log import Log
from tidelog.node.log.validation import BatchRules
from tidelog.node.replica.leader import Leader
from tidelog.wire.errors import ErrorCode, Rejected


class Replica(Struct, eq=False):
    """One partition on this broker."""

    topic: str
    partition: Partition
    topic_id: Uuid
    log: Log
    rules: BatchRules
    """What the topic's settings ask of a produced batch."""
    leader: Leader | None = None
    """None while another broker leads, or nobody does."""

    @property
    def key(self) -> TopicPartition:
        return (self.topic, self.partition)

    @property
    def high_watermark(self) -> Offset:
        assert self.leader is not None
        return self.leader.high_watermark


class Replicas:
    """All partitions here, by name and number."""

    def __init__(self) -> None:
        self._by_key: dict[TopicPartition, Replica] = {}
        self._offline: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_key.values())

    def add(self, replica: Replica) -> None:
        assert replica.key not in self._by_key, replica.key
        self._offline.discard(replica.key)
        self._by_key[replica.key] = replica

    def remove(self, key: TopicPartition) -> Replica | None:
        self._offline.discard(key)
        return self._by_key.pop(key, None)

    def take_offline(self, key: TopicPartition) -> None:
        """It should be here, but its files cannot be used."""
        self.remove(key)
        self._offline.add(key)

    def get(self, key: TopicPartition) -> Replica | None:
        return self._by_key.get(key)

    def leading(self) -> int:
        return sum(1 for replica in self._by_key.values() if replica.leader is not None)

    def led(self, topic: str, partition: int, *, epoch: int = -1) -> tuple[Replica, Leader]:
        """The replica and its leader's knowledge; refused where we do not lead it.

        `epoch` is what the client believes the leader epoch to be, -1 where it does not say.
        """
        replica = self._by_key.get((topic, Partition(partition)))
        if replica is None:
            raise Rejected(
                ErrorCode.KAFKA_STORAGE_ERROR
                if (topic, partition) in self._offline
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        leader = replica.leader
        if leader is None:
            raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if epoch not in {-1, leader.epoch}:
            raise Rejected(_epoch_error(asked=Epoch(epoch), current=leader.epoch))
        return replica, leader


def _epoch_error(*, asked: Epoch, current: Epoch) -> ErrorCode:
    if asked < current:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
