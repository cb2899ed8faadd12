"""The records of the metadata log: what the cluster knows, one fact each.

A record is a MessagePack array: its number, then its fields in order. So the log may outlive the
program that wrote it: a field is only ever added, at the end and with a default; a record whose
meaning changes gets a new number; a number is never used again. What decodes has the right types
and nothing else in it; what the numbers mean together is for who replays them.
"""

from enum import IntEnum
from typing import Final

import msgspec

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch, Incarnation, Offset, ProducerId, Uuid


class StopKind(IntEnum):
    """How a broker's last life ended: it says what its files are worth."""

    FIRST_START = 0
    CLEAN = 1
    KILLED = 2
    """On this boot and this disk: the page cache lived on, so nothing appended is lost."""
    POWER_LOSS = 3
    """Only what was forced to disk is left."""


class ResourceKind(IntEnum):
    """What a setting belongs to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Common to all records: immutable, compared by value, written as an array."""


class PartitionView(_Row, frozen=True):
    """All that is decided about one partition; a change writes the whole view anew.

    Invariant: `leader` is NO_LEADER or stands in `isr`; isr, elr and last_known are disjoint parts
    of `replicas`, and one of them is not empty. Parts of `replicas` are adding and removing too,
    both empty unless the partition is being reassigned; who was being added, and is wanted no more,
    is in both.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId = NO_LEADER
    leader_epoch: Epoch = Epoch(0)
    partition_epoch: Epoch = Epoch(0)
    elr: tuple[BrokerId, ...] = ()
    last_known: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    lossy_elections: int = 0
    """How often a leader was made that might not have every acknowledged record."""
    lost_records: int = 0
    """Acknowledged records that are known to be lost by them; there may be more."""

    def trusts(self, broker: BrokerId) -> bool:
        """Whether it may be made leader because it has every committed record."""
        return broker in self.isr or broker in self.elr

    @property
    def is_moving(self) -> bool:
        """Whether it is being reassigned."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas it has when its reassignment is over."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def original(self) -> tuple[BrokerId, ...]:
        """The replicas it has when its reassignment is cancelled."""
        return tuple(one for one in self.replicas if one not in self.adding)

    @property
    def factor(self) -> int:
        """How many replicas its rules count on: one that is still being added is none of them."""
        return len(self.replicas) - len(self.adding)


class ClusterCreated(_Row, frozen=True, tag=1):
    """The first record of every metadata log."""

    cluster_id: str


class FeatureChanged(_Row, frozen=True, tag=2):
    """A finalized feature's level, as ApiVersions tells it."""

    name: str
    level: int


class ControllerActivated(_Row, frozen=True, tag=3):
    """A controller took over. Whoever sees a lower epoch hears an old one."""

    epoch: Epoch
    incarnation: Incarnation
    run_id: str


class BrokerRegistered(_Row, frozen=True, tag=4):
    """One life of a broker begins; fenced until it has applied this very record."""

    broker: BrokerId
    incarnation: Incarnation
    epoch: Offset
    """The offset of this record in the log; it stays with the broker for its life."""
    host: str
    port: int
    rack: str | None = None
    log_dirs: tuple[Uuid, ...] = ()
    stopped: StopKind = StopKind.FIRST_START
    fenced: bool = True
    stopping: bool = False


class BrokerFenced(_Row, frozen=True, tag=5):
    broker: BrokerId
    epoch: Offset


class BrokerUnfenced(_Row, frozen=True, tag=6):
    broker: BrokerId
    epoch: Offset


class TopicCreated(_Row, frozen=True, tag=7):
    topic: Uuid
    name: str


class PartitionCreated(_Row, frozen=True, tag=8):
    topic: Uuid
    partition: int
    view: PartitionView


class PartitionChanged(_Row, frozen=True, tag=9):
    topic: Uuid
    partition: int
    view: PartitionView


class TopicDeleted(_Row, frozen=True, tag=10):
    """The topic, its partitions and its settings are gone."""

    topic: Uuid


class ConfigChanged(_Row, frozen=True, tag=11):
    """One setting of one resource; no value takes the setting away."""

    kind: ResourceKind
    resource: str
    """A topic's name, or a broker's id in digits, empty for all brokers."""
    name: str
    value: str | None


class ProducerIdsAllocated(_Row, frozen=True, tag=12):
    """Every producer id below `next` is some broker's to give away, or the transaction
    coordinator's."""

    broker: BrokerId
    next: ProducerId


class SnapshotEnded(_Row, frozen=True, tag=13):
    """The last record of a snapshot, and of nothing else: whoever reads it has the whole."""

    records: int


class BrokerStopping(_Row, frozen=True, tag=14):
    """It wants to stop: it is given nothing to lead any more, and joins no ISR in this life."""

    broker: BrokerId
    epoch: Offset


class BrokerUnregistered(_Row, frozen=True, tag=15):
    """The cluster forgets it, though partitions may still be placed on it. It comes back by
    registering."""

    broker: BrokerId
    epoch: Offset


class TransactionsActivated(_Row, frozen=True, tag=16):
    """A life of the transaction coordinator begins. Whoever sees a lower epoch hears an old one."""

    epoch: Epoch
    incarnation: Incarnation


MetadataRecord = (
    ClusterCreated
    | FeatureChanged
    | ControllerActivated
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | TopicCreated
    | PartitionCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | SnapshotEnded
    | BrokerStopping
    | BrokerUnregistered
    | TransactionsActivated
)

encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[MetadataRecord]] = msgspec.msgpack.Decoder(MetadataRecord)


def decode(value: bytes | memoryview, *, place: str, position: int) -> MetadataRecord:
    """One record; CorruptError, naming the place, where the bytes are none."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptError(file=place, position=position, reason=f"no record: {error}") from error
