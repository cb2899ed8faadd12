"""The transaction coordinator's machine among toy brokers: on time that only moves when it is told.

Each message takes the same time, each connection keeps its order, and what is under way when a
connection ends is lost; nothing else ever is. Whole histories with faults are for the simulated
cluster: here a test holds back, refuses or counts single messages.
"""

from collections.abc import Callable
from functools import partial

from harness.machines.toy_brokers import ToyBroker
from harness.machines.toy_coordinators import Connection, Process
from harness.machines.toy_replicas import ToyPartition
from harness.simulation.clock import Timeline
from tidelog.coordinator.transactions.events import Happened
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.kernel.ids import (
    NO_LEADER,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    Partition,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.metadata.features import TRANSACTION_VERSION
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    FeatureChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    StopKind,
    TopicCreated,
    TopicDeleted,
    TransactionsActivated,
)
from tidelog.wire.transactions import STATE_TOPIC, FromTransactions

WALL_MS = 1_700_000_000_000
DELAY_MS = 0.2
SETTINGS = TransactionSettings(id_expiration_ms=60_000, cleanup_interval_ms=10_000)


class World:
    """Brokers 0 to 2, topics, and coordinators one after the other."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        topics: int = 2,
        partitions: int = 2,
        state_partitions: int = 3,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        self.timeline = Timeline()
        self.settings = settings
        self.records: list[MetadataRecord] = []
        self.image = MetadataImage()
        """As decided."""
        self.happened: list[tuple[Epoch, Happened]] = []
        self.on_committed: Callable[[], None] = lambda: None
        """Told when an append of the coordinator is committed."""
        self.on_sent: Callable[[Process, BrokerId, FromTransactions], None] = lambda *_: None
        self.processes: list[Process] = []
        self._mourners: dict[BrokerId, list[Callable[[], None]]] = {}
        self.brokers = {BrokerId(one): ToyBroker(self, BrokerId(one)) for one in range(brokers)}
        self.partitions: dict[TopicPartition, ToyPartition] = {}
        self.deaf: MetadataImage | None = None
        """It hears of nothing, until it hears of what comes later."""
        self.frozen: set[TopicPartition] = set()
        """Followers copy nothing of these."""
        for broker in self.brokers.values():
            self._register(broker)
        if state_partitions:
            self.create(STATE_TOPIC, state_partitions)
        self.decide(FeatureChanged(TRANSACTION_VERSION, 2))
        self.create(OFFSETS_TOPIC, 2)
        for index in range(topics):
            self.create(f"t{index}", partitions)

    # -- time

    @property
    def now(self) -> Instant:
        return self.timeline.now

    def wall_ms(self, now: Instant) -> int:
        return WALL_MS + now // 1_000_000

    def delay(self) -> int:
        """How long a message takes, in nanoseconds."""
        return ms(DELAY_MS)

    def later(self, action: Callable[[], None]) -> None:
        """As a message would come."""
        self.timeline.at(Instant(self.now + self.delay()), action)

    def run(self, milliseconds: float) -> None:
        until = Instant(self.now + ms(milliseconds))
        while self.timeline.step(until):
            pass

    def until(self, what: Callable[[], bool], *, within_ms: float = 5_000) -> None:
        until = Instant(self.now + ms(within_ms))
        while not what():
            assert self.timeline.step(until), f"not within {within_ms} ms: {what}"

    # -- metadata

    def decide(self, *records: MetadataRecord) -> None:
        """The controller's log has these; everybody hears of them together, after a while."""
        for record in records:
            self.records.append(record)
            self.image.replay(record)
        count = len(self.records)
        for broker in self.brokers.values():
            self.later(partial(self._tell_broker, broker, count))
        for process in self.processes:
            self.later(partial(process.told, count))

    def _tell_broker(self, broker: ToyBroker, count: int) -> None:
        if self.bring_up_to_date(broker.image, count) and broker.alive:
            broker.image_changed()

    def bring_up_to_date(self, image: MetadataImage, count: int) -> bool:
        """With so many records; whether that is news."""
        if image.offset + 1 >= count or image is self.deaf:
            return False
        for record in self.records[image.offset + 1 : count]:
            image.replay(record)
        return True

    def create(self, topic: str, partitions: int) -> None:
        uuid = Uuid(len(self.records).to_bytes(16, "big"))
        alive = sorted(one.id for one in self.brokers.values() if one.alive)
        rows: list[MetadataRecord] = [TopicCreated(uuid, topic)]
        for index in range(partitions):
            replicas = tuple(alive[(index + at) % len(alive)] for at in range(len(alive)))
            key = (topic, Partition(index))
            self.partitions[key] = ToyPartition(key, replicas, replicas[0])
            view = PartitionView(replicas, replicas, replicas[0])
            rows.append(PartitionCreated(uuid, Partition(index), view))
        self.decide(*rows)

    def delete(self, topic: str) -> None:
        known = self.image.names[topic]
        for index in range(len(known.partitions)):
            key = (topic, Partition(index))
            self.partitions.pop(key).give_up()
        self.decide(TopicDeleted(known.id))

    def write_view(self, key: TopicPartition) -> None:
        """What became of a partition goes into the metadata."""
        topic, partition = self.image.names[key[0]], self.partitions[key]
        before = topic.partitions[key[1]]
        leader = NO_LEADER if partition.leader is None else partition.leader
        view = PartitionView(
            before.replicas,
            partition.isr,
            leader,
            partition.epoch,
            Epoch(before.partition_epoch + 1),
        )
        self.decide(PartitionChanged(topic.id, key[1], view))

    # -- brokers

    def _register(self, broker: ToyBroker) -> None:
        epoch = Offset(len(self.records))
        self.decide(
            BrokerRegistered(
                broker.id, broker.incarnation, epoch, "host", 1, stopped=StopKind.KILLED
            )
        )
        self.decide(BrokerUnfenced(broker.id, epoch))

    def appended(self, partition: ToyPartition, broker: BrokerId) -> None:
        """Followers copy it after a while."""
        for follower in partition.replicas:
            if follower != broker:
                self.later(partial(self._copy, partition, follower))
        partition.settle()

    def _copy(self, partition: ToyPartition, follower: BrokerId) -> None:
        leader = partition.leader
        if self.partitions.get(partition.key) is not partition:
            return  # it was deleted
        if partition.key in self.frozen:
            return
        if leader is None or not self.brokers[follower].alive or not self.brokers[leader].alive:
            return
        partition.copy(follower)
        if follower not in partition.isr:
            partition.set_isr((*partition.isr, follower))
            self.write_view(partition.key)

    def kill_broker(self, broker: BrokerId) -> None:
        """At once; the controller hears of it a little later."""
        dead = self.brokers[broker]
        if not dead.alive:
            return
        if dead.connection is not None:
            dead.connection.is_broken = True
            dead.connection = None
        dead.dies()
        for told in self._mourners.pop(broker, []):
            told()
        self.later(partial(self._fence, broker))

    def _fence(self, broker: BrokerId) -> None:
        if self.brokers[broker].alive:
            return
        self.decide(BrokerFenced(broker, self.image.brokers[broker].epoch))
        for partition in self.partitions.values():
            if broker in partition.isr:
                self._do_without(partition, broker)

    def _do_without(self, partition: ToyPartition, broker: BrokerId) -> None:
        """Another in-sync replica leads, if there is one that lives."""
        left = tuple(one for one in partition.isr if one != broker)
        if partition.leader == broker:
            alive = [one for one in left if self.brokers[one].alive]
            partition.elect(alive[0] if alive else None, left or partition.isr)
            self.write_view(partition.key)
            self._follow(partition)
        elif left:
            partition.set_isr(left)
            self.write_view(partition.key)

    def start_broker(self, broker: BrokerId) -> None:
        """In its next life; what it led when all others were dead it leads again."""
        again = self.brokers[broker]
        if again.alive:
            return
        self._fence(broker)
        again.alive = True
        again.incarnation = Incarnation(again.incarnation + 1)
        self._register(again)
        for partition in self.partitions.values():
            if partition.leader is None and broker in partition.isr:
                partition.elect(broker, (broker,))
                self.write_view(partition.key)
            self._follow(partition)
        again.image_changed()
        self.connect(again)

    def _follow(self, partition: ToyPartition) -> None:
        for follower in partition.replicas:
            self.later(partial(self._copy, partition, follower))

    def move(self, key: TopicPartition, leader: BrokerId) -> None:
        """Another in-sync replica leads, and the one before lives on."""
        partition = self.partitions[key]
        if leader not in partition.isr or not self.brokers[leader].alive:
            return
        partition.elect(leader, partition.isr)
        self.write_view(key)
        self._follow(partition)

    # -- coordinators and connections

    @property
    def coordinator(self) -> Process:
        """The latest life."""
        return self.processes[-1]

    def start_coordinator(self) -> Process:
        """A new life. One before it may live on, as a zombie."""
        incarnation = Incarnation(len(self.processes) + 1)
        process = Process(self, incarnation, Epoch(self.image.transactions_epoch + 1))
        self.processes.append(process)
        self.decide(TransactionsActivated(process.epoch, incarnation))
        return process

    def served(self) -> None:
        """The latest coordinator's socket is there. Who has no connection connects to it."""
        for broker in self.brokers.values():
            if broker.connection is None:
                self.connect(broker)

    def kill_coordinator(self, process: Process) -> None:
        process.alive = False
        for broker in self.brokers.values():
            if broker.connection is not None and broker.connection.process is process:
                self.reconnect(broker)

    def connect(self, broker: ToyBroker) -> None:
        process = self.coordinator if self.processes else None
        if process is None or not process.alive or process.machine is None:
            return
        if broker.alive and broker.connection is None:
            broker.connect(Connection(self, broker, process))

    def reconnect(self, broker: ToyBroker) -> None:
        """Its connection ends, and another one comes after a while."""
        if broker.connection is not None:
            broker.connection.is_broken = True
            broker.disconnected()
        self.later(partial(self.connect, broker))

    # -- what producers see

    def leader(self, key: TopicPartition) -> ToyBroker | None:
        """Who leads it, as far as clients can know."""
        if key not in self.partitions:
            return None
        leader = self.image.names[key[0]].partitions[key[1]].leader
        return None if leader == NO_LEADER else self.brokers[leader]

    def on_death(self, broker: ToyBroker, told: Callable[[], None]) -> None:
        """Connections to it end."""
        self._mourners.setdefault(broker.id, []).append(told)

    # -- what tests look at

    def sent(self, process: Process, broker: BrokerId, message: FromTransactions) -> None:
        self.on_sent(process, broker, message)
