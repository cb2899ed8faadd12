"""A controller over a log in memory, all invariants checked after every step."""

from random import Random

from tidelog.coordinator.controller.requests import (
    Activate,
    BrokerApplied,
    BrokerLost,
    BrokerRegistration,
    ControllerReply,
    ControllerRequest,
    CreateTopics,
    DeleteTopics,
    RegisterBroker,
)
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import (
    NO_LEADER,
    NO_OFFSET,
    BrokerId,
    Incarnation,
    Offset,
    RequestId,
)
from tidelog.kernel.instant import Instant
from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.wire.metadata_records import (
    MetadataRecord,
    PartitionChanged,
    PartitionView,
    StopKind,
)

CLUSTER = "tidelogtidelogtidelogt"
START = Instant(1_000_000_000)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Controlled:
    """Asks a controller, keeps its log, and checks the image after each step."""

    def __init__(
        self, *brokers: BrokerId, settings: ControllerSettings | None = None, seed: int = 1
    ) -> None:
        self.settings = settings or ControllerSettings()
        self.shard = ControllerShard(self.settings, Random(seed))
        self.log: list[MetadataRecord] = []
        self.replies: dict[RequestId, ControllerReply] = {}
        self.now = START
        self._asked = 0
        self.ask(Activate(CLUSTER, Incarnation(1), "run-1"))
        for broker in brokers:
            self.join(broker)

    @property
    def last_asked(self) -> RequestId:
        return RequestId(self._asked)

    @property
    def image(self) -> MetadataImage:
        return self.shard.image

    def ask(self, request: ControllerRequest) -> ControllerReply | None:
        """The reply, or None where there is none yet; `last_records` is what it wrote."""
        self._asked += 1
        asked = RequestId(self._asked)
        decision = self.shard.decide(self.now, asked, request)
        self._take(decision.records, decision.replies)
        return self.replies.get(asked)

    def tick(self) -> None:
        decision = self.shard.expire(self.now)
        self._take(decision.records, decision.replies)

    def join(
        self, broker: BrokerId, incarnation: int = 1, *, stopped: StopKind = StopKind.KILLED
    ) -> Offset:
        """Register, and acknowledge: alive afterwards."""
        registration = self.ask(registering(broker, incarnation, stopped=stopped))
        assert isinstance(registration, BrokerRegistration)
        self.apply(broker, incarnation)
        assert self.image.is_alive(broker)
        return registration.epoch

    def apply(self, broker: BrokerId, incarnation: int = 1) -> None:
        self.ask(BrokerApplied(broker, Incarnation(incarnation), self.image.offset))

    def lose(self, broker: BrokerId) -> None:
        self.ask(BrokerLost(broker, self.image.brokers[broker].incarnation))

    def create(
        self, *topics: CreatableTopic, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        """Results of a creation that every live broker applies at once."""
        message = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        reply = self.everywhere(CreateTopics(7, message))
        assert isinstance(reply, CreateTopicsResponse)
        return reply.topics

    def delete(
        self, *topics: str | DeleteTopicState, version: int = 6
    ) -> list[DeletableTopicResult]:
        states = [DeleteTopicState(name=one) if isinstance(one, str) else one for one in topics]
        reply = self.everywhere(DeleteTopics(version, DeleteTopicsRequest(topics=states)))
        assert isinstance(reply, DeleteTopicsResponse)
        return reply.responses

    def everywhere(self, request: ControllerRequest) -> ControllerReply | None:
        """The reply to what every live broker applies at once."""
        self.ask(request)
        asked = self.last_asked
        for broker in self.image.alive():
            self.apply(broker, self.image.brokers[broker].incarnation)
        return self.replies.get(asked)

    def _take(
        self,
        records: tuple[MetadataRecord, ...],
        replies: tuple[tuple[RequestId, ControllerReply], ...],
    ) -> None:
        self.last_records = records
        for record in records:
            self.log.append(record)
            if isinstance(record, PartitionChanged):
                check_moved(self.image.partition(record.topic, record.partition), record.view)
            self.shard.replay(record)
        for asked, reply in replies:
            assert asked not in self.replies, asked
            self.replies[asked] = reply
        check(self.image)
        assert self.image.offset == len(self.log) - 1


def registering(
    broker: BrokerId,
    incarnation: int = 1,
    *,
    cluster: str = CLUSTER,
    stopped: StopKind = StopKind.KILLED,
    applied: Offset = NO_OFFSET,
) -> RegisterBroker:
    return RegisterBroker(
        cluster_id=cluster,
        broker=broker,
        incarnation=Incarnation(incarnation),
        host="127.0.0.1",
        port=9092 + broker,
        rack=None,
        log_dirs=(),
        stopped=stopped,
        applied=applied,
    )


def topic(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    *,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replicas,
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignments or {}).items()
        ],
    )


def replayed(log: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    for record in log:
        image.replay(record)
    return image


def through_snapshot(image: MetadataImage) -> MetadataImage:
    loaded = MetadataImage()
    loaded.load(image.offset, tuple(snapshot(image)))
    return loaded


def check(image: MetadataImage) -> None:
    """What holds of every image, whatever was asked."""
    assert {topic.name: topic for topic in image.topics.values()} == image.names
    assert image.partitions_count == sum(len(one.partitions) for one in image.topics.values())
    assert all(broker.epoch <= image.offset for broker in image.brokers.values())
    alive, active = set(image.alive()), set(image.active())
    for one in image.topics.values():
        assert one.partitions, one.name
        for view in one.partitions:
            replicas, trusted = set(view.replicas), (*view.isr, *view.elr, *view.last_known)
            assert len(replicas) == len(view.replicas), view
            assert 0 < len(trusted) == len(set(trusted)), view
            assert replicas.issuperset(trusted), view
            check_moving(view)
            assert alive.issuperset(view.isr), view
            if view.leader == NO_LEADER:
                assert active.isdisjoint((*view.isr, *view.elr)), view
            else:
                assert view.leader in view.isr, view


def check_moved(old: PartitionView | None, new: PartitionView) -> None:
    """P11: a replica goes only with a new leader epoch, so that nothing counts that was heard of
    it; and only where what was being added is not wanted any more, or all who stay are in sync."""
    if old is None or set(old.replicas) <= set(new.replicas):
        return
    assert new.leader_epoch > old.leader_epoch, (old, new)
    is_cancelled = not new.is_moving and set(new.replicas) == set(old.original)
    assert is_cancelled or set(new.replicas) == set(new.isr), (old, new)


def check_moving(view: PartitionView) -> None:
    """What holds of a partition while it is reassigned, and when it is not."""
    replicas, adding, removing = set(view.replicas), set(view.adding), set(view.removing)
    assert replicas.issuperset(adding | removing), view
    assert adding | removing or not view.is_moving, view
    assert view.target, view
    assert view.original, view
