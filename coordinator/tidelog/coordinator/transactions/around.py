"""What the parts of the transaction coordinator share: who is connected, and what goes out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.coordinator.transactions.events import Effect, Happened, SendTo, Stop
from tidelog.coordinator.transactions.producer_ids import ProducerIds
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch, Incarnation, Partition
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import PARTITIONS_PER_TOPIC_MAX
from tidelog.node.metadata.features import TRANSACTION_VERSION
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import FromTransactions

FENCED: Final = frozenset(
    {ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""What an append is refused with where there is a newer coordinator."""


_PARTITION_BITS: Final = 14
assert PARTITIONS_PER_TOPIC_MAX <= 1 << _PARTITION_BITS


def partition_of_call(call: int) -> Partition:
    """The partition of `__transaction_state` that a message is about."""
    return Partition(call & (1 << _PARTITION_BITS) - 1)


class Session(NamedTuple):
    """One connection of one life of a broker. What is said in another one counts for nothing."""

    broker: BrokerId
    incarnation: Incarnation
    session: int


class Target(NamedTuple):
    """Who leads a partition, where it can be spoken to."""

    session: Session
    leader_epoch: Epoch

    def is_same_leader(self, other: "Target | None") -> bool:
        """Whether it has led without a break, though the connection may be another one."""
        return (
            other is not None
            and self.leader_epoch == other.leader_epoch
            and self.session[:2] == other.session[:2]
        )


@dataclass(slots=True)
class Around:
    """Invariant: of each broker one session is known, the latest; whatever is said goes there."""

    image: MetadataImage
    epoch: Epoch
    settings: TransactionSettings
    wall_ms: Callable[[Instant], int]
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    out: list[Effect] = field(default_factory=list)
    sessions: dict[BrokerId, Session] = field(default_factory=dict)
    alarm: Instant | None = None
    """Somebody wants a tick then, or earlier."""
    stopped: bool = False
    calls: int = 0

    def transactions_version(self) -> int:
        """As the cluster has it now; what producers speak their requests say."""
        return self.image.features.get(TRANSACTION_VERSION, 0)

    def target(self, topic: TopicView, partition: int) -> Target | None:
        """None where nobody leads it, or who does is not connected."""
        view = topic.partitions[partition]
        session = None if view.leader == NO_LEADER else self.sessions.get(view.leader)
        return None if session is None else Target(session, view.leader_epoch)

    def new_call(self, partition: int = 0) -> int:
        """A number that no message had before; it says which partition of the state it is about."""
        self.calls += 1
        return self.calls << _PARTITION_BITS | partition

    def happened(self, what: Happened) -> None:
        self.out.append(what)

    def send(self, session: Session, message: FromTransactions) -> None:
        """In a session that is the latest of its broker."""
        assert self.sessions.get(session.broker) == session, session
        self.out.append(SendTo(session.broker, message))

    def wake_at(self, due: Instant | None) -> None:
        if due is not None and (self.alarm is None or due < self.alarm):
            self.alarm = due

    def stop(self, reason: str) -> None:
        """There is a newer coordinator: this one may do nothing more."""
        if not self.stopped:
            self.stopped = True
            self.out.append(Stop(reason))
