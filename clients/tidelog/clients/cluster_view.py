"""Who leads what, as far as this client was told: the last Metadata answers, merged.

A leader epoch never goes back for the same topic id: an answer of a broker that lags behind does
not undo what a faster one said.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.clients.asking import (
    Address,
    Answered,
    Ask,
    Call,
    Lost,
    Pause,
    Plan,
    Somewhere,
)
from tidelog.clients.failures import reason_to_repeat
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import NO_EPOCH, NO_LEADER, ZERO_UUID, BrokerId, Epoch, TopicPartition, Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k03_metadata import API as METADATA
from tidelog.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that say: what you know about the cluster is out of date, ask again."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition; `leader` is NO_LEADER where nobody leads it."""

    leader: BrokerId
    epoch: Epoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: Uuid
    internal: bool
    partitions: Mapping[int, PartitionView]

    @property
    def has_id(self) -> bool:
        return self.topic_id != ZERO_UUID


class ClusterView:
    """Brokers and topics by name. Invariant: `errors` and `topics` share no name."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int = NO_LEADER
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str] = {}
        """Of those brokers that have one."""
        self.topics: dict[str, TopicView] = {}
        self.errors: dict[str, ErrorCode] = {}
        """Why the last answer gave no partitions for a topic."""
        self.coordinators: dict[tuple[int, str], int] = {}
        """Who coordinated what when it was last asked, by the kind of key and the key."""

    def leader(self, partition: TopicPartition) -> int | None:
        """The broker to ask about a partition, None where nobody is known to lead it."""
        topic = self.topics.get(partition[0])
        known = None if topic is None else topic.partitions.get(partition[1])
        if known is None or known.leader not in self.brokers:
            return None
        return known.leader

    def epoch(self, partition: TopicPartition) -> Epoch:
        """The leader epoch a partition was last seen with, NO_EPOCH where it is not known."""
        topic = self.topics.get(partition[0])
        known = None if topic is None else topic.partitions.get(partition[1])
        return NO_EPOCH if known is None else known.epoch

    def topic_id(self, topic: str) -> Uuid:
        known = self.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def name_of(self, topic_id: Uuid) -> str | None:
        """The topic of an id: responses of newer versions carry nothing else."""
        return next((one.name for one in self.topics.values() if one.topic_id == topic_id), None)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, 0 where it is not known."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """Partitions by the broker that leads them, and those that nobody is known to lead."""
        led: dict[int, list[TopicPartition]] = {}
        orphans = []
        for partition in partitions:
            leader = self.leader(partition)
            if leader is None:
                orphans.append(partition)
            else:
                led.setdefault(leader, []).append(partition)
        return led, orphans

    def update(self, answer: MetadataResponse, *, whole: bool) -> None:
        """Take an answer in; `whole` says that it lists all topics, so that others are gone."""
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self._update_brokers(answer.brokers)
        if whole:
            named = {one.name for one in answer.topics}
            self.topics = {name: one for name, one in self.topics.items() if name in named}
            self.errors = {}
        for topic in answer.topics:
            self._update_topic(topic)

    def _update_brokers(self, brokers: Sequence[MetadataResponseBroker]) -> None:
        self.brokers = {one.node_id: Address(one.host, one.port) for one in brokers}
        self.racks = {one.node_id: one.rack for one in brokers if one.rack is not None}

    def _update_topic(self, answer: MetadataResponseTopic) -> None:
        name = answer.name
        if name is None:
            return
        if answer.error_code != ErrorCode.NONE:
            self.topics.pop(name, None)
            self.errors[name] = known_code(answer.error_code)
            return
        self.errors.pop(name, None)
        old = self.topics.get(name)
        same = old is not None and old.topic_id == answer.topic_id
        before = old.partitions if old is not None and same else {}
        partitions = {
            one.partition_index: _newer(before.get(one.partition_index), one)
            for one in sorted(answer.partitions, key=lambda one: one.partition_index)
        }
        self.topics[name] = TopicView(name, answer.topic_id, answer.is_internal, partitions)


def known_code(number: int) -> ErrorCode:
    """The error code of a number; one of a newer Kafka is an unknown server error here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _newer(old: PartitionView | None, answer: MetadataResponsePartition) -> PartitionView:
    if old is not None and NO_EPOCH < answer.leader_epoch < old.epoch:
        return old
    return PartitionView(
        BrokerId(answer.leader_id),
        Epoch(answer.leader_epoch),
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
    )


METADATA_OF_NOTHING = Call(Somewhere.ANY, Ask(METADATA, MetadataRequest(topics=[])))
"""Brokers only."""


def refresh(
    view: ClusterView, topics: Collection[str] | None, *, creates: bool = False
) -> Plan[None]:
    """Ask any broker about topics, None for all of them, until one answers; a cluster that lets
    topics be created at their first use may do so."""
    failures = 0
    while True:
        request = _about(topics, creates=creates)
        (outcome,) = yield [Call(Somewhere.ANY, Ask(METADATA, request))]
        if isinstance(outcome, Answered):
            view.update(outcome.message, whole=topics is None)
            return
        failures += 1
        yield pause_after(outcome, failures)


def told_by(broker: int, topics: Collection[str] | None) -> Plan[ClusterView | None]:
    """What this broker says itself, which may lag behind others; None where it does not answer."""
    (outcome,) = yield [Call(broker, Ask(METADATA, _about(topics, creates=False)))]
    if not isinstance(outcome, Answered):
        return None
    said = ClusterView()
    said.update(outcome.message, whole=topics is None)
    return said


def _about(topics: Collection[str] | None, *, creates: bool) -> MetadataRequest:
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=creates)


def pause_after(lost: Lost, failures: int) -> Pause:
    """The wait after a lost question; UnsupportedError where no wait helps."""
    return Pause(BACKOFF.wait(failures), reason_to_repeat(lost))
