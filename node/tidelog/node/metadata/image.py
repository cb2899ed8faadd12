"""The cluster as the metadata log tells it: brokers, topics, partitions, settings.

The coordinator decides on one image, every broker acts on one, and all of them, running or loading,
are made by this code from the same records in the same order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from tidelog.kernel.ids import (
    NO_LEADER,
    NO_OFFSET,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    ProducerId,
    Uuid,
)
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterCreated,
    ConfigChanged,
    ControllerActivated,
    FeatureChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ProducerIdsAllocated,
    ResourceKind,
    SnapshotEnded,
    StopKind,
    TopicCreated,
    TopicDeleted,
    TransactionsActivated,
)


@dataclass(slots=True)
class BrokerView:
    """One broker's latest life."""

    id: BrokerId
    incarnation: Incarnation
    epoch: Offset
    host: str
    port: int
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    stopped: StopKind
    fenced: bool
    stopping: bool = False
    """It is about to stop: alive, and given nothing to lead."""


@dataclass(slots=True)
class TopicView:
    """One topic. Partition n stands at index n."""

    name: str
    id: Uuid
    configs: dict[str, str] = field(default_factory=dict)
    partitions: list[PartitionView] = field(default_factory=list)
    version: Offset = field(default=NO_OFFSET, compare=False)
    """The offset of the last record that touched it: an answer made of the topic stays true until
    this moves. Two images may know it from a record and from a snapshot, so it is not compared."""


@dataclass(slots=True)
class Changes:
    """What records did to an image: who acts on an image looks only at this."""

    created: list[TopicView] = field(default_factory=list)
    deleted: list[TopicView] = field(default_factory=list)
    partitions: list[tuple[TopicView, int]] = field(default_factory=list)
    """Created and changed ones, each once, in the order they were first touched; a deleted topic's
    are not here."""
    configs: list[tuple[ResourceKind, str]] = field(default_factory=list)
    brokers: list[BrokerId] = field(default_factory=list)


@dataclass(slots=True)
class MetadataImage:
    """Everything the log says up to and with `offset`.

    Invariant: topics and names are two views of the same set; every leader stands in its ISR and is
    registered; every broker epoch is the offset of a record this image has seen.
    """

    offset: Offset = NO_OFFSET
    cluster_id: str = ""
    controller_epoch: Epoch = Epoch(0)
    controller_incarnation: Incarnation = Incarnation(0)
    run_id: str = ""
    producer_id_next: ProducerId = ProducerId(0)
    transactions_epoch: Epoch = Epoch(0)
    """Of the transaction coordinator's latest life; 0 before the first one."""
    transactions_incarnation: Incarnation = Incarnation(0)
    brokers: dict[BrokerId, BrokerView] = field(default_factory=dict)
    topics: dict[Uuid, TopicView] = field(default_factory=dict)
    names: dict[str, TopicView] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    other_configs: dict[ResourceKind, dict[str, dict[str, str]]] = field(
        default_factory=lambda: {ResourceKind.CLIENT_METRICS: {}, ResourceKind.GROUP: {}}
    )
    """Settings of what is no topic and no broker, by kind and name."""
    features: dict[str, int] = field(default_factory=dict)
    partitions_count: int = 0
    brokers_version: Offset = field(default=NO_OFFSET, compare=False)
    """As TopicView.version, for the set of brokers."""
    noting: bool = field(default=False, compare=False)
    """Whether someone takes the changes; what nobody takes would grow for ever."""
    _touched: dict[tuple[Uuid, int], None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _changes: Changes = field(default_factory=Changes, init=False, compare=False, repr=False)

    def replay(self, record: MetadataRecord) -> None:
        """Take the next record of the log."""
        self.offset = Offset(self.offset + 1)
        self._apply(record)
        if self.noting:
            self._note(record)

    def load(self, offset: Offset, records: Sequence[MetadataRecord]) -> None:
        """Become what a snapshot says, on an empty image; its last record is SnapshotEnded."""
        assert self.offset == NO_OFFSET, self.offset
        self.offset = offset
        for record in records:
            self._apply(record)

    def take_changes(self) -> Changes:
        """What happened since this was last asked."""
        assert self.noting
        changes, self._changes = self._changes, Changes()
        changes.partitions = [
            (self.topics[topic], partition)
            for topic, partition in self._touched
            if topic in self.topics
        ]
        self._touched = {}
        return changes

    def name_of(self, topic: Uuid) -> str:
        """Of the topic with this id; empty where there is none, which no topic's name is."""
        view = self.topics.get(topic)
        return "" if view is None else view.name

    def partition(self, topic: Uuid, partition: int) -> PartitionView | None:
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return None
        return view.partitions[partition]

    def is_alive(self, broker: BrokerId) -> bool:
        """Registered and not fenced."""
        view = self.brokers.get(broker)
        return view is not None and not view.fenced

    def is_active(self, broker: BrokerId) -> bool:
        """Alive, and not about to stop."""
        view = self.brokers.get(broker)
        return view is not None and not view.fenced and not view.stopping

    def active(self) -> list[BrokerId]:
        """The brokers that may be given something to lead, in order."""
        return sorted(view.id for view in self.brokers.values() if self.is_active(view.id))

    def alive(self) -> list[BrokerId]:
        """The brokers that are registered and not fenced, in order."""
        return sorted(view.id for view in self.brokers.values() if not view.fenced)

    def offline(self, view: PartitionView) -> list[int]:
        """The partition's replicas whose brokers are fenced or gone."""
        return [broker for broker in view.replicas if not self.is_alive(broker)]

    def finalized_features(self) -> tuple[Offset, dict[str, int]]:
        """The epoch and the levels that ApiVersions tells; the epoch rises when a level does."""
        return self.offset, self.features

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case PartitionCreated() | PartitionChanged():
                self._partition(record)
            case TopicCreated() | TopicDeleted() | ConfigChanged():
                self._topic(record)
            case BrokerRegistered() | BrokerFenced() | BrokerUnfenced() | BrokerStopping():
                self._broker(record)
            case BrokerUnregistered(broker, epoch):
                assert self.brokers[broker].epoch == epoch, (self.brokers[broker], record)
                del self.brokers[broker]
                self.brokers_version = self.offset
            case _:
                self._cluster(record)

    def _note(self, record: MetadataRecord) -> None:
        match record:
            case PartitionCreated() | PartitionChanged():
                self._touched[record.topic, record.partition] = None
            case TopicCreated():
                self._changes.created.append(self.topics[record.topic])
            case ConfigChanged():
                self._changes.configs.append((record.kind, record.resource))
            case BrokerRegistered() | BrokerFenced() | BrokerUnfenced() | BrokerStopping():
                self._changes.brokers.append(record.broker)
            case BrokerUnregistered(broker):
                self._changes.brokers.append(broker)
            case _:
                pass

    def _partition(self, record: PartitionCreated | PartitionChanged) -> None:
        topic = self.topics[record.topic]
        view = record.view
        assert view.leader == NO_LEADER or view.leader in view.isr, record
        assert view.isr or view.elr or view.last_known, record
        if isinstance(record, PartitionCreated):
            assert record.partition == len(topic.partitions), (record, len(topic.partitions))
            topic.partitions.append(view)
            self.partitions_count += 1
        else:
            known = topic.partitions[record.partition]
            assert view.leader_epoch >= known.leader_epoch, (known, view)
            assert view.partition_epoch > known.partition_epoch, (known, view)
            topic.partitions[record.partition] = view
        topic.version = self.offset

    def _topic(self, record: TopicCreated | TopicDeleted | ConfigChanged) -> None:
        match record:
            case TopicCreated():
                assert record.name not in self.names, record
                assert record.topic not in self.topics, record
                topic = TopicView(record.name, record.topic, version=self.offset)
                self.topics[topic.id] = self.names[topic.name] = topic
            case TopicDeleted():
                topic = self.topics.pop(record.topic)
                del self.names[topic.name]
                self.partitions_count -= len(topic.partitions)
                if self.noting:
                    self._changes.deleted.append(topic)
            case ConfigChanged():
                self._config(record)
            case _:
                assert_never(record)

    def _config(self, record: ConfigChanged) -> None:
        if record.kind is ResourceKind.TOPIC:
            topic = self.names[record.resource]
            topic.version = self.offset
            set_config(topic.configs, record)
            return
        resources = self.configs_of(record.kind)
        values = resources.setdefault(record.resource, {})
        set_config(values, record)
        if not values:
            del resources[record.resource]

    def configs_of(self, kind: ResourceKind) -> dict[str, dict[str, str]]:
        """The settings of each resource of that kind that has any, but for topics."""
        return self.broker_configs if kind is ResourceKind.BROKER else self.other_configs[kind]

    def _broker(
        self, record: BrokerRegistered | BrokerFenced | BrokerUnfenced | BrokerStopping
    ) -> None:
        if isinstance(record, BrokerRegistered):
            assert record.epoch <= self.offset, (record, self.offset)
            self.brokers[record.broker] = BrokerView(
                id=record.broker,
                incarnation=record.incarnation,
                epoch=record.epoch,
                host=record.host,
                port=record.port,
                rack=record.rack,
                log_dirs=record.log_dirs,
                stopped=record.stopped,
                fenced=record.fenced,
                stopping=record.stopping,
            )
        else:
            broker = self.brokers[record.broker]
            assert broker.epoch == record.epoch, (broker, record)
            if isinstance(record, BrokerStopping):
                broker.stopping = True
            else:
                broker.fenced = isinstance(record, BrokerFenced)
        self.brokers_version = self.offset

    def _cluster(
        self,
        record: ClusterCreated
        | FeatureChanged
        | ControllerActivated
        | ProducerIdsAllocated
        | TransactionsActivated
        | SnapshotEnded,
    ) -> None:
        match record:
            case ClusterCreated():
                assert not self.cluster_id, self.cluster_id
                self.cluster_id = record.cluster_id
            case FeatureChanged():
                self.features[record.name] = record.level
            case ControllerActivated():
                assert record.epoch > self.controller_epoch, (self.controller_epoch, record)
                self.controller_epoch = record.epoch
                self.controller_incarnation = record.incarnation
                self.run_id = record.run_id
            case ProducerIdsAllocated():
                assert record.next > self.producer_id_next, (self.producer_id_next, record)
                self.producer_id_next = record.next
            case TransactionsActivated():
                assert record.epoch > self.transactions_epoch, (self.transactions_epoch, record)
                assert record.incarnation > self.transactions_incarnation, record
                self.transactions_epoch = record.epoch
                self.transactions_incarnation = record.incarnation
            case SnapshotEnded():
                pass
            case _:
                assert_never(record)


def set_config(values: dict[str, str], record: ConfigChanged) -> None:
    """What a record says of one setting, in those of its resource."""
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value


def snapshot(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records that `load` makes the same image of, on this image's offset."""
    count = 0
    for record in _snapshot_records(image):
        yield record
        count += 1
    yield SnapshotEnded(count)


def _snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    yield from _cluster_records(image)
    for broker in image.brokers.values():
        yield BrokerRegistered(
            broker=broker.id,
            incarnation=broker.incarnation,
            epoch=broker.epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            log_dirs=broker.log_dirs,
            stopped=broker.stopped,
            fenced=broker.fenced,
            stopping=broker.stopping,
        )
    for kind in (ResourceKind.BROKER, *image.other_configs):
        for resource, values in image.configs_of(kind).items():
            for name, value in values.items():
                yield ConfigChanged(kind, resource, name, value)
    for topic in image.topics.values():
        yield from _topic_records(topic)


def _cluster_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    if image.cluster_id:
        yield ClusterCreated(image.cluster_id)
    for name, level in image.features.items():
        yield FeatureChanged(name, level)
    if image.controller_epoch > 0:
        yield ControllerActivated(
            image.controller_epoch, image.controller_incarnation, image.run_id
        )
    if image.producer_id_next > 0:
        yield ProducerIdsAllocated(NO_LEADER, image.producer_id_next)
    if image.transactions_epoch > 0:
        yield TransactionsActivated(image.transactions_epoch, image.transactions_incarnation)


def _topic_records(topic: TopicView) -> Iterator[MetadataRecord]:
    yield TopicCreated(topic.id, topic.name)
    for name, value in topic.configs.items():
        yield ConfigChanged(ResourceKind.TOPIC, topic.name, name, value)
    for partition, view in enumerate(topic.partitions):
        yield PartitionCreated(topic.id, partition, view)
