"""What the controller is asked, and what it replies."""

from dataclasses import dataclass

from tidelog.kernel.ids import BrokerId, Incarnation, Offset, ProducerId, Uuid
from tidelog.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.metadata_records import StopKind


@dataclass(frozen=True, slots=True)
class Activate:
    """The first request of every life of the controller."""

    cluster_id: str
    incarnation: Incarnation
    run_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    cluster_id: str
    broker: BrokerId
    incarnation: Incarnation
    host: str
    port: int
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    stopped: StopKind
    applied: Offset


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Reply to RegisterBroker."""

    epoch: Offset


@dataclass(frozen=True, slots=True)
class BrokerApplied:
    """A broker's image has everything up to this offset."""

    broker: BrokerId
    incarnation: Incarnation
    offset: Offset


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    """The supervisor forked a broker: its earlier lives are over."""

    broker: BrokerId
    incarnation: Incarnation

    @property
    def next_life(self) -> Incarnation:
        """Every life before this one is over."""
        return self.incarnation


@dataclass(frozen=True, slots=True)
class BrokerLost:
    """This life of a broker died, stopped, hangs, or is about to go."""

    broker: BrokerId
    incarnation: Incarnation

    @property
    def next_life(self) -> Incarnation:
        """Every life before this one is over."""
        return Incarnation(self.incarnation + 1)


@dataclass(frozen=True, slots=True)
class CreateTopics:
    version: int
    message: CreateTopicsRequest


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    version: int
    message: DeleteTopicsRequest


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    broker: BrokerId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Reply to AllocateProducerIds."""

    first: ProducerId
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """Reply to everything that only tells the controller something."""


ControllerRequest = (
    Activate
    | RegisterBroker
    | BrokerApplied
    | BrokerStarted
    | BrokerLost
    | CreateTopics
    | DeleteTopics
    | AllocateProducerIds
)
ControllerReply = (
    BrokerRegistration | ProducerIdBlock | CreateTopicsResponse | DeleteTopicsResponse | Done
)
