"""What handlers work on: the broker's own state, its view of the cluster, and its links."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from tidelog.kernel.ids import BrokerId, Offset, Partition, ProducerId, TopicPartition
from tidelog.kernel.instant import Instant, WallMs
from tidelog.kernel.steps import Steps
from tidelog.node.api.fetch_sessions import FetchSessions
from tidelog.node.api.listed_brokers import ListedBrokers
from tidelog.node.api.producer_ids import ProducerIds
from tidelog.node.api.producer_rate import ProducerRate
from tidelog.node.api.topic_blocks import TopicBlocks
from tidelog.node.broker_settings import BrokerSettings
from tidelog.node.groups.history import Tell
from tidelog.node.groups.hosts import Groups, Surroundings
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.net.received import ReceivedBytes
from tidelog.node.replica.replicas import Replicas
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.waiting import BROKERS, Waiting
from tidelog.node.transactions import marking
from tidelog.wire.errors import ErrorCode

_T = TypeVar("_T")


class Link(Protocol):
    """The way to the coordinator."""

    def forward(
        self,
        api_key: int,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[bytes | ErrorCode], None],
    ) -> None:
        """Have the coordinator answer a request; `done` gets the answer without its size, or why
        not."""
        ...

    def allocate_producer_ids(
        self, done: Callable[[tuple[ProducerId, int] | ErrorCode], None]
    ) -> None: ...


class Transactions(Protocol):
    """The way to the transaction coordinator."""

    def forward(
        self,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[Instant, bytes | ErrorCode], None],
    ) -> Callable[[], None]:
        """Have it answer a request; `done` gets the answer without its size, or why not. While it
        is away that is COORDINATOR_NOT_AVAILABLE, soon.

        What this returns is called where nobody waits any more: what was not sent is not sent then.
        """
        ...


class NoTransactions:
    """Where nobody coordinates transactions yet."""

    def forward(
        self,
        _frame: bytes,
        _client_address: str,
        _deadline: Instant,
        done: Callable[[Instant, bytes | ErrorCode], None],
    ) -> Callable[[], None]:
        done(Instant(0), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return lambda: None


class Space(NamedTuple):
    """How full a volume is."""

    total_bytes: int
    usable_bytes: int


class Volume(Protocol):
    """One of the directories that hold this broker's logs."""

    @property
    def path(self) -> str: ...

    def space(self) -> Space:
        """Of its volume; OSError where that cannot be asked, or nothing in it can be used."""
        ...

    def holds(self, key: TopicPartition) -> bool: ...


class Storage(Protocol):
    """Where this broker's logs are, as a whole."""

    def volumes(self) -> Sequence[Volume]: ...

    def keep_starts(self, done: Callable[[bool], None]) -> None:
        """Bring the starts of all logs to disk; `done` gets whether they are there now."""
        ...


class Aside(Protocol):
    """How a handler has something done that takes the processor for long."""

    def __call__(self, work: Steps[_T], done: Callable[[Instant, _T], None]) -> None:
        """`work` touches nothing of the broker's; `done` gets the time and its result then."""
        ...


@dataclass(slots=True)
class Counters:
    """What the board shows of the data plane."""

    produced_batches: int = 0
    produced_bytes: int = 0
    fetches: int = 0
    fetched_bytes: int = 0


@dataclass(slots=True)
class Broker:
    """One broker, as its request handlers see it."""

    me: BrokerId
    settings: Mapping[str, Any]
    """Every row of the broker table, read; kept current."""
    configs: BrokerSettings
    """The same settings as texts, and where each was given."""
    image: MetadataImage
    replicas: Replicas
    replication: Replication
    waiting: Waiting
    sessions: FetchSessions
    link: Link
    producer_ids: ProducerIds
    storage: Storage
    aside: Aside
    later: Callable[[Callable[[Instant], None]], None]
    """Has something done on the loop after the requests of other clients that are there by now."""
    on_storage_failure: Callable[[TopicPartition, Exception], None]
    """Told when a partition's files could not be written or read."""
    new_uuid: Callable[[], str]
    """Makes part of a member's id."""
    wall_offset_ns: int = 0
    """What the wall clock is ahead of the monotonic one; the shell keeps it current."""
    counters: Counters = field(default_factory=Counters)
    looked_at_bytes: int = 0
    """Batches that searches by time have in memory, for a thread to look at."""
    topic_blocks: TopicBlocks = field(default_factory=TopicBlocks)
    producer_rate: ProducerRate = field(default_factory=ProducerRate)
    listed: ListedBrokers = field(default_factory=ListedBrokers)
    received: ReceivedBytes = field(default_factory=ReceivedBytes)
    transactions: Transactions = field(default_factory=NoTransactions)
    someone_left: Callable[[], bool] = lambda: False
    """Whether a broker is known to be gone that the image still counts on."""
    tell_of_groups: Tell = lambda _: None
    """Takes the lines of the stories of its groups."""
    on_fault: Callable[[str], None] = lambda _: None
    """Told of each fault of ours that a request brought out; such a request never ends us."""

    groups: Groups = field(init=False)
    marks: marking.Marks = field(init=False)

    def __post_init__(self) -> None:
        around = Surroundings(
            image=self.image,
            replicas=self.replicas,
            replication=self.replication,
            waiting=self.waiting,
            settings=self.settings,
            wall_ms=self.wall_ms,
            on_storage_failure=self.on_storage_failure,
            tell=self.tell_of_groups,
            on_fault=self.on_fault,
        )
        self.groups = Groups(around)
        self.marks = marking.Marking(
            marking.Surroundings(
                image=self.image,
                replicas=self.replicas,
                replication=self.replication,
                waiting=self.waiting,
                wall_ms=self.wall_ms,
                on_storage_failure=self.on_storage_failure,
                on_marker=self._on_marker,
            )
        )

    def _on_marker(
        self,
        now: Instant,
        partition: Partition,
        producer_id: ProducerId,
        committed: bool,  # noqa: FBT001 -- as `OnMarker` has it
        end: Offset,
    ) -> None:
        self.groups.marked(now, partition, producer_id, committed=committed, end=end)

    def brokers_changed(self, now: Instant, changed: Iterable[BrokerId]) -> None:
        """The image says something new of these brokers."""
        self.listed.follow(now, self.image, changed)
        self.waiting.advanced(now, BROKERS, 0)

    def wall_ms(self, now: Instant) -> WallMs:
        return WallMs((now + self.wall_offset_ns) // 1_000_000)
